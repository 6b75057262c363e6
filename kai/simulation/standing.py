"""Where a waiting job stands: its position in the queue, since when it waits, and what is known of its start."""

from collections.abc import Mapping
from functools import cached_property

import attrs

from kai.api.objects import ClusterObjects
from kai.engine.profile import Profile
from kai.engine.waiting_order import waiting_order
from kai.framework.decisions import Evict
from kai.framework.verdict import Code
from kai.model.status import Status
from kai.simulation.run import Cycle

TERMINATING = (Status.RELEASING, Status.STUCK_IN_RELEASING)


@attrs.frozen(kw_only=True)
class Eta:
    """When a job is going to start, as far as anything says so."""

    seconds: float
    basis: str
    assumptions: tuple[str, ...]


class Standing:
    """Looks at the jobs of one cycle that wait. The order is worked out when the first position is asked for."""

    def __init__(self, cycle: Cycle, profile: Profile, objects: ClusterObjects) -> None:
        """Look at ``cycle``, which decided on ``objects``."""
        self._cycle = cycle
        self._profile = profile
        self._objects = objects

    def position(self, group: int) -> int | None:
        """Return which place among the jobs of its queue that still wait a group has; None if it is not tried."""
        return self._positions.get(group)

    @cached_property
    def _positions(self) -> Mapping[int, int]:
        cycle = self._cycle
        pending = {int(group) for group in cycle.snapshot.pod_group[cycle.report.status == Status.PENDING]}
        behind: dict[int, int] = {}
        found: dict[int, int] = {}
        for group in waiting_order(cycle.snapshot, self._profile):
            if group in pending:
                queue = cycle.snapshot.groups[group].queue_row
                behind[queue] = behind.get(queue, 0) + 1
                found[group] = behind[queue]
        return found

    def waiting_since(self, group: int) -> float | None:
        """Return since when a group waits, in seconds since the epoch: its last eviction, else its creation."""
        facts = self._cycle.snapshot.groups[group]
        since = facts.created if facts.last_eviction is None else max(facts.created, facts.last_eviction)
        return since if 0 < since <= self._cycle.snapshot.now else None

    def eta(self, group: int, code: str) -> Eta | None:
        """Return when a group starts, if something says so: the ends of grace periods, or of a delay."""
        if code == Code.HELD_FOR_LEAVING:
            return self._when_left(group)
        return None

    def _when_left(self, group: int) -> Eta | None:
        """Return when the grace periods of the pods end that leave the nodes of a group; None if any is unknown."""
        snapshot, report = self._cycle.snapshot, self._cycle.report
        held = (snapshot.pod_group == group) & (report.status == Status.PIPELINED)
        nodes = set(report.node[held].tolist())
        # Pods that are evicted in this cycle begin to terminate later, and how long they take is not known.
        leaving = [row for row, status in enumerate(snapshot.pod_status) if status in TERMINATING]
        if any(isinstance(each, Evict) and int(snapshot.pod_node[each.pod]) in nodes for each in self._cycle.decisions):
            return None
        ends = self._ends
        known = [ends.get(snapshot.pods[row].key) for row in leaving if int(snapshot.pod_node[row]) in nodes]
        if not known or any(each is None for each in known):
            return None
        seconds = max(each for each in known if each is not None) - snapshot.now
        if seconds < 0:
            return None
        return Eta(
            seconds=seconds,
            basis="grace periods of terminating pods",
            assumptions=("terminating pods are gone when their grace periods end",),
        )

    @cached_property
    def _ends(self) -> Mapping[str, float]:
        """When terminating pods have to be gone, by ``namespace/name``."""
        return {
            f"{pod.metadata.namespace}/{pod.metadata.name}": pod.metadata.deletion_timestamp
            for pod in self._objects.pods
            if pod.metadata.deletion_timestamp is not None
        }


__all__ = ["TERMINATING", "Eta", "Standing"]
