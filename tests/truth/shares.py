"""Claims about fair shares: what a queue is entitled to, what would give it more, and what it may not take."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import partial

from kai.answers.outcomes.entitlement import Entitlement, entitlement
from kai.cli.console import Console
from kai.cli.explaining.whyqueue import QueueAnswer
from kai.facts.model.axis import GPU, GPU_UNIT
from kai.facts.model.pod import GpuKind, Status
from kai.framework.decisions import Cause
from tests.truth.trial import Object, Trial, group_of

Claim = Callable[[Trial], Iterator[str]]
_CLOSE = 1e-6


def a_share_that_is_raised_is_no_reason_any_more(trial: Trial) -> Iterator[str]:
    """``queue q would use W, more than its fair share``: with a quota of W the job does not wait for that."""
    units = {"gpu": 1000.0, "cpu": 1.0, "memory": 1_000_000.0}
    for job in trial.jobs.values():
        words = job.waiting_reason
        if words is None or words.code != "AtFairShare" or "could not take" in words.text:
            continue
        facts = words.facts
        row, resource = int(str(facts["queue_row"])), str(facts["resource"])
        queue = trial.outcome.last.snapshot.queues[row].name
        would = float(str(facts["used"])) + float(str(facts["requested"]))
        if would <= float(str(facts["fair_share"])):
            yield f"{job.name}: {words.text}"
        changed = trial.with_bound(queue, "quota", resource, would / units[resource])
        if "and limit of" in words.text:
            changed = changed.with_bound(queue, "limit", resource, would / units[resource])
        after = changed.jobs[job.name].waiting_reason
        if after is None or after.code != words.code or after.facts["resource"] != resource:
            continue
        if float(str(after.facts["used"])) <= float(str(facts["used"])):
            yield f"{job.name}: {words.text}; raised to that, it waits: {after.text}"


def a_queue_wants_what_its_pods_that_wait_ask_for(trial: Trial) -> Iterator[str]:
    """``q wants N more``: its pods that wait, or lose their places, ask for N whole GPUs or parts of them."""
    cycle = trial.outcome.last
    snapshot = cycle.snapshot
    asked = snapshot.requests @ snapshot.axis.gpu_weights()
    kinds = {int(shape) for shape, facts in enumerate(snapshot.shapes) if facts.gpu.kind is GpuKind.MEMORY}
    if kinds or any(facts.gpu.claimed for facts in snapshot.shapes):
        return  # what these ask for depends on their node
    more: Counter[str] = Counter()
    for pod, group in enumerate(snapshot.pod_group.tolist()):
        before, after = int(snapshot.pod_status[pod]), int(cycle.report.status[pod])
        if group >= 0 and (after == Status.PENDING or (after == Status.RELEASING and before != Status.RELEASING)):
            more[snapshot.groups[group].queue] += int(asked[snapshot.pod_shape[pod]])
    for queue in trial.seen.queues:
        share = queue.shares[GPU]
        if queue.leaf and abs(share.wanted - share.used - more[queue.name]) > _CLOSE:
            asks = more[queue.name]
            yield f"{queue.name}: wants {share.wanted}, uses {share.used}, and pods that wait ask for {asks}"


def who_loses_is_above_what_it_is_said_to_be(trial: Trial) -> Iterator[str]:
    """``because A used U, fair share F``: an A that loses by reclaim used more than F, or than its quota."""
    for each in trial.told.evictions:
        if each.cause != Cause.RECLAIM.name or not each.because:
            continue
        match = re.search(r" used (.*?)(?: GPUs?)?(?:, quota (.*?))?, fair share (.*)$", each.because[0])
        if match is None:
            yield f"{each.pod}: {each.because}"
        elif re.fullmatch(r"[\d.]+", match[1]):
            bounds = [float(bound) for bound in match.groups()[1:] if bound and bound != "unlimited"]
            if not any(float(match[1]) > bound for bound in bounds):
                yield f"{each.pod}: {each.because}"


def a_division_adds_up(trial: Trial) -> Iterator[str]:
    """What is divided is what ready nodes have; steps lead to the share, and formulas to what steps give."""
    for found in _divisions(trial):
        unit = _unit(found)
        have = None if found.parent or found.resource != "gpu" else _ready_gpus(trial)
        if have is not None and abs(found.total - have) > _CLOSE:
            yield f"{found.queue}: {found.total} are divided, and nodes have {have}"
        if abs(sum(step.given for step in found.steps) - found.share) > _CLOSE:
            yield f"{found.queue}: {found.steps}, and its share is {found.share}"
        surplus = found.steps[1]
        if (match := re.fullmatch(r"([\d.e+-]+) of ([\d.e+-]+) weights", surplus.formula)) and not found.with_history:
            least = surplus.total * float(match[1]) / float(match[2]) if float(match[2]) else 0.0
            if found.share < found.asks - _CLOSE and found.own.limit != found.share and surplus.given < least - unit:
                yield f"{found.queue}: {surplus.given} of {surplus.total} for {surplus.formula}"


def nothing_is_left_where_it_is_said(trial: Trial) -> Iterator[str]:
    """``nothing is left to share out``: the siblings have all of it."""
    for found in _divisions(trial):
        text = _summary(trial, found)
        if "nothing is left" in text:
            left = found.total - sum(part.given for part in found.siblings)
            if left > _unit(found) - _CLOSE:
                yield f"{text} {left} of {found.total} are left"


def a_queue_gets_more_by_what_is_said(trial: Trial) -> Iterator[str]:
    """``It gets more when A asks for less``, or when its own quota, weight or limit is higher: it does."""
    for found in _divisions(trial):
        answer = QueueAnswer(found=found, waiting=()).text(Console())
        match = re.search(r"^It gets more when (.*)\.$", answer, re.MULTILINE)
        if match is None:
            if found.share < found.asks - _CLOSE and "It has all that it asks for" in answer:
                yield f"{found.queue}: has {found.share} of {found.asks}: {answer}"
            continue
        named = match[1].partition(" asks for less")[0].split(" or ") if " asks for less" in match[1] else []
        for name in named:
            without = trial.once(f"without {name}", partial(_without, trial, name))
            if _share(without, found.queue) <= found.share + _CLOSE:
                yield f"{found.queue}: {found.share} of {found.asks}: {match[0]} Without jobs of {name} it does not"
        more = found.asks / _unit(found) + 1
        for field, bound in (("quota", "quota"), ("weight", "overQuotaWeight"), ("limit", "limit")):
            if not re.search(rf"its own [^.]*\b{field}\b", match[1]):
                continue
            value = more if bound != "overQuotaWeight" else 1000.0 * max(part.weight + 1 for part in found.siblings)
            after = _share(trial.with_bound(found.queue, bound, found.resource, value), found.queue)
            if after <= found.share + _CLOSE:
                yield f"{found.queue}: {found.share} of {found.asks}: {match[0]} With {field} {value} it does not"


def _unit(found: Entitlement) -> float:
    return GPU_UNIT if found.resource == "gpu" else 1.0


def _divisions(trial: Trial) -> Sequence[Entitlement]:
    return [entitlement(trial.outcome, trial.seen, queue.name) for queue in trial.seen.queues]


def _summary(trial: Trial, found: Entitlement) -> str:
    return QueueAnswer(found=found, waiting=()).summary


def _share(trial: Trial, queue: str) -> float:
    return entitlement(trial.outcome, trial.seen, queue).share


def _without(trial: Trial, queue: str) -> Trial:
    """Return the trial in which the jobs of a queue, and of those below it, have no pods."""
    below = trial.seen.queues_below(queue)
    groups = {job.name for job in trial.jobs.values() if job.queue in below}
    gone = {pod["metadata"]["name"] for pod in trial.objects("Pod") if group_of(pod) in groups}

    def left(obj: Object) -> Object | None:
        name = obj["spec"].get("podName", "") if obj["kind"] == "BindRequest" else obj["metadata"]["name"]
        return None if obj["kind"] in {"Pod", "BindRequest"} and name in gone else deepcopy(dict(obj))

    return trial.changed(left)


def _ready_gpus(trial: Trial) -> float | None:
    """Return the GPUs of nodes that are ready; None where pods of other schedulers are there."""
    snapshot = trial.outcome.last.snapshot
    if any(group < 0 for group in snapshot.pod_group.tolist()):
        return None
    weights = snapshot.axis.gpu_weights()
    return float(sum(int(snapshot.axis.vector(node.allocatable) @ weights) for node in snapshot.nodes if node.ready))


SHARES: Sequence[Claim] = (
    a_share_that_is_raised_is_no_reason_any_more,
    a_queue_wants_what_its_pods_that_wait_ask_for,
    who_loses_is_above_what_it_is_said_to_be,
    a_division_adds_up,
    nothing_is_left_where_it_is_said,
    a_queue_gets_more_by_what_is_said,
)
