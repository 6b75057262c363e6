"""What a pod does on its node after a cycle, and whose it is: for whole and shared GPUs as for MIG slices."""

from typing import Final

import attrs

from kai.model.pod import STAND_IN
from kai.model.status import ACTIVE_ALLOCATED, TERMINATING, Status, within
from kai.simulation.deciding.run import Cycle

USED: Final = "used"
HELD: Final = "held"
LEAVING: Final = "leaving"


@attrs.frozen(kw_only=True)
class Holder:
    """A pod with something of its node; what it has, subclasses say."""

    job: str
    namespace: str
    queue: str
    pod: str
    state: str
    """One of used, held, leaving."""


def holder_of(cycle: Cycle, pod: int) -> dict[str, str] | None:
    """Return the fields of the `Holder` that the pod of a row is on its node; None for one that is over."""
    snapshot = cycle.snapshot
    group, facts = int(snapshot.pod_group[pod]), snapshot.pods[pod]
    state = HELD if facts.is_stand_in else _state(int(cycle.report.status[pod]))
    if not state:
        return None
    return {
        "job": snapshot.groups[group].name if group >= 0 else facts.name,
        "namespace": facts.namespace,
        "queue": snapshot.groups[group].queue if group >= 0 else "",
        "pod": facts.name.removesuffix(STAND_IN),
        "state": state,
    }


def is_leaving(cycle: Cycle, pod: int) -> bool:
    """Return whether a pod has been told to go, and is there still."""
    return within(int(cycle.report.status[pod]), TERMINATING)


def _state(status: int) -> str:
    if within(status, TERMINATING):
        return LEAVING
    if status == Status.PIPELINED:
        return HELD
    return USED if within(status, ACTIVE_ALLOCATED) else ""
