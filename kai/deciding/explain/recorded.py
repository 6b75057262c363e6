"""The records of a cycle in words: refusals, bounds, and what nodes lack."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from kai.deciding.engine.cycle import CycleReport
from kai.deciding.engine.records import GroupRecord
from kai.deciding.explain import messages
from kai.deciding.explain.code_texts import bound_text, queue_of
from kai.deciding.explain.phrases import counted, number
from kai.facts.kernels import fit
from kai.facts.model.groups import DEFAULT_SUBGROUP, PodGroup
from kai.facts.model.pod import TERMINATING, Pod, Status
from kai.facts.state.snapshot import Snapshot
from kai.framework.verdict import Code, Histogram, NodeReason, Reason

_BOUNDS: Final = (Code.OVER_LIMIT, Code.OVER_USER_LIMIT, Code.OVER_QUOTA, Code.OVER_MODEL_LIMIT, Code.BUDGET_USED)
"""Refusals by a queue, rather than by nodes."""


def missing_topology(reasons: Sequence[Reason]) -> Iterator[Reason[str]]:
    """Yield the topology, or the level of one, that the group requires and that does not exist."""
    for reason in reasons:
        missing = _missing(reason)
        if not missing:
            continue
        text = messages.plain_text(reason)
        text = f"{text[:1].lower()}{text[1:]}"
        if missing == "topology":
            yield Reason("TopologyMissing", text, reason.facts)
        else:
            yield Reason("TopologyLevelMissing", text, reason.facts)


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


def refusal_words(refusals: Sequence[Reason]) -> Reason[str]:
    """Return the objection of each plugin that refuses the pod on every node."""
    objections = [messages.pod_refusal(each) for each in refusals]
    texts = [f"{rule}: {text.rstrip('.')}" for rule, text in objections]
    plugins = tuple(rule for rule, _ in objections)
    return Reason(Code.POD_REFUSED, f"its pod is refused by {'; by '.join(texts)}", {"plugins": plugins})


def refused_pods(refused: Sequence[Pod], pods: int) -> Reason[str]:
    """Return why pods of a group of ``pods`` pods are not scheduled: one exceeds a cap, or its bind was refused."""
    first = next((pod for pod in refused if pod.refused_code == Code.BIND_REFUSED), refused[0])
    facts = {"pod": first.key, "pods": len(refused)}
    if first.refused_code != Code.BIND_REFUSED:
        return Reason(first.refused_code, f"{first.name} exceeds what is scheduled: {first.refused}", facts)
    whose = "" if pods == 1 else f"of {first.name} "
    return Reason(first.refused_code, first.refused.replace("the bind was", f"the bind {whose}was", 1), facts)


def bounds(reasons: Sequence[Reason]) -> Iterator[Reason[str]]:
    """Yield the limits, quotas and budgets among ``reasons``."""
    for code in _BOUNDS:
        for reason in reasons:
            if reason.code is code:
                yield Reason(code, bound_text(reason), {**reason.facts, "queue": queue_of(reason)})


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


def spared(record: GroupRecord) -> Iterator[Reason[str]]:
    """Yield why groups are not evicted although a search considered them."""
    for reason in record.reasons:
        if reason.code in {Code.EVICTIONS_CAPPED, Code.VICTIMS_PROTECTED}:
            yield _engine_words(reason)


def _engine_words(reason: Reason) -> Reason[str]:
    """Return the engine's message as a part of a sentence."""
    text = messages.reason_text(reason)
    return Reason(str(reason.code), f"{text[:1].lower()}{text[1:]}", reason.facts)


def no_room(record: GroupRecord, facts: PodGroup, running: int = 0) -> Iterator[Reason[str]]:
    """Yield the messages of plugins, and what the gang lacks as a whole; ``running`` pods of it have a node."""
    for reason in record.reasons:
        if reason.code is Code.TRIES_SPENT:
            yield _engine_words(reason)
        words = messages.own_words(reason)
        if words is not None and not _missing(reason):
            yield Reason(words.plain_code or words.code, messages.plain_text(reason), reason.facts)
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
            yield Reason("GangDoesNotFit", text, {**reason.facts, "needed": least})


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


def vacated_nodes(snapshot: Snapshot, report: CycleReport) -> frozenset[str]:
    """Return the nodes of pods that terminate or move away. Cost: columns."""
    status, before = report.status, snapshot.pod_node
    terminating = (TERMINATING >> status & 1).astype(np.bool_)
    rows = {*report.node[terminating].tolist(), *before[status == Status.PIPELINED].tolist()}
    return frozenset(snapshot.nodes[row].name for row in rows if row >= 0)
