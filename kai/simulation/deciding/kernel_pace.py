"""How kernels run in simulations: as plain Python until compiling them pays (`kai.kernels.pace`)."""

from typing import Final

import numpy as np

from kai.api.cluster_objects import ClusterObjects
from kai.engine.profile import Profile
from kai.kernels.pace import Pace, work_of
from kai.progress import report
from kai.state.snapshot import Snapshot

COMPILING: Final = "compiling kernels (once, a minute or two)"
WORTH_LOADING: Final = 400_000
"""A command decides its last cycle soon, so it loads kernels later than a service would.

Measured with searches as far as commands search: loading takes a second of processor, and 230,000 pairs (500 nodes,
4,000 pods, 50 of which wait) take 0.4 seconds plain.
"""
_PACE: Final = Pace(WORTH_LOADING)
_HOSTS: Final[list[str]] = []
"""The roles of this process that settle how kernels run, so that nothing here does."""


def leave_to(host: str) -> None:
    """Leave it to a service of this process how kernels run: its cycles and what is decided here run beside each other.

    Two that settle it would switch it under each other's feet.
    """
    _HOSTS.append(host)


def settle_for(objects: ClusterObjects, profile: Profile, again: int = 0) -> None:
    """Settle how kernels run before a cluster is read that is decided on once, and about ``again`` times more."""
    waiting = sum(not pod.spec.node_name for pod in objects.pods)
    _settle(work_of(len(objects.nodes), len(objects.pods), waiting) * (1 + again), profile)


def settle_on(snapshot: Snapshot, profile: Profile, again: int = 0) -> None:
    """Settle how kernels run before a snapshot is decided on, and count it as done.

    About ``again`` more that are like it will follow.
    """
    waiting = int(np.count_nonzero(snapshot.pod_node < 0))
    work = work_of(len(snapshot.nodes), len(snapshot.pods), waiting)
    _settle(work * (1 + again), profile)
    _PACE.add(work)


def _settle(work: int, profile: Profile) -> None:
    if _HOSTS:
        return
    modules = tuple(type(use.plugin).__module__ for use in profile.plugins)
    _PACE.settle(work, modules, lambda done, total: report(COMPILING, done, total))
