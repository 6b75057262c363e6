"""In which order groups would be asked: a look at the queues that changes nothing."""

from kai.engine.heaps import GroupHeap
from kai.engine.observe import Silent
from kai.engine.profile import Profile
from kai.engine.session import Session
from kai.framework.decisions import Recorder
from kai.state.snapshot import Snapshot

_ALLOCATE = "allocate"


def waiting_order(snapshot: Snapshot, profile: Profile) -> tuple[int, ...]:
    """Return the rows of the groups that wait, as allocation would first ask them if none of them got a place.

    Source: the peer's plugin reflectjoborder.
    Cost: that of opening a session, and a pop for each group.
    """
    session = Session(snapshot, profile, Recorder(), Silent())
    heap = GroupHeap(session, depth=session.parameters.queue_depth.get(_ALLOCATE, -1))
    heap.fill(session.waiting_groups())
    found = tuple(portion.group for portion in iter(heap.pop, None))
    session.release()
    return found
