"""What waiting leads to: until what a job waits, or that it waits in vain."""

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
LOST = "pods that move start again on their new nodes, evicted pods once there is room for them again"
_IN_VAIN = {
    Stage.QUEUE: "does not help while the queues and the job stay as they are",
    Stage.IMPOSSIBLE: "does not help: these nodes could not hold it if they were empty",
    Stage.MATCH: "does not help while the nodes and the job stay as they are",
}


def waiting(site: Site, reason: Words) -> str:
    """Return what waiting leads to. How long it takes is never told: when pods end is unknown."""
    if reason.code not in ("OverLimit", "NonPreemptibleOverQuota"):
        in_vain = _IN_VAIN.get(stage_of(reason.code), "until running work ends (no end time is known)")
        return _WAITING.get(reason.code, in_vain)
    resource = str(reason.facts["resource"])
    bound, used, asked = (number(reason.facts[key]) for key in ("bound", "used", "requested"))
    report = site.cycle.report
    columns = report.queue_used if reason.code == "OverLimit" else report.queue_fixed
    used = max(used, float(columns[int(number(reason.facts["queue_row"])), LEADING.index(resource)]))
    if asked > bound:
        return f"does not help: the job alone asks for more than {quantity(round(bound), resource)}"
    more = quantity(round(used + asked - bound), resource)
    return f"until {reason.facts['queue']} uses {more} less (no end time is known)"


__all__ = ["LOST", "waiting"]
