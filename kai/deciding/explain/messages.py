"""The peer's texts for verdicts in conditions and events, made once, at the edge.

Tools and users read these texts, so they equal the peer's to the character, plural and all. Texts that need only the
facts of one reason are in ``kai.deciding.explain.code_texts``.

Source: the peer's pkg/scheduler/api (unschedule_info, pod_errors, job_errors), and its status updater.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import attrs

from kai.basics.errors import error_text
from kai.basics.parsing import mapping_of, mappings_of
from kai.deciding.engine.records import GroupRecord
from kai.deciding.explain.code_texts import DIVISORS, WRITERS, amount
from kai.facts.kernels import fit
from kai.facts.model.groups import DEFAULT_SUBGROUP
from kai.facts.model.units import mig_slices
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import YIELDED, Cause, Evict
from kai.framework.verdict import Code, Detail, Facts, Histogram, NodeReason, NodeRefusal, Reason, Shortage, Words

NO_NODES = "no nodes with enough resources were found"
SHORT_OF = "node(s) didn't have enough resources: "
NO_PLACE = "node(s) pod number exceeded"
UNABLE_GROUP = "Unable to schedule podgroup"
UNABLE_POD = "Unable to schedule pod"
_HELD_BACK = frozenset({Code.EVICTIONS_CAPPED, Code.VICTIMS_PROTECTED, Code.TRIES_SPENT})
"""Refusals of a group that might otherwise be placed; the objections of nodes are only half of the reason."""

_SHORT = {"cpu": "CPU cores", "memory": "memory", "gpu": "GPUs", "gpu-memory": "GPU memory"}
_REFUSALS = {
    fit.REFUSED_OVER_LIMIT: f"node does not have enough capacity. Reason: {Code.OVER_LIMIT}",
    fit.REFUSED_OVER_QUOTA: f"node does not have enough capacity. Reason: {Code.OVER_QUOTA}",
    fit.REFUSED_OVER_USER: f"node does not have enough capacity. Reason: {Code.OVER_USER_LIMIT}",
    fit.REFUSED_OVER_MODEL: f"node does not have enough capacity. Reason: {Code.OVER_MODEL_LIMIT}",
    fit.REFUSED_OVER_BUDGET: f"node does not have enough capacity. Reason: {Code.BUDGET_USED}",
    fit.REFUSED_LEGACY_MIG: "Legacy MIG jobs cannot be scheduled on node",
    fit.REFUSED_SHARING_ON_DRA: "fractional/shared GPU pods are not yet supported on DRA-only nodes",
    fit.REFUSED_NOT_MIG: "MIG job cannot be scheduled on non-MIG node",
    fit.REFUSED_MIG_SINGLE: "only whole gpu jobs can run on a node with MigStrategy='single'",
    fit.REFUSED_MIG_MIXED: "non MIG jobs cant run on a node with MigStrategy='mixed'",
    fit.REFUSED_MEMORY_UNKNOWN: "node is not a gpu node or the gpu memory count on the node was not synced yet",
    fit.REFUSED_PODS: NO_PLACE,
    fit.REFUSED_MASK: "node(s) didn't match what the pod asks for",
    fit.REFUSED_OUTSIDE: "node(s) outside of the topology domain",
    fit.REFUSED_LEGACY_MIG_PRESENT: "MIG job cannot be scheduled on node with legacy MIG jobs",
}
ABOUT_DEVICES = frozenset(text for text in _REFUSALS.values() if not text.startswith("node"))
"""Texts of kernels about GPUs; their other texts, and those of plugins, are about nodes."""


@attrs.frozen
class Explanation:
    """One reason in a condition on a pod group."""

    reason: str
    message: str
    is_detail: bool = False
    """Whether this is a part of a refusal with a message of its own; the refusal follows."""

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


# -------------------------------------------------------------------------------------------------------------- groups


def explanations(reasons: Iterable[Reason]) -> tuple[Explanation, ...]:
    """Return the ``reasons`` of a condition on a pod group, in the order in which they were found."""
    return tuple(each for reason in reasons for each in _explanations(reason))


def _explanations(reason: Reason) -> Iterator[Explanation]:
    """Yield one reason as the peer does: details with messages of their own come before the refusal."""
    for detail in _details_of(reason):
        yield Explanation(detail.reason, ", ".join(detail.lines), is_detail=True)
    for each in models_used_up([reason]):
        yield Explanation(each.code.wire, reason_text(each), is_detail=True)
    yield Explanation(reason.code.wire, reason_text(reason))


def models_used_up(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return the limits of models that keep pods from nodes that have room for them, each once."""
    found: dict[tuple[object, object], Reason] = {}
    for reason in reasons:
        histogram = reason.facts.get("histogram")
        for _, each in histogram.counts if isinstance(histogram, Histogram) else ():
            if each.detail is not None and each.detail.code is Code.OVER_MODEL_LIMIT:
                found.setdefault((each.detail.facts["queue_row"], each.detail.facts["model"]), each.detail)
    return tuple(found.values())


def _details_of(reason: Reason) -> Sequence[Detail]:
    words = own_words(reason)
    if words is None or words.details is None:
        return ()
    found = _made(words.details, reason)
    return found if isinstance(found, Sequence) and all(isinstance(each, Detail) for each in found) else ()


def group_message(reasons: Sequence[Reason]) -> str:
    """Return the message of the condition and of the event on a pod group that waits for ``reasons``."""
    found = explanations(reasons)
    title = found[0].reason if len(found) == 1 else UNABLE_GROUP
    lacking = [line for reason in reasons for each in _details_of(reason) for line in each.lines]
    counts = Counter(lacking + [reason_text(reason) for reason in reasons])
    lines = sorted(message if count == 1 else f"{count} {message}" for message, count in counts.items())
    return f"{title}: {_joined(lines)}" if lines else title


def detailed_group_message(reasons: Sequence[Reason]) -> str:
    """Return `group_message` in the form with a line for each reason."""
    found = explanations(reasons)
    title = found[0].reason if len(found) == 1 else UNABLE_GROUP
    lines = [f"<{each.subject}>: {', '.join(each.lines)}" for reason in reasons for each in _details_of(reason)]
    return _in_lines(title, lines + [reason_text(reason) for reason in reasons])


def pod_message(record: GroupRecord | None, pod: int, *, detailed: bool = False) -> str:
    """Return the message of the condition and of the event on a pending pod.

    ``detailed``: with a line for each node.
    """
    if record is not None and any(reason.code in _HELD_BACK for reason in record.reasons):
        return detailed_group_message(record.reasons) if detailed else group_message(record.reasons)
    if record is not None and pod in record.pods:
        facts = record.pods[pod].facts
        return detailed_fit_message(facts) if detailed else fit_message(facts)
    if record is not None and record.reasons:
        return group_message(record.reasons)
    return UNABLE_POD


def own_words(reason: Reason) -> Words | None:
    """Return the ``Words`` of the plugin that refused; None if the code is the engine's."""
    return reason.code if isinstance(reason.code, Words) else None


def reason_text(reason: Reason) -> str:
    """Return the peer's message for one reason."""
    if isinstance(reason.code, Words):
        return _own_text(reason.code.text, reason)
    write = _no_node if reason.code == Code.NO_NODE else WRITERS.get(reason.code)
    if write is not None:
        return write(reason.facts)
    return str(reason.facts.get("text") or reason.facts.get("rule") or reason.code)


def plain_text(reason: Reason) -> str:
    """Return the plain line of the plugin that refused for ``reason``."""
    words = reason.code
    return _own_text(words.plain or words.text, reason) if isinstance(words, Words) else reason_text(reason)


def _own_text(write: Callable[[Facts], object], reason: Reason) -> str:
    """Return the text of a plugin's function for ``reason``, or a note that the text is unusable."""
    text = _made(write, reason)
    if isinstance(text, str):
        return text
    found = error_text(text) if isinstance(text, Exception) else f"it returned {type(text).__name__}, expected str"
    return f"refused; the plugin's text of {reason.code.value} cannot be made: {found}"


def _made(write: Callable[[Facts], object], reason: Reason) -> object:
    """Return the result of a plugin's function for the facts of ``reason``, or the exception that it raises.

    Texts are made after all decisions: an error in one must not cost the cycle or the texts of other groups.
    """
    try:
        return write(reason.facts)
    except Exception as error:  # noqa: BLE001 - a plugin's function may raise anything
        return error


def _no_node(facts: Facts) -> str:
    why = fit_message(facts)
    if not facts.get("gang") or facts.get("satisfied"):
        return f"Resources were not found for pod {facts.get('pod', '')} due to: {why}"
    placed, minimum = facts.get("placed", 0), facts.get("minimum", 0)
    if facts.get("single_leaf"):
        return (
            f"Resources were found for {placed} pods while {minimum} are required for gang scheduling. "
            f"Additional pods cannot be scheduled due to: {why}"
        )
    return (
        f"Resources were found for {placed} pods from all sub-groups while sub-group {facts.get('subgroup', '')} "
        f"requires {minimum} pods for gang scheduling. "
        f"Additional pods cannot be scheduled in this sub-group due to: {why}"
    )


# --------------------------------------------------------------------------------------------------------------- nodes


def fit_message(facts: Facts) -> str:
    """Return why a pod fits no node: what refused it everywhere, or the histogram of what each node objected to."""
    refusals = facts.get("refusals")
    if isinstance(refusals, tuple) and refusals:
        return _prefilter(str(facts.get("pod", "")), [reason for reason in refusals if isinstance(reason, Reason)])
    histogram = facts.get("histogram")
    return histogram_text(histogram) if isinstance(histogram, Histogram) else UNABLE_POD


def detailed_fit_message(facts: Facts) -> str:
    """Return `fit_message` in the form with a line for each node."""
    histogram = facts.get("histogram")
    if not isinstance(histogram, Histogram):
        return _in_lines(fit_message(facts), ())
    lines = [f"<{each.node}>: {', '.join(_details(each, together=histogram.together))}" for each in histogram.by_node]
    return _in_lines(NO_NODES, lines)


def _details(refusal: NodeRefusal, *, together: bool) -> Iterator[str]:
    for reason, numbers in refusal.reasons:
        yield node_text(reason) if numbers is None else _shortage(reason, numbers, together=together)


def _shortage(reason: NodeReason, numbers: Shortage, *, together: bool) -> str:
    """Return the shortage of one node. If pods start together, no single pod is the one that has no room."""
    name = _SHORT.get(reason.subject, reason.subject)
    if together:
        return f"Node didn't have enough resources: {name}, taking all considerations into account"
    if reason.subject == "gpu-memory":
        return (
            f"Node didn't have enough resources: Each gpu on the node has a gpu memory capacity of "
            f"{int(numbers.capacity)} Mib. {int(numbers.requested)} Mib of gpu memory has been requested."
        )
    if reason.subject in DIVISORS:
        texts = [amount(each, reason.subject) for each in (numbers.requested, numbers.used, numbers.capacity)]
        return "Node didn't have enough resources: {}, requested: {}, used: {}, capacity: {}".format(name, *texts)
    whole = [int(each) for each in (numbers.requested, numbers.used, numbers.capacity)]
    return "Node didn't have enough resource: {}, requested: {}, used: {}, capacity: {}".format(name, *whole)


def _in_lines(title: str, lines: Iterable[str]) -> str:
    return f"\n{title}." + "".join(sorted(f"\n{line}." for line in lines))


def _prefilter(pod: str, reasons: Sequence[Reason]) -> str:
    lines = "".join(f"{rule}: {text}.\n" for rule, text in map(pod_refusal, reasons))
    return f"Scheduling conditions were not met for pod {pod}:\n{lines}"


def pod_refusal(reason: Reason) -> tuple[str, str]:
    """Return who refuses a pod on every node, and why: a rule of the engine, or a plugin's own code."""
    if isinstance(reason.code, Words):
        return reason.code.value, plain_text(reason)
    return str(reason.facts.get("rule", reason.code)), str(reason.facts.get("text", ""))


def histogram_text(histogram: Histogram) -> str:
    """Return how many nodes have which objection. Lines are sorted as text, counts included."""
    counts: Counter[str] = Counter()
    for count, reason in histogram.counts:
        counts[node_text(reason)] += count
    lines = sorted(f"{count} {text}" for text, count in counts.items())
    return f"{NO_NODES}: {_joined(lines)}" if lines else NO_NODES


def node_text(reason: NodeReason) -> str:
    """Return why one node refused a pod."""
    if reason.text:
        return reason.text
    if reason.code == fit.REFUSED_NOT_READY:
        if reason.subject == "unschedulable":
            return "node is unschedulable"
        if reason.subject == "deleting":
            return "node is being deleted"
        return f"node has {'NotReady' if reason.subject == 'Ready' else reason.subject} condition"
    if reason.detail is not None:
        return f"{_REFUSALS[reason.code]}, Details: {reason_text(reason.detail)}"
    if reason.code < fit.SHORT_OF:
        return _REFUSALS.get(reason.code, UNABLE_POD)
    if mig_slices(reason.subject) != (0, 0) or "/mig-" in reason.subject:
        return f"node(s) didn't have enough of mig profile: {reason.subject}"
    return f"{SHORT_OF}{_SHORT.get(reason.subject, reason.subject)}"


def _joined(lines: Sequence[str]) -> str:
    return ". \n".join(lines) + "."


# ----------------------------------------------------------------------------------------------- evictions and promises


_MADE_WAY: Final = Cause(
    Cause.PREEMPT.name,
    rule=YIELDED,
    event="Pod {pod} made way for workload {group}: it yields, and has run for longer than it wished",
)


def eviction_message(evict: Evict, snapshot: Snapshot, *, is_hidden: bool = False) -> str:
    """Return the text of the event about an eviction.

    ``is_hidden``: name the aggressor only by its UID, and of the queues only the victim's.
    """
    pod = snapshot.pods[evict.pod].key
    gainer = snapshot.groups[evict.aggressor] if evict.aggressor >= 0 else None
    group = "" if gainer is None else f"{gainer.uid} of another namespace" if is_hidden else gainer.key
    subgroup = str(evict.facts.get("subgroup", ""))
    facts = {
        "pod": pod,
        "group": group,
        "action": evict.cause.name,
        "rule": evict.rule or "its scheduler gave no reason",
        "minimum": evict.facts.get("minimum", 0),
        "where": f" in sub-group {subgroup}" if subgroup and subgroup != DEFAULT_SUBGROUP else "",
    }
    queues = [evict.facts.get("victim"), None if is_hidden else evict.facts.get("aggressor")]
    cause = _MADE_WAY if evict.cause == Cause.PREEMPT and evict.rule == YIELDED else evict.cause
    model = _model_details(evict.facts, is_hidden=is_hidden)
    return "\n".join([_filled(cause, facts), *map(_queue_details, mappings_of(queues)), *model])


def _filled(cause: Cause, facts: Facts) -> str:
    """Return the event text of ``cause``; the plain text if it has a placeholder that evictions do not know."""
    try:
        return cause.event.format_map(facts)
    except (LookupError, ValueError, AttributeError, TypeError):
        return Cause(cause.name).event.format_map(facts)


def _queue_details(facts: Facts) -> str:
    used, quota, share = (_amounts(facts.get(key)) for key in ("used", "quota", "fair_share"))
    priority = facts.get("priority", 0)
    return (
        f"{facts.get('title', '')} uses <{used}> with a quota of <{quota}>, fair-share of <{share}> "
        f"and queue priority of <{priority}>."
    )


def _model_details(facts: Facts, *, is_hidden: bool) -> Iterator[str]:
    """Yield the sentence about the quota of a GPU model that allowed an eviction; the peer has no such quotas."""
    model = mapping_of(facts, "model")
    if not model:
        return
    said = []
    for side in ("victim",) if is_hidden else ("victim", "aggressor"):
        used, owed = (amount(float(each), "gpu") for each in model[side])
        said.append(f"{mapping_of(facts, side).get('title', '')} used {used} and is owed {owed}")
    whose = " of the other queue" if is_hidden else ""
    yield f"The quota of {model['name']} GPUs{whose} allowed it: {', '.join(said)}."


def _amounts(values: object) -> str:
    cpu, memory, gpu = values if isinstance(values, tuple) else (0.0, 0.0, 0.0)
    return f"GPU: {amount(gpu, 'gpu')}, CPU: {amount(cpu, 'cpu')} (cores), memory: {amount(memory, 'memory')} (GB)"


def pipelined_message(pod: str, node: str) -> str:
    """Return the text of the event about a nominated pod."""
    return f"Pod {pod} was pipelined to node {node}"
