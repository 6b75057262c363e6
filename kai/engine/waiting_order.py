"""The order in which actions would try groups now: a look at the queues that changes nothing."""

import attrs
import numpy as np

from kai.engine.heaps import GroupHeap
from kai.engine.observe import Silent
from kai.engine.profile import Profile
from kai.engine.session import Session
from kai.framework.decisions import Recorder
from kai.model.rows import Float64s
from kai.state.snapshot import Snapshot

_ALLOCATE = "allocate"


@attrs.frozen(kw_only=True)
class WaitingOrder:
    """The groups that wait, and what orders them within their queues."""

    groups: tuple[int, ...] = ()
    """Rows, the first to be asked first."""
    names: tuple[str, ...] = ()
    """What keys are called: plugins in their order."""
    keys: Float64s = attrs.field(factory=lambda: np.zeros((0, 0)))
    """float64[G, k]: the keys of all groups, smaller first."""


def waiting_order(snapshot: Snapshot, profile: Profile) -> tuple[int, ...]:
    """Return the rows of the groups that wait, as allocation would first ask them if none of them got a place.

    Source: the peer's plugin reflectjoborder.
    Cost: that of opening a session, and a pop for each group.
    """
    return explained_order(snapshot, profile).groups


def explained_order(snapshot: Snapshot, profile: Profile) -> WaitingOrder:
    """Return the order of the groups that wait, with the keys that make it.

    Cost: as ``waiting_order``.
    """
    session = Session(snapshot, profile, Recorder(), Silent())
    heap = GroupHeap(session, depth=session.parameters.queue_depth.get(_ALLOCATE, -1), every_key=True)
    heap.fill(session.waiting_groups())
    names = session.policy.key_names(np.arange(min(1, len(snapshot.groups))))
    keys = heap.records.keys[:, : len(names)].copy()
    found = tuple(portion.group for portion in iter(heap.pop, None))
    session.release()
    return WaitingOrder(groups=found, names=names, keys=keys)
