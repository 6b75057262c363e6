"""What waiting leads to: until what a job waits, or that it waits in vain."""

from typing import Final

from kai.explain.codes import Stage, stage_of
from kai.explain.phrases import Words, number, quantity
from kai.framework.verdict import Code
from kai.model.axis import LEADING
from kai.simulation.explaining.changes import Site
from kai.simulation.explaining.suggestions import Suggestions
from kai.simulation.explaining.trials import Alone

_WAITING = {
    "Gated": "until the gates are removed",
    "NotReady": "until the missing pods exist",
    "PreemptionDelayNotElapsed": "until the delay is over, or running work ends",
    "TriesSpent": "does not help while the sub-groups lie within each other as they do",
    "WaitsForTurn": "until it is its turn",
    "HeldForLeaving": "nothing to do: it starts when they have left",
    "Moves": "nothing to do: pods that move start again on their new nodes",
    "Plugin": "until the plugin works again",
    "TopologyMissing": "does not help while there is no such topology",
    "TopologyLevelMissing": "does not help while the topology has no such level",
    "GpuMemoryUnknown": "does not help while no node has the label",
    "PodRefused": "does not help while its pod is refused",
    "BindRefused": "until the next try, if what refused the bind does so no longer",
    "NoScore": "does not help while the plugin scores nodes like that",
    "NoNodes": "does not help while there are no nodes",
    "NotTried": "until an action tries it",
}
_BOUNDS: Final = frozenset({"OverLimit", "NonPreemptibleOverQuota"})
LOST = "pods that move start again on their new nodes, evicted pods once there is room for them again"
_IN_VAIN = {
    Stage.QUEUE: "does not help while the queues and the job stay as they are",
    Stage.IMPOSSIBLE: "does not help: these nodes could not hold it if they were empty",
    Stage.MATCH: "does not help while the nodes and the job stay as they are",
}


_NOT_TRIED: Final = Suggestions(all_tried=False)
_OTHERS_END: Final = "until running work ends (no end time is known)"
_PASSED: Final = "; jobs that need less may pass it again"
_ALONE: Final = "does not help: it would wait if all other jobs were gone, too"


def hopes(reason: Words) -> bool:
    """Return whether others may be in the way of a job that waits for ``reason``: whether that is so can be tried."""
    if reason.code in _BOUNDS or reason.code in {"PreemptionDelayNotElapsed", "NoNodeMatches"}:
        return True
    return reason.code not in _WAITING and stage_of(reason.code) not in _IN_VAIN


def competes(reason: Words) -> bool:
    """Return whether a job waits for room that others have, and not for what its queue or the nodes' labels allow."""
    return hopes(reason) and reason.code not in _BOUNDS and reason.code != "NoNodeMatches"


def waiting(site: Site, reason: Words, alone: Alone | None = None, found: Suggestions = _NOT_TRIED) -> str:
    """Return what waiting leads to. How long it takes is never told: when pods end is unknown.

    ``alone``: what becomes of the job if no other has a pod; None where that was not tried.
    ``found``: which changes help.
    """
    then = None if alone is None else alone.reason
    if reason.code == "NoNodeMatches":
        # What volumes and ports pods have is what nodes object to as well.
        return _OTHERS_END if alone is not None and then is None else _IN_VAIN[Stage.MATCH]
    if then is not None and (reason.code not in _BOUNDS or then.code != reason.code):
        said = "" if any(each.text == then.text for each in site.reasons) else f": {then.text}"
        return f"{_ALONE}{said} ({then.code})"
    delay = any(each.change.field == "preemptionDelay" for each in found.told)
    if reason.code == "PreemptionDelayNotElapsed" and found.all_tried and not delay:
        return f"{_OTHERS_END}; it would wait without the delay, too"
    if reason.code == Code.EVICTIONS_CAPPED:
        return _within_cap(reason)
    if reason.code not in _BOUNDS:
        return _WAITING.get(reason.code, _IN_VAIN.get(stage_of(reason.code), _OTHERS_END))
    resource = str(reason.facts["resource"])
    bound, used, asked = (number(reason.facts[key]) for key in ("bound", "used", "requested"))
    report = site.cycle.report
    columns = report.queue_used if reason.code == "OverLimit" else report.queue_fixed
    used = max(used, float(columns[int(number(reason.facts["queue_row"])), LEADING.index(resource)]))
    if then is not None or asked > bound:
        return f"does not help: the job alone asks for more than {quantity(round(bound), resource)}"
    more = quantity(round(used + asked - bound), resource)
    # What may be taken back does not count against a quota: its end does not help.
    queue = reason.facts["queue"]
    users = f"{queue} uses" if reason.code == "OverLimit" else f"non-preemptible pods of {queue} use"
    return f"until {users} {more} less (no end time is known)"


def usual(reason: Words) -> str:
    """Return what waiting leads to as far as the reason alone says it: no figure is looked at but its own."""
    if reason.code in _BOUNDS and "queue" in reason.facts:
        return f"until {reason.facts['queue']} uses less (no end time is known)"
    return _WAITING.get(reason.code, _IN_VAIN.get(stage_of(reason.code), _OTHERS_END))


def passed_again(told: str) -> str:
    """Return what waiting leads to where younger jobs have passed a job that waits until others end."""
    return f"{told}{_PASSED}" if told.startswith(_OTHERS_END) else told


def in_general(told: str, otherwise: str) -> str:
    """Return what is ``told`` of waiting where it has no figure and no name, else what can be said without them."""
    told = told.removesuffix(_PASSED)
    if told.startswith(_ALONE):
        return _ALONE
    return told if told in _PLAIN else otherwise


_PLAIN: Final = frozenset({*_WAITING.values(), *_IN_VAIN.values(), _OTHERS_END, LOST})


def _within_cap(reason: Words) -> str:
    """Return what waiting leads to where a cap on evictions holds a job back: others may be evicted for it later."""
    most, found, before = (number(reason.facts[key]) for key in ("most", "found", "before"))
    cap = str(reason.facts["cap"])
    if not before or found - before > most:
        return f"{_OTHERS_END}; what would be evicted for it alone passes the cap"
    later = "within the hour counts no more" if cap.endswith("_per_hour") else "in this cycle counts no more"
    return f"until what was evicted {later}, or running work ends (no end time is known)"


__all__ = ["LOST", "competes", "hopes", "in_general", "passed_again", "usual", "waiting"]
