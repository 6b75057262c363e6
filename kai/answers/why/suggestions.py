"""Suggestions for a waiting group: proved one-field changes, what it waits for, and when it starts.

A suggestion changes one field by the least amount that helps. It is shown only after a trial proved it.

The text about waiting names the event that ends it, or says that waiting is in vain.

The start time of a job is given only where the cluster states it. An unknown end time is never guessed.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Final

import attrs

from kai.answers.offline.run import Cycle
from kai.answers.why.candidates import families
from kai.answers.why.changes import LIMITS, Site, used_against
from kai.answers.why.facts import Ahead
from kai.answers.why.trials import Alone, ChangeTrial, ChangeTrials, Result
from kai.answers.why.unfit_nodes import Family
from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.runtime_limits import bound, has_end, queue_chain
from kai.api.kinds import key_of
from kai.basics.schedules import clock_text
from kai.basics.wording import span_text
from kai.deciding.explain.code_texts import date_text
from kai.deciding.explain.codes import Stage, stage_of
from kai.deciding.explain.phrases import number, quantity
from kai.facts.model.pod import TERMINATING, Status, within
from kai.framework.decisions import Evict
from kai.framework.verdict import Code, Reason

MOST_CHANGES = 4
MOST_DECISIONS = 240
"""Upper bound on the repeated decisions for all groups of an outcome together."""
MOST_FOR_ONE = 40
LEAST_FOR_ONE = 6
WORTH = 50_000
"""Budget of read-only commands, in pods and nodes decided again for one group: about a second of processor time."""


@attrs.frozen(kw_only=True)
class Suggestions:
    """Proved changes, the best outcome first."""

    changes: tuple[ChangeTrial, ...] = ()
    all_tried: bool = True
    """False when the limit on trials left some changes untried."""


def allowance(groups: int, size: int = 0) -> int:
    """Return the number of repeated decisions that each of ``groups`` waiting groups may use.

    ``size``: pods plus nodes of the cluster, where the answer must be quick; 0 where it may take long.
    """
    # A decision costs about as much as the cluster is large, so a fixed
    # number of trials would take minutes on a big one.
    quick = WORTH // size if size else MOST_FOR_ONE
    return max(LEAST_FOR_ONE, min(MOST_FOR_ONE, quick, MOST_DECISIONS // max(1, groups)))


def suggest(site: Site, trials: ChangeTrials) -> Suggestions:
    """Return the changes that help: starts without an eviction first, then in the order of trial."""
    best: dict[str, list[ChangeTrial]] = {}
    for family in families(site):
        known = best.get(family.topic)
        if known is not None and _is_harmless(known[-1]):
            continue  # another family for the same topic already succeeded
        if any(_is_whole(trial) for topic in family.instead_of for trial in best.get(topic, ())):
            continue
        found = _proved(family, site, trials, known)
        if found and (known is None or _order(found[-1]) < _order(known[-1])):
            best[family.topic] = found
    changes = sorted((trial for found in best.values() for trial in found), key=_order)[:MOST_CHANGES]
    return Suggestions(changes=tuple(changes), all_tried=not trials.refused)


def _order(trial: ChangeTrial) -> tuple[int, bool]:
    return -trial.result.score, bool(trial.losses)


def _is_whole(trial: ChangeTrial) -> bool:
    return _is_harmless(trial) and not trial.waiting


def _is_harmless(trial: ChangeTrial) -> bool:
    return trial.result is Result.STARTS and not trial.losses


def _proved(family: Family, site: Site, trials: ChangeTrials, known: list[ChangeTrial] | None) -> list[ChangeTrial]:
    """Return the trials of a family to show, the least change first; none if no step helps.

    ``known``: the result of another family for the same topic. A family whose greatest step achieves no more is not
    searched.
    """
    if family.ordered:
        return _least(family, site, trials, known)
    found = _first(family, site, trials)
    return [] if found is None else [found]


def _first(family: Family, site: Site, trials: ChangeTrials) -> ChangeTrial | None:
    """Return the best of several alternatives; stop at the first one that starts the group without an eviction."""
    best: ChangeTrial | None = None
    for step in family.steps:
        trial = trials.run(site, step())
        if trial is None:
            break
        if trial.result.score and (best is None or _order(trial) < _order(best)):
            best = trial
        if best is not None and _is_harmless(best):
            break
    return best


def _least(family: Family, site: Site, trials: ChangeTrials, known: list[ChangeTrial] | None) -> list[ChangeTrial]:
    """Return the least step that gives the group a place, and the least step that does so without an eviction.

    For a group that can never run, the goal is the least step that makes it possible. Where no step starts the group,
    the goal is the least step that does as much as the greatest one.
    Holds: the step before each returned one was tried and does less.
    Cost: two decisions more than the halvings of a binary search, for each of the two.
    """
    tried: dict[int, ChangeTrial] = {}
    last = len(family.steps) - 1
    # The greatest step first: if it does not help, none does, which costs one decision instead of a search.
    best = _tried(family, last, site, trials, tried)
    if best is None or not best.result.score:
        return []
    if known is not None and _order(best) >= _order(known[-1]):
        return []
    possible = stage_of(site.reasons[0].code) is Stage.IMPOSSIBLE
    # A promised place counts as much as a start. Else a larger change that evicts nothing would hide the least one that
    # helps; that one is searched for by itself below.
    goal = Result.WAITS.score if possible else min(best.result.score, Result.HELD.score)
    at = _bisected(family, 0, site, trials, tried, lambda trial: trial.result.score >= goal)
    if at is None:
        return []  # out of trials: only a least step is suggested
    found = [tried[at]]
    if _is_harmless(best) and not _is_harmless(tried[at]):
        more = _bisected(family, at + 1, site, trials, tried, _is_harmless)
        found += [] if more is None else [tried[more]]
    return found


def _bisected(
    family: Family,
    low: int,
    site: Site,
    trials: ChangeTrials,
    tried: dict[int, ChangeTrial],
    reaches: Callable[[ChangeTrial], bool],
) -> int | None:
    """Return the first step from ``low`` on that ``reaches`` the goal, by binary search; None if out of trials.

    Holds: the last step reaches the goal, and so does each step after the first that does.
    """
    high = len(family.steps) - 1
    while low < high:
        middle = (low + high) // 2
        trial = _tried(family, middle, site, trials, tried)
        if trial is None:
            return None
        if reaches(trial):
            high = middle
        else:
            low = middle + 1
    return high


def _tried(
    family: Family, at: int, site: Site, trials: ChangeTrials, tried: dict[int, ChangeTrial]
) -> ChangeTrial | None:
    """Return the trial of one step. Memoized: each step is decided once."""
    if at not in tried:
        trial = trials.run(site, family.steps[at]())
        if trial is None:
            return None
        tried[at] = trial
    return tried[at]


_WAITING = {
    "Gated": "until the gates are removed",
    "NotReady": "until the missing pods exist",
    "PreemptionDelayNotElapsed": "until the delay is over, or running work ends",
    "TriesSpent": "does not help while the sub-groups are nested like this",
    "WaitsForTurn": "until it is its turn",
    "HeldForLeaving": "nothing to do: it starts when they have left",
    "Moves": "nothing to do: pods that move start again on their new nodes",
    "Plugin": "until the plugin works again",
    "TopologyMissing": "does not help while there is no such topology",
    "TopologyLevelMissing": "does not help while the topology has no such level",
    "GpuMemoryUnknown": "does not help while no node has the label",
    "PodRefused": "does not help while its pod is refused",
    "BindRefused": "until the next try, if the bind is not refused again",
    "NoScore": "does not help while the plugin scores nodes like that",
    "NoNodes": "does not help while there are no nodes",
    "NotTried": "until an action tries it",
    "TimeLimit": "until its limit is longer, or its requeue-delay is over",
    "BudgetUsed": "until its next period or until it is raised, or running work ends earlier than it may",
}
_BOUNDS: Final = LIMITS | {"NonPreemptibleOverQuota"}
LOST = "pods that move start again on their new nodes, evicted pods once there is room for them again"
_IN_VAIN = {
    Stage.QUEUE: "does not help while the queues and the job stay as they are",
    Stage.IMPOSSIBLE: "does not help: these nodes could not hold it if they were empty",
    Stage.MATCH: "does not help while the nodes and the job stay as they are",
}


_NOT_TRIED: Final = Suggestions(all_tried=False)
_RUNNING_ENDS: Final = "until running work ends"
_NO_END: Final = "(no end time is known)"
_OTHERS_END: Final = f"{_RUNNING_ENDS} {_NO_END}"
_KNOWN_END: Final = re.compile(r"\(at the latest [^()]*\)")
_PASSED: Final = "; jobs that need less may pass it again"
_ALONE: Final = "does not help: it would wait if all other jobs were gone, too"


def hopes(reason: Reason[str]) -> bool:
    """Return whether other jobs may block a job that waits for ``reason``, so that a trial without them pays."""
    if reason.code in _BOUNDS or reason.code in {"PreemptionDelayNotElapsed", "NoNodeMatches"}:
        return True
    return reason.code not in _WAITING and stage_of(reason.code) not in _IN_VAIN


def competes(reason: Reason[str]) -> bool:
    """Return whether a job waits for room that others occupy, rather than for its queue or for matching nodes."""
    return hopes(reason) and reason.code not in _BOUNDS and reason.code != "NoNodeMatches"


def waiting(site: Site, reason: Reason[str], alone: Alone | None = None, found: Suggestions = _NOT_TRIED) -> str:
    """Return what ends the wait, never how long it takes: the end times of pods are unknown.

    ``alone``: the result for the job if no other group has a pod; None where that was not tried. ``found``: the changes
    that help.
    """
    then = None if alone is None else alone.reason
    if reason.code == "NoNodeMatches":
        # A node also objects for volumes and host ports that other pods hold, and these become free when the pods end.
        return _OTHERS_END if alone is not None and then is None else _IN_VAIN[Stage.MATCH]
    if then is not None and (reason.code not in _BOUNDS or then.code != reason.code):
        said = "" if any(each.text == then.text for each in site.reasons) else f": {then.text}"
        return f"{_ALONE}{said} ({then.code})"
    delay = any(each.change.field == "preemptionDelay" for each in found.changes)
    if reason.code == "PreemptionDelayNotElapsed" and found.all_tried and not delay:
        return f"{_OTHERS_END}; it would wait without the delay, too"
    if reason.code in {Code.EVICTIONS_CAPPED, Code.BUDGET_USED}:
        return _within_cap(reason) if reason.code == Code.EVICTIONS_CAPPED else _of_budget(reason)
    if reason.code not in _BOUNDS:
        return _WAITING.get(reason.code, _IN_VAIN.get(stage_of(reason.code), _OTHERS_END))
    return _for_queue(site, reason, then)


def _for_queue(site: Site, reason: Reason[str], then: Reason[str] | None) -> str:
    """Return the same for a job that a limit or a quota keeps waiting."""
    resource = str(reason.facts["resource"])
    bound, used, asked = (number(reason.facts[key]) for key in ("bound", "used", "requested"))
    # Jobs that were decided after the refusal raise the usage, and victims lower it. The higher figure must fall before
    # a later cycle refuses no more.
    used = max(used, used_against(site, reason))
    if "until" in reason.facts and not 0 <= number(reason.facts["next"]) < used + asked:
        until = clock_text(number(reason.facts["until"]), str(reason.facts.get("timezone", "")))
        whose = "each user of " if reason.code == Code.OVER_USER_LIMIT else ""
        return f"until {until}, when the limit of {whose}{reason.facts['queue']} rises"
    windows = site.cycle.snapshot.queues[int(number(reason.facts["queue_row"]))].windows
    if reason.code == Code.OVER_QUOTA and windows is not None:
        ahead = Ahead.of(site, reason)
        if ahead.waits or "from" in reason.facts:
            return ahead.wait(windows.timezone)
    if then is not None or asked > bound:
        return f"does not help: the job alone asks for more than {quantity(round(bound), resource)}"
    more = quantity(round(used + asked - bound), resource)
    # Preemptible pods do not count against a quota, so their end does not help.
    queue = reason.facts["queue"]
    users = f"{queue} uses" if reason.code in LIMITS else f"non-preemptible pods of {queue} use"
    if "model" in reason.facts:
        more = more.replace(" GPU", f" {reason.facts['model']} GPU")
    return f"until {users} {more} less (no end time is known)"


def usual(reason: Reason[str]) -> str:
    """Return what ends the wait, as far as the reason alone determines it, without further figures."""
    if reason.code in _BOUNDS and "queue" in reason.facts:
        return f"until {reason.facts['queue']} uses less (no end time is known)"
    return _WAITING.get(reason.code, _IN_VAIN.get(stage_of(reason.code), _OTHERS_END))


def passed_again(text: str) -> str:
    """Add to the text about waiting that jobs which need less may overtake the job again."""
    return f"{text}{_PASSED}" if text.startswith(_RUNNING_ENDS) else text


def with_known_end(text: str, site: Site, reason: Reason[str]) -> str:
    """Say in ``text`` when the first of the running jobs ends at the latest, if one of them has a limit.

    Where the job waits for its queue, only jobs in and below that queue count.
    """
    if _NO_END not in text:
        return text
    queue = str(reason.facts["queue"]) if reason.code in _BOUNDS else ""
    first = min(_known_ends(site, queue), default=None)
    if first is None:
        return text
    at, job, source = first
    left = at - site.cycle.snapshot.now
    # The controller enforces a limit that has passed at its next look, seconds later.
    when = f"in {span_text(left)}" if left > 0 else "at any moment"
    return text.replace(_NO_END, f"(at the latest {when}: {job}, {source})")


def _known_ends(site: Site, queue: str) -> Iterator[tuple[float, str, str]]:
    """Yield when running jobs end at the latest, with their names and the field that says so."""
    snapshot, queues = site.cycle.snapshot, {each.metadata.name: each for each in site.objects.queues}
    limited = {}
    for each in site.objects.pod_groups:
        chain = queue_chain(each.spec.queue, queues.get)
        if has_end(each, chain) and (not queue or any(above.metadata.name == queue for above in chain)):
            limited[key_of(each)] = each, chain
    if not limited:
        return  # as in most clusters; the pods are many
    rows = {(group.namespace, group.name): row for row, group in enumerate(snapshot.groups)}
    running = set(snapshot.pod_group[snapshot.pod_status == Status.RUNNING].tolist())
    for key, (group, chain) in limited.items():
        row = rows.get(key)
        if row is None or row not in running:
            continue
        # Where the controller has written no start, as for a group that is
        # only in memory, the scheduler's own note counts.
        since = group.status.running_since or snapshot.groups[row].last_start
        end = None if since is None else bound(group, chain).end(since, group.status.consumed_runtime or 0.0)
        if end is not None:
            yield end.at, "/".join(key), end.limit.source


def in_general(text: str, otherwise: str) -> str:
    """Return ``text``, shortened to a text without figures and names where possible, else ``otherwise``."""
    text = _KNOWN_END.sub(_NO_END, text.removesuffix(_PASSED))
    if text.startswith(_ALONE):
        return _ALONE
    return text if text in _PLAIN else otherwise


_PLAIN: Final = frozenset({*_WAITING.values(), *_IN_VAIN.values(), _OTHERS_END, LOST})


def _of_budget(reason: Reason[str]) -> str:
    """Return what ends the wait of a job that a budget holds back."""
    facts = reason.facts
    named = f"the budget {facts['budget']} of {facts['queue']}"
    if facts["spent"] is None and facts["is_open"]:
        return f"until kai knows how much was used of {named}"
    if number(facts["seconds"]) < 0:
        return "does not help: the job needs a run-time limit, or must be preemptible"
    until, zone = number(facts["until"]), str(facts["timezone"])
    most = number(facts["amount"]) - number(facts["carried"])
    if facts["enforce"] != "stop" and number(facts["requested"]) > max(most, number(facts["amount"])):
        return f"does not help: the job alone may use more than {named} has in a period"
    ending = math.isfinite(until) and (facts["is_open"] or facts["opens"] is not None)
    begins = f"until {date_text(until, zone)}, when {named} begins anew" if ending else ""
    if not facts["is_open"]:
        return begins or f"does not help: {named} is over"
    early = "running work ends earlier than it may"
    if facts["enforce"] == "stop" or not number(facts["committed"]):
        return begins or f"until {named} is raised"
    return f"{begins}, or {early}" if begins else f"until {early}, or {named} is raised"


def _within_cap(reason: Reason[str]) -> str:
    """Return what ends the wait of a job that a cap on evictions holds back: later evictions may make room for it."""
    most, found, before = (number(reason.facts[key]) for key in ("most", "found", "before"))
    cap = str(reason.facts["cap"])
    if not before or found - before > most:
        return f"{_OTHERS_END}; what would be evicted for it alone passes the cap"
    later = "within the hour counts no more" if cap.endswith("_per_hour") else "in this cycle counts no more"
    return f"until what was evicted {later}, or running work ends (no end time is known)"


@attrs.frozen(kw_only=True)
class Eta:
    """Estimated start of a job, with the basis of the estimate."""

    seconds: float
    basis: str
    assumptions: tuple[str, ...]


class Starts:
    """Estimates the start of waiting jobs of one cycle."""

    def __init__(self, cycle: Cycle, objects: ClusterObjects) -> None:
        """Read ``cycle``, which decided on ``objects``."""
        self._cycle = cycle
        self._objects = objects

    def eta(self, group: int, code: str) -> Eta | None:
        """Return when a group starts; None if the cluster does not determine it.

        Only a group held for terminating pods has an estimate: the end of their grace periods.
        """
        if code == Code.HELD_FOR_LEAVING:
            return self._when_left(group)
        return None

    def _when_left(self, group: int) -> Eta | None:
        """Return when the last terminating pod on a group's nodes reaches its deadline; None if one is unknown."""
        snapshot, report = self._cycle.snapshot, self._cycle.report
        held = (snapshot.pod_group == group) & (report.status == Status.PIPELINED)
        # A promise names a node, not the pods that vacate it: the last of all that leave the node counts.
        nodes = set(report.node[held].tolist())
        # Pods evicted in this cycle have no deletion timestamp yet, so their end is unknown.
        leaving = [row for row, status in enumerate(snapshot.pod_status) if within(int(status), TERMINATING)]
        if any(isinstance(each, Evict) and int(snapshot.pod_node[each.pod]) in nodes for each in self._cycle.decisions):
            return None
        ends = self._ends
        known = [ends.get(snapshot.pods[row].key) for row in leaving if int(snapshot.pod_node[row]) in nodes]
        if not known or any(each is None for each in known):
            return None
        seconds = max(each for each in known if each is not None) - snapshot.now
        # Kubernetes sets the deletion timestamp to the end of the grace period. A pod beyond it is held by a finalizer
        # or a lost kubelet, and nothing says until when.
        if seconds < 0:
            return None
        return Eta(
            seconds=seconds,
            basis="grace periods of terminating pods",
            assumptions=("terminating pods are gone when their grace periods end",),
        )

    @cached_property
    def _ends(self) -> Mapping[str, float]:
        """Deletion timestamps of terminating pods, by ``namespace/name``."""
        return {
            f"{pod.metadata.namespace}/{pod.metadata.name}": pod.metadata.deletion_timestamp
            for pod in self._objects.pods
            if pod.metadata.deletion_timestamp is not None
        }
