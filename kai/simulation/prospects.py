"""What waiting leads to: until what a job waits, or that it waits in vain."""

from typing import Final

from kai.explain.codes import Stage, stage_of
from kai.explain.phrases import Words, number, quantity
from kai.model.axis import LEADING
from kai.simulation.changes import Site

_WAITING = {
    "Gated": "until the gates are removed",
    "NotReady": "until the missing pods exist",
    "PreemptionDelayNotElapsed": "until the delay is over, or running work ends",
    "WaitsForTurn": "until it is its turn",
    "HeldForLeaving": "nothing to do: it starts when they have left",
    "Moves": "nothing to do: pods that move start again on their new nodes",
    "Plugin": "until the plugin works again",
    "TopologyMissing": "does not help while there is no such topology",
    "TopologyLevelMissing": "does not help while the topology has no such level",
    "GpuMemoryUnknown": "does not help while no node has the label",
    "NoScore": "does not help while the plugin scores nodes like that",
    "NotTried": "until an action tries it",
}
_BOUNDS: Final = frozenset({"OverLimit", "NonPreemptibleOverQuota"})
LOST = "pods that move start again on their new nodes, evicted pods once there is room for them again"
_IN_VAIN = {
    Stage.QUEUE: "does not help while the queues and the job stay as they are",
    Stage.IMPOSSIBLE: "does not help: these nodes could not hold it if they were empty",
    Stage.MATCH: "does not help while the nodes and the job stay as they are",
}


_OTHERS_END: Final = "until running work ends (no end time is known)"


def hopes(reason: Words) -> bool:
    """Say whether a job that waits for ``reason`` is told to wait for others: whether that helps can be tried."""
    return reason.code in _BOUNDS or (reason.code not in _WAITING and stage_of(reason.code) not in _IN_VAIN)


def waiting(site: Site, reason: Words, alone: Words | None = None) -> str:
    """Return what waiting leads to. How long it takes is never told: when pods end is unknown.

    ``alone``: why the job would wait if no other had a pod; None where it would not, or where that is not known.
    """
    if alone is not None and (reason.code not in _BOUNDS or alone.code != reason.code):
        said = "" if any(each.text == alone.text for each in site.reasons) else f": {alone.text}"
        return f"does not help: it would wait if all other jobs were gone, too{said} ({alone.code})"
    if reason.code not in _BOUNDS:
        return _WAITING.get(reason.code, _IN_VAIN.get(stage_of(reason.code), _OTHERS_END))
    resource = str(reason.facts["resource"])
    bound, used, asked = (number(reason.facts[key]) for key in ("bound", "used", "requested"))
    report = site.cycle.report
    columns = report.queue_used if reason.code == "OverLimit" else report.queue_fixed
    used = max(used, float(columns[int(number(reason.facts["queue_row"])), LEADING.index(resource)]))
    if alone is not None or asked > bound:
        return f"does not help: the job alone asks for more than {quantity(round(bound), resource)}"
    more = quantity(round(used + asked - bound), resource)
    return f"until {reason.facts['queue']} uses {more} less (no end time is known)"


__all__ = ["LOST", "hopes", "waiting"]
