"""Conditions that are already written on a pod group and its pods, as evidence and as kai's own reasons.

A scheduler wrote these conditions, kai or another, possibly long ago, and other programs write conditions on pods too.
Evidence shows each of them in a line, as `kubectl` does, beside the answer that is decided anew.

Reasons translate the conditions of a pod group into kai's codes and texts. kai and KAI-Scheduler write the same
reasons. The figures and messages of a condition allow finer codes; where they do not, the reason of the wire is the
code.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from kai.answers.why.facts import Evidence
from kai.api import names
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup as ApiPodGroup
from kai.api.scheduling.pod_group import PodGroup as Manifest
from kai.api.scheduling.pod_group import QueueDetails, SchedulingCondition, UnschedulableReason
from kai.api.values import instant_text
from kai.basics import parsing
from kai.basics.wording import counted, cut
from kai.deciding.explain.code_texts import bound_text, few_pods_text, tree_text
from kai.deciding.explain.codes import stage_of
from kai.deciding.explain.declared import Declared, gate_text
from kai.deciding.explain.messages import NO_NODES
from kai.deciding.explain.recorded import in_the_way, least_pods, refused_pods
from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.groups import PodGroup
from kai.facts.model.pod import ENDED, Status, within
from kai.facts.model.units import amounts
from kai.facts.state.snapshot import Snapshot
from kai.framework.verdict import Code, Reason

_BOUNDS: Final = {each.value: each for each in (Code.OVER_LIMIT, Code.OVER_QUOTA)}
_GANG: Final = re.compile(r"Resources were found for (\d{1,9}) pods while (\d{1,9}) are required for gang scheduling")
_COUNT: Final = re.compile(r"(\d{1,9}) (.+)")


def newest(source: Manifest) -> SchedulingCondition | None:
    """Return the newest scheduling condition of a group; None if it has none."""
    conditions = [each for each in source.status.scheduling_conditions if each.status != "False"]
    # By the counter that the scheduler raises with each transition: times in objects have whole seconds only.
    return max(conditions, key=lambda each: parsing.signed(each.transition_id) or 0, default=None)


def condition_reasons(source: Manifest) -> tuple[Reason[str], ...]:
    """Return the reasons in the newest condition, the dominant one first."""
    condition = newest(source)
    if condition is None:
        return ()
    if not condition.reasons:
        return (Reason(Code.NO_NODE, _condition_line(condition.message) or "the scheduler has not written why"),)
    found = sorted(map(_reason, condition.reasons), key=lambda reason: stage_of(reason.code))
    # Details of a refusal, such as the shortage of each domain, are written as reasons whose code is a sentence.
    return tuple(each for each in found if " " not in each.code) or tuple(found)


def _reason(reason: UnschedulableReason) -> Reason[str]:
    bound = _BOUNDS.get(reason.reason)
    details = None if reason.details is None else reason.details.queue_details
    if bound is not None and details is not None:
        facts = _bound_facts(bound, details)
        if facts:
            return Reason(bound, bound_text(Reason(code=bound, facts=facts)), facts)
    # The peer has one code for all that nodes refuse. Only its message tells a gang
    # that fits in part from a pod that fits nowhere.
    gang = _GANG.search(reason.message)
    if gang is not None:
        placed, needed = int(gang[1]), int(gang[2])
        fit = {0: "none fits", 1: "only 1 fits"}.get(placed, f"only {placed} fit")
        said = in_the_way(_said_of_nodes(reason.message[gang.end() :]))
        text = f"its {needed} pods must start together, and {fit} now" + (f": {said}" if said else "")
        return Reason("GangDoesNotFit", text, {"placed": placed, "needed": needed})
    return Reason(reason.reason or Code.NO_NODE, _condition_line(reason.message))


def _said_of_nodes(message: str) -> Mapping[str, int]:
    """Return the number of nodes by objection to further pods of a gang; empty if the message lists each node."""
    _, found, lines = message.partition(f"{NO_NODES}: ")
    counts = (_COUNT.fullmatch(line) for line in lines.rstrip(".").split(". \n")) if found else ()
    return {each[2]: int(each[1]) for each in counts if each is not None}


def _bound_facts(code: Code, details: QueueDetails) -> Mapping[str, object]:
    """Return the resource in which a queue would exceed its limit or quota, in axis units; empty if there is none."""
    limits = code is Code.OVER_LIMIT
    group = details.pod_group_requested_resources
    bound, used, asked = (
        amounts(tuple(each.items()))
        for each in (
            details.queue_resource_limits if limits else details.queue_deserved_resources,
            details.queue_allocated_resources if limits else details.queue_allocated_non_preemptible_resources,
            group if limits else details.pod_group_requested_non_preemptible_resources or group,
        )
    )
    # The condition does not name the resource: it is one that would be exceeded, GPUs first.
    for resource in ("gpu", "cpu", "memory"):
        most, has, wants = (each.get(resource, 0) for each in (bound, used, asked))
        if resource in bound and most >= 0 and wants and has + wants > most:
            return {"queue": details.name, "resource": resource, "bound": most, "used": has, "requested": wants}
    return {}


def bound_evidence(reason: Reason[str]) -> Iterator[Evidence]:
    """Yield the figures of a limit or quota that blocks the job."""
    facts = reason.facts
    queue, resource = facts.get("queue"), facts.get("resource")
    figures = [facts.get(key) for key in ("bound", "used", "requested")]
    if reason.code not in _BOUNDS or not isinstance(queue, str):
        return
    unit = GPU_UNIT if resource == "gpu" else 1
    bound, used, asked = (each / unit if isinstance(each, int) else 0.0 for each in figures)
    name = "limit" if reason.code == Code.OVER_LIMIT else "quota"
    text = f"{name} {bound:.12g}   used {used:.12g}   this job {asked:.12g}   over by {used + asked - bound:.12g}"
    excess = used + asked - bound
    values = {"queue": queue, "resource": resource, name: bound, "used": used, "requested": asked, "excess": excess}
    yield Evidence(label=queue, text=text, values=values)


def unready(group: PodGroup, snapshot: Snapshot, pods: Sequence[int], declared: Declared) -> Iterator[Reason[str]]:
    """Yield the reasons in the group and its pods that keep the scheduler from trying the group."""
    if group.held:
        yield Reason(group.held_code, group.held)
    if group.tree_error:
        yield Reason("SubGroupsInvalid", tree_text(group.tree_error))
    alive = [pod for pod in pods if not within(int(snapshot.pod_status[pod]), ENDED)]
    gated = [snapshot.pods[pod].key for pod in alive if snapshot.pod_status[pod] == Status.GATED]
    refused = [snapshot.pods[pod] for pod in alive if snapshot.pods[pod].refused]
    needed = least_pods(group)
    if refused:
        yield refused_pods(refused, len(alive))
    # Gates are the reason only where the group would be complete without them; else pods are missing as well.
    elif gated and (len(alive) - len(gated) < needed <= len(alive) or len(gated) == len(alive)):
        yield Reason("Gated", gate_text(gated, len(alive), declared))
    elif len(alive) < needed:
        yield Reason(Code.NOT_READY, few_pods_text(needed, len(alive), len(pods) - len(alive)))


def _condition_line(message: str) -> str:
    """Return a condition message as one line without a full stop."""
    return " ".join(message.split()).rstrip(". ")


_LONGEST: Final = 160
_MOST: Final = 3
_READY: Final = frozenset({"Initialized", "Ready", "ContainersReady", "PodReadyToStartContainers"})
"""Conditions that follow from the missing node, so that they say nothing new about a waiting pod."""


def written(group: ApiPodGroup, waiting: Iterable[Pod]) -> Iterator[Evidence]:
    """Yield the newest condition of a group, and the conditions of its waiting pods that say something else."""
    condition, message = newest(group), ""
    if condition is not None:
        message = _line(condition.message or "; ".join(f"{each.reason}: {each.message}" for each in condition.reasons))
        changed = condition.last_transition_time
        pool = f"node pool {condition.node_pool}, " if condition.node_pool not in ("", "default") else ""
        # An absolute time: an age would change between two calls, and between the service and a command.
        when = "" if changed is None else f" ({pool}written at {instant_text(changed)})"
        values = {"message": message, "nodePool": condition.node_pool or None}
        yield Evidence(label="condition", text=f"{_short(message)}{when}", values=values)
    said = Counter(text for pod in waiting for text in _of_pod(pod, message))
    for text, count in list(said.items())[:_MOST]:
        yield Evidence(
            label=f"on {counted(count, 'pod')}", text=_short(text), values={"pods": count, "condition": text}
        )


def _of_pod(pod: Pod, message: str) -> Iterator[str]:
    """Yield the conditions that hold a pod back, unless they repeat the message of its group."""
    for each in pod.status.conditions:
        text = _line(each.message)
        if each.type in _READY or (each.type == names.POD_SCHEDULED_CONDITION and each.status != "False"):
            continue
        # The scheduler writes the message of the group on its pods, too, and each line would repeat it.
        if not (text and message and text.rstrip(". ") in message):
            reason = f", {each.reason}" if each.reason else ""
            yield f"{each.type} {each.status}{reason}: {text}" if text else f"{each.type} {each.status}{reason}"


def _line(message: str) -> str:
    return " ".join(message.split())


def _short(text: str) -> str:
    return cut(text, _LONGEST)
