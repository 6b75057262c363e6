"""The MIG slices of each node after a cycle: how many a node offers of each profile, and which pods have them.

Slices of one profile are alike, and Kubernetes does not say which one a pod has, so they are counted.
"""

from collections.abc import Mapping, Sequence

import attrs

from kai.api import names
from kai.simulation.deciding.run import Cycle
from kai.simulation.outcomes.gpu_holders import HELD, LEAVING, USED, Holder, holder_of


@attrs.frozen(kw_only=True)
class SliceUser(Holder):
    """A pod's slices of one profile."""

    count: int


@attrs.frozen(kw_only=True)
class Slices:
    """The slices of one profile on one node."""

    resource: str
    total: int
    users: tuple[SliceUser, ...] = ()

    @property
    def profile(self) -> str:
        """The profile without what each of them begins with: ``1g.10gb``."""
        return self.resource.removeprefix(names.MIG_PREFIX)

    def count(self, state: str) -> int:
        """Return how many slices are in ``state``."""
        return sum(user.count for user in self.users if user.state == state)

    @property
    def in_use(self) -> int:
        """Slices that are taken, or still being left."""
        return self.count(USED) + self.count(LEAVING)

    @property
    def free(self) -> int:
        """Slices that pods can have now; like GPUs, those that are free are promised first."""
        return max(0, self.total - self.in_use - self.count(HELD))


def slices_of(cycle: Cycle, row: int, pods: Sequence[int]) -> tuple[Slices, ...]:
    """Return the slices of the node in ``row``, on which ``pods`` are, by the name of the profile."""
    snapshot = cycle.snapshot
    offered: Mapping[str, int] = snapshot.nodes[row].allocatable
    columns = [(name, at) for at, name in enumerate(snapshot.axis.names) if name.startswith(names.MIG_PREFIX)]
    found = []
    for name, at in columns:
        users = [user for pod in pods if (user := _user(cycle, pod, at)) is not None]
        if users or offered.get(name, 0):
            users.sort(key=lambda user: (user.state, user.queue, user.namespace, user.job, user.pod))
            found.append(Slices(resource=name, total=offered.get(name, 0), users=tuple(users)))
    return tuple(found)


def _user(cycle: Cycle, pod: int, column: int) -> SliceUser | None:
    """Return what a pod has of one profile; None where it has nothing, or is over."""
    snapshot = cycle.snapshot
    count = int(snapshot.requests[int(snapshot.pod_shape[pod]), column])
    holder = holder_of(cycle, pod) if count else None
    return None if holder is None else SliceUser(**holder, count=count)
