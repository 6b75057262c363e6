"""The records of a cycle in words: refusals, bounds, and what nodes lack."""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from kai.basics.schedules import clock_text
from kai.deciding.engine.cycle import CycleReport
from kai.deciding.engine.records import GroupRecord
from kai.deciding.explain import messages
from kai.deciding.explain.code_texts import budget_text, delay_of
from kai.deciding.explain.phrases import Words, counted, listed, number, quantity
from kai.facts.kernels import fit
from kai.facts.model.groups import DEFAULT_SUBGROUP, PodGroup
from kai.facts.model.pod import TERMINATING, Pod, Status
from kai.facts.state.snapshot import Snapshot
from kai.framework.verdict import Code, Facts, Histogram, NodeReason, Reason

_BOUNDS: Final = (Code.OVER_LIMIT, Code.OVER_QUOTA, Code.OVER_MODEL_LIMIT, Code.BUDGET_USED)
"""Refusals by a queue, rather than by nodes."""


def missing_topology(reasons: Sequence[Reason]) -> Iterator[Words]:
    """Yield the topology, or the level of one, that the group requires and that does not exist."""
    for reason in reasons:
        missing = _missing(reason)
        if not missing:
            continue
        text = messages.plain_text(reason)
        text = f"{text[:1].lower()}{text[1:]}"
        if missing == "topology":
            yield Words("TopologyMissing", text, reason.facts)
        else:
            yield Words("TopologyLevelMissing", text, reason.facts)


def metric_code(reason: Reason) -> str:
    """Return the code of a reason for metrics, as far as it is known without a call to plugins."""
    missing, words = _missing(reason), messages.own_words(reason)
    if missing:
        return "TopologyMissing" if missing == "topology" else "TopologyLevelMissing"
    if messages.models_used_up([reason]):
        return Code.OVER_MODEL_LIMIT.value
    return reason.code.value if words is None else words.plain_code or words.code


def _missing(reason: Reason) -> str:
    """Return the part of a topology that a plugin reports as missing, "" for any other reason."""
    missing = reason.facts.get("missing")
    return missing if messages.own_words(reason) is not None and missing in ("topology", "level") else ""


def refusal_words(refusals: Sequence[Reason]) -> Words:
    """Return the objection of each plugin that refuses the pod on every node."""
    objections = [messages.pod_refusal(each) for each in refusals]
    texts = [f"{rule}: {text.rstrip('.')}" for rule, text in objections]
    plugins = tuple(rule for rule, _ in objections)
    return Words(Code.POD_REFUSED, f"its pod is refused by {'; by '.join(texts)}", {"plugins": plugins})


def refused_pods(refused: Sequence[Pod], pods: int) -> Words:
    """Return why pods of a group of ``pods`` pods are not scheduled: one exceeds a cap, or its bind was refused."""
    first = next((pod for pod in refused if pod.refused_code == Code.BIND_REFUSED), refused[0])
    facts = {"pod": first.key, "pods": len(refused)}
    if first.refused_code != Code.BIND_REFUSED:
        return Words(first.refused_code, f"{first.name} exceeds what is scheduled: {first.refused}", facts)
    whose = "" if pods == 1 else f"of {first.name} "
    return Words(first.refused_code, first.refused.replace("the bind was", f"the bind {whose}was", 1), facts)


def share_text(numbers: Mapping[str, Any]) -> str:
    """Return why a queue may not reclaim: what it would use, and its share."""
    queue, resource = numbers["queue"], numbers["resource"]
    would, share = numbers["used"] + numbers["requested"], numbers["fair_share"]
    pods = numbers["pods"]
    what = f"with {'one more pod' if pods == 1 else f'{pods} more pods'}" if numbers["more"] else "with this job"
    if would <= share:
        return (
            f"queue {queue} could not take from others when it was tried; its fair share is {quantity(share, resource)}"
        )
    passed, limit = f"fair share of {quantity(share, resource)}", numbers.get("limit", -1)
    if 0 <= limit < would:
        amounts = (share,) if limit == share else (share, limit)
        passed = f"fair share and limit of {' and '.join(quantity(each, resource) for each in amounts)}"
    return (
        f"{what} queue {queue} would use {quantity(would, resource)}, more than its {passed}, "
        "so it may take none from others"
    )


def bounds(reasons: Sequence[Reason]) -> Iterator[Words]:
    """Yield the limits, quotas and budgets among ``reasons``."""
    for code in _BOUNDS:
        for reason in reasons:
            if reason.code is code:
                yield Words(code, bound_text(reason), {**reason.facts, "queue": _queue_of(reason)})


def _queue_of(reason: Reason) -> object:
    """Return the name of the queue that would exceed a bound; the peer's conditions have only its title."""
    return reason.facts.get("queue_name", reason.facts["queue"])


def bound_text(reason: Reason) -> str:
    """Return which limit, quota or budget a queue would exceed."""
    if reason.code is Code.BUDGET_USED:
        return budget_text({**reason.facts, "queue": _queue_of(reason)})
    resource = str(reason.facts["resource"])
    if reason.code is Code.OVER_MODEL_LIMIT:
        return _model_text(reason.facts)
    bound, used, requested = (number(reason.facts[key]) for key in ("bound", "used", "requested"))
    queue, would = _queue_of(reason), quantity(round(used + requested), resource)
    most = quantity(round(bound), resource) + clock_words(reason.facts)
    if reason.code is Code.OVER_LIMIT:
        return f"queue {queue} may not use more than {most}, and this job would make it {would}"
    return f"non-preemptible pods of {queue} may use {most}, and this job would make it {would}"


def _model_text(facts: Facts) -> str:
    """Return which limit of a model a queue would exceed."""
    bound, used, requested = (round(number(facts[key])) for key in ("bound", "used", "requested"))
    queue, model = facts.get("queue_name", facts["queue"]), facts["model"]
    most = quantity(bound, "gpu").replace(" GPU", f" {model} GPU")
    return f"queue {queue} may not use more than {most}, and this job would make it {quantity(used + requested, 'gpu')}"


def clock_words(facts: Facts) -> str:
    """Return from when or until when the clock has it that a bound holds, after a blank; "" for one that stays."""
    zone = str(facts.get("timezone", ""))
    if "until" in facts:
        return f" until {clock_text(number(facts['until']), zone)}"
    return f" from {clock_text(number(facts['from']), zone)} on" if "from" in facts else ""


_LACKED = {"": "places for pods", "pods": "places for pods", "cpu": "CPU", "gpu": "GPUs", "gpu-memory": "GPU memory"}


def lacking_of(record: GroupRecord) -> Mapping[str, int]:
    """Return how many nodes lack which resource for the first pod that no node takes."""
    out: dict[str, int] = {}
    for count, reason in _counts(record):
        if reason.code >= fit.SHORT_OF or reason.code == fit.REFUSED_PODS:
            name = _LACKED.get(reason.subject, reason.subject)
            out[name] = out.get(name, 0) + count
    return out


def said_of_nodes(record: GroupRecord) -> Mapping[str, int]:
    """Return how many nodes plugins or queue bounds refuse, by text, for the first pod that no node takes."""
    out: dict[str, int] = {}
    for count, reason in _counts(record):
        if reason.code == fit.REFUSED_HOOK:
            out[reason.text] = out.get(reason.text, 0) + count
        elif reason.detail is not None and reason.detail.code in _BOUNDS:
            text = f"where {bound_text(reason.detail)}"
            out[text] = out.get(text, 0) + count
    return out


def _counts(record: GroupRecord) -> Sequence[tuple[int, NodeReason]]:
    found = _histogram_of(record.reasons)
    return () if found is None else found.counts


def _histogram_of(reasons: Iterable[Reason]) -> Histogram | None:
    return whole_histogram(each.facts.get("histogram") for each in reasons)


def whole_histogram(found: Iterable[object]) -> Histogram | None:
    """Return the histogram over most nodes; a histogram of a tried domain covers only that."""
    histograms = [each for each in found if isinstance(each, Histogram)]
    return max(histograms, key=lambda each: each.nodes, default=None)


def spared(record: GroupRecord) -> Iterator[Words]:
    """Yield why groups are not evicted although a search considered them."""
    for reason in record.reasons:
        if reason.code in {Code.EVICTIONS_CAPPED, Code.VICTIMS_PROTECTED}:
            yield _engine_words(reason)


def _engine_words(reason: Reason) -> Words:
    """Return the engine's message as a part of a sentence."""
    text = messages.reason_text(reason)
    return Words(str(reason.code), f"{text[:1].lower()}{text[1:]}", reason.facts)


def no_room(record: GroupRecord, facts: PodGroup, running: int = 0) -> Iterator[Words]:
    """Yield the messages of plugins, and what the gang lacks as a whole; ``running`` pods of it have a node."""
    for reason in record.reasons:
        if reason.code is Code.TRIES_SPENT:
            yield _engine_words(reason)
        words = messages.own_words(reason)
        if words is not None and not _missing(reason):
            yield Words(words.plain_code or words.code, messages.plain_text(reason), reason.facts)
    needed = least_pods(facts)
    for reason in record.reasons:
        if reason.code is Code.NO_NODE and reason.facts.get("gang") and not reason.facts.get("satisfied"):
            placed = reason.facts.get("placed", 0)
            fit = {0: "none fits", 1: "only 1 fits"}.get(int(number(placed)), f"only {placed} fit")
            least, whose, run = needed, f"its {needed} pods", running
            if reason.facts.get("extra"):
                least = int(number(reason.facts.get("minimum")))
                whose = f"the {least} pods of its sub-group {reason.facts.get('subgroup')}"
                run = int(number(reason.facts.get("running")))
            text = f"{whose} must start together, and {fit} now"
            if run:
                more = {0: "no other fits", 1: "only 1 more fits"}.get(int(number(placed)), f"only {placed} more fit")
                text = f"{whose} must run together, {run} {'does' if run == 1 else 'do'}, and {more} now"
            part = reason.facts.get("subgroup")
            found = _histogram_of(each for each in record.reasons if each.facts.get("subgroup") == part)
            said = in_the_way({} if found is None else _said_by(found))
            text += f": {said}" if said else ""
            yield Words("GangDoesNotFit", text, {**reason.facts, "needed": least})


def _said_by(histogram: Histogram) -> Mapping[str, int]:
    """Return how many nodes have which objection, in the order of the histogram."""
    out: dict[str, int] = {}
    for count, reason in histogram.counts:
        bound = reason.detail is not None and reason.detail.code in _BOUNDS
        text = f"where {bound_text(reason.detail)}" if bound and reason.detail else messages.node_text(reason)
        out[text] = out.get(text, 0) + count
    return out


def in_the_way(said: Mapping[str, int]) -> str:
    """Return what excludes nodes for the next pod of a gang, with the number of nodes for each; "" if nothing does."""
    return ", ".join(_said_of(count, text) for text, count in said.items())


def _said_of(count: int, text: str) -> str:
    """Return a text with its number of nodes; kernels' texts on amounts or devices are no predicates of nodes."""
    lacked = "pods" if text == messages.NO_PLACE else text.removeprefix(messages.SHORT_OF)
    if lacked != text:
        return counted(count, f"{'lacks' if count == 1 else 'lack'} {_LACKED.get(lacked, lacked)}")
    return counted(count, f"refused it: {text}" if text in messages.ABOUT_DEVICES else text)


def least_pods(facts: PodGroup) -> int:
    """Return how many pods must start together: over all leaves, or over the fewest that the tree requires."""
    minimum = {at: subgroup.minimum or 0 for at, subgroup in enumerate(facts.subgroups) if subgroup.leaf}
    below: dict[int, list[int]] = {}
    for at in reversed(range(len(facts.subgroups))):  # children before their parents
        subgroup = facts.subgroups[at]
        if not subgroup.leaf:
            fewest = sorted(below.pop(at, ()))
            minimum[at] = sum(fewest if subgroup.minimum is None else fewest[: subgroup.minimum])
        below.setdefault(subgroup.parent, []).append(minimum[at])
    return minimum.get(0, 0)


def short_leaves(facts: PodGroup, counts: Mapping[int, int]) -> list[tuple[str, int, int]]:
    """Return the sub-groups that lack pods: name, pods needed, existing pods; none if enough others are ready.

    ``counts``: pods by the row of their sub-group.
    """
    children, satisfied, short = Counter(each.parent for each in facts.subgroups), Counter[int](), []
    enough = True
    for at in reversed(range(len(facts.subgroups))):  # children before their parents
        each = facts.subgroups[at]
        there, least = (counts.get(at, 0), 1) if each.leaf else (satisfied[at], children[at])
        least = least if each.minimum is None else each.minimum
        enough = there >= least
        satisfied[each.parent] += enough
        if each.leaf and not enough and each.name != DEFAULT_SUBGROUP:
            short.append((each.name, least, there))
    return [] if enough else sorted(short)  # the last one is the root


def few_pods_text(least: int, there: int, ended: int = 0, *, name: str = "") -> str:
    """Return that a group, or its sub-group ``name``, has too few pods; ended pods do not count."""
    where = f" in its sub-group {name}" if name else ""
    others = {0: "", 1: "; 1 other has ended"}.get(ended, f"; {ended} others have ended")
    return f"only {there} of the {least} pods that must start together exist{where}{others}"


def sub_groups_asked(facts: PodGroup) -> str:
    """Return where more sub-groups must start together than exist, "" if nowhere."""
    children = Counter(each.parent for each in facts.subgroups)
    for at, each in enumerate(facts.subgroups):
        if not each.leaf and each.minimum is not None and each.minimum > children[at]:
            field = f"minSubGroup of sub-group {each.name}" if each.name else "minSubGroup"
            return f"{field}: found {each.minimum}, expected at most {children[at]}, the number of its sub-groups"
    return ""


def delay_text(facts: Mapping[str, object]) -> str:
    """Return until when the group itself asked not to evict others."""
    window, until = delay_of(facts)
    return f"no room; it asked for a preemption delay of {window}, and may evict no others before {until}"


def vacated_nodes(snapshot: Snapshot, report: CycleReport) -> frozenset[str]:
    """Return the nodes of pods that terminate or move away. Cost: columns."""
    status, before = report.status, snapshot.pod_node
    terminating = (TERMINATING >> status & 1).astype(np.bool_)
    rows = {*report.node[terminating].tolist(), *before[status == Status.PIPELINED].tolist()}
    return frozenset(snapshot.nodes[row].name for row in rows if row >= 0)


def held_text(nodes: Sequence[str], vacated: Container[str]) -> str:
    """Return where a group will start; pods still have to leave those of its ``nodes`` that are ``vacated``."""
    still = [node for node in nodes if node in vacated]
    what, are = (f"its place on {nodes[0]}", "is") if len(nodes) == 1 else (f"its places on {listed(nodes)}", "are")
    if len(still) == len(nodes):
        return f"{what} {are} being vacated by pods that are terminating"
    if still:
        return f"{what} {are} held until pods that are terminating have left {listed(still)}"
    return f"{what} {are} held until the pods have left that are evicted or moved in this cycle"
