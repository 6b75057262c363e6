"""Where each pod stands after a cycle, in the words that jobs have, too."""

from kai.framework.decisions import Evict
from kai.model.status import ACTIVE_ALLOCATED, Status, within
from kai.simulation.deciding.run import Cycle
from kai.simulation.outcomes.job_states import State
from kai.simulation.outcomes.kept_places import kept_places

_WITHOUT_NODE = {
    int(Status.PENDING): State.WAITS,
    int(Status.GATED): State.WAITS,
    int(Status.PIPELINED): State.HELD,
    int(Status.SUCCEEDED): State.FINISHED,
    int(Status.FAILED): State.FINISHED,
}


def state_of(status: int) -> State:
    """Return the state of a pod of which nothing is known but its status."""
    known = _WITHOUT_NODE.get(status)
    if known is not None:
        return known
    return State.RUNNING if within(status, ACTIVE_ALLOCATED) else State.LEAVING


def pod_states(cycle: Cycle) -> list[State]:
    """Return the state of every pod after the last action of a cycle, by row."""
    nodes = cycle.report.node.tolist()
    states = [state_of(status) for status in cycle.report.status.tolist()]
    for row in kept_places(cycle.snapshot).rows:
        states[row] = State.MOVES
    for bind in cycle.aftermath.binds.values():
        states[bind.pod] = State.STARTS
    for pod, state in enumerate(states):
        if state is State.RUNNING and nodes[pod] < 0:
            states[pod] = State.LOST
    for decision in cycle.decisions:
        if isinstance(decision, Evict):
            states[decision.pod] = State.MOVES if decision.moved_to >= 0 else State.EVICTED
    return states
