"""The documents of commands that decide: what one moment decides, and the plan of what to do.

``kai simulate`` writes a `MomentResult`, the answer that conformance cases compare with everything that the tables
show; ``kai replay`` and ``kai would-run`` write a `Plan`. `document` and `arrival_plan` fill them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from kai.answers.cases.plan_document import Departure, Difference, Hold, Place
from kai.answers.documents.document import ABSENT, Document, as_json, enveloped
from kai.answers.documents.evictions import EvictionItem
from kai.answers.documents.explanations import EtaItem, ExplanationItem, SuggestionItem
from kai.answers.documents.queues import QueueItem
from kai.facts.model.units import GPU_UNIT
from kai.lab.comparing.arrival import AFTER_EVICTIONS, STARTS, Arrival, answer_of
from kai.lab.comparing.comparison import Agreement

if TYPE_CHECKING:
    from kai.answers.offline.run import Cycle
    from kai.answers.outcomes import plan as decided
    from kai.answers.outcomes.overview import Job
    from kai.lab.comparing.expected_answer import Differences
    from kai.lab.request import Result
    from kai.lab.sources.addition import LaterPods

D = TypeVar("D", Place, Hold, Departure)


def _reason_of(job: Job) -> tuple[str, str]:
    """Return code and text of why pods of a job wait, or why a cluster refuses it; empty where neither applies."""
    reason = job.waiting_reason
    return job.refusal if reason is None else (str(reason.code), reason.text)


# --- One moment ------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ResultPods:
    """How many pods a job wants, and what becomes of them."""

    wanted: int
    placed: int
    started: int
    held: int
    evicted: int


@attrs.frozen(kw_only=True)
class ResultJob:
    """One job after the last cycle; the last three fields are there where its pods wait."""

    name: str
    namespace: str
    queue: str
    priority: int | None
    preemptible: bool | None
    min_member: int
    pods: ResultPods
    gpus: float
    nodes: tuple[str, ...]
    state: str
    reason: Mapping[str, str] | None
    message: str | None = ABSENT
    wire_reasons: tuple[Mapping[str, str], ...] = ABSENT
    pod_messages: Mapping[str, str] = ABSENT

    @classmethod
    def of(cls, job: Job) -> ResultJob:
        """Return the item of a job."""
        waits = job.waiting_reason is not None
        code, text = _reason_of(job)
        return cls(
            name=job.name,
            namespace=job.namespace,
            queue=job.queue,
            priority=job.priority,
            preemptible=job.preemptible,
            min_member=job.minimum,
            pods=ResultPods(
                wanted=job.wanted, placed=job.placed, started=job.started, held=job.held, evicted=job.evicted
            ),
            gpus=job.gpus / GPU_UNIT,
            nodes=job.nodes,
            state=str(job.state),
            reason={"code": code, "text": text} if waits or code or text else None,
            message=job.message if waits else ABSENT,
            wire_reasons=tuple({"reason": each.reason, "message": each.message} for each in job.explanations)
            if waits
            else ABSENT,
            pod_messages=dict(job.pod_messages) if waits else ABSENT,
        )


@attrs.frozen(kw_only=True)
class UnusedItem:
    """Objects of one kind that had no part in what was decided."""

    kind: str
    group: str = ABSENT
    """Of the API; for kinds that plugins of others read."""
    count: int
    reason: str


@attrs.frozen(kw_only=True)
class EvictedPod:
    """A pod that was evicted in the last cycle, with the text of the event."""

    pod: str
    message: str


@attrs.frozen(kw_only=True)
class CheckResult:
    """Whether a scenario came out as it expects, and what differs; null where it expects nothing."""

    ok: bool | None
    differences: tuple[str, ...]


@attrs.frozen(kw_only=True)
class MomentResult(Document):
    """What is decided at one moment (``kai simulate`` without ``--until``); its kind is SimulationResult as well.

    It has no ``horizonSeconds``. Of a division of fair shares there are ``scenario`` and the shares.
    """

    scenario: str
    fair_share: Mapping[str, Mapping[str, float]] = ABSENT
    """Of a division alone: by UID of the queue and resource."""
    remaining: Mapping[str, float] = ABSENT
    """Of a division alone: the rest of each resource, which no queue's share takes."""
    pods: Mapping[str, Any] = ABSENT
    """By namespace/name. The states are the same as of jobs; the status is KAI-Scheduler's word."""
    nodes: Mapping[str, Any] = ABSENT
    counts: tuple[Mapping[str, int], ...] = ABSENT
    """Of each cycle."""
    stable: tuple[Mapping[str, Any], ...] = ABSENT
    jobs: tuple[ResultJob, ...] = ABSENT
    queues: tuple[QueueItem, ...] = ABSENT
    evictions: tuple[EvictedPod, ...] = ABSENT
    explanations: tuple[ExplanationItem, ...] = ABSENT
    """With ``--explain``, as the three that follow."""
    evicted: tuple[EvictionItem, ...] = ABSENT
    unused_evictions: tuple[str, ...] = ABSENT
    assumptions: tuple[str, ...] = ABSENT
    unused: tuple[UnusedItem, ...] = ABSENT
    notes: tuple[str, ...] = ABSENT
    check: CheckResult = ABSENT
    """With ``--check``."""

    @classmethod
    def of(cls, result: Result, differences: Differences | None, *, explain: bool) -> MomentResult:
        """Return a result, with explanations if ``explain``; ``differences`` are None without a check."""
        seen, more = result.overview, dict[str, Any]()
        if seen is not None:
            more["jobs"] = tuple(map(ResultJob.of, (*seen.jobs, *result.refused)))
            more["queues"] = tuple(map(QueueItem.of, seen.queues))
            more["evictions"] = tuple(EvictedPod(pod=pod, message=message) for pod, message in seen.evictions)
        if explain and (found := result.explained) is not None:
            more["explanations"] = tuple(map(ExplanationItem.of, found.folds))
            more["evicted"] = tuple(map(EvictionItem.of, found.evictions))
            more |= {"unused_evictions": found.unused, "assumptions": found.assumptions}
        if result.unused:
            more["unused"] = tuple(
                UnusedItem(kind=each.kind, group=each.group or ABSENT, count=each.count, reason=each.reason)
                for each in result.unused
            )
        if differences is not None:
            ok = None if differences.unknown else not differences.found
            more["check"] = CheckResult(ok=ok, differences=tuple(differences.found))
        return cls(**_answered(result), notes=tuple(result.notes) or ABSENT, **more)


def _answered(result: Result) -> dict[str, Any]:
    """Return the answer that conformance cases compare, as fields, with pods by ``namespace/name``.

    Those cases use bare names where they are unique. Each pod has its ``state`` in kai's terms beside its status.
    """
    from kai.answers.outcomes.plan import pod_names
    from kai.answers.outcomes.states import pod_states

    answer, outcome = result.answer, result.outcome
    if outcome is None:
        return {"scenario": answer["scenario"], "fair_share": answer["fairShare"], "remaining": answer["remaining"]}
    snapshot = outcome.last.snapshot
    keys = {name: pod.key for name, pod in zip(pod_names(snapshot), snapshot.pods, strict=True)}

    def by_key(cycle: Cycle, pods: Mapping[str, Any]) -> dict[str, Any]:
        states = dict(zip((pod.key for pod in cycle.snapshot.pods), pod_states(cycle), strict=True))
        return {keys[name]: {"state": str(states[keys[name]]), **pod} for name, pod in pods.items()}

    moments = zip(outcome.stable, answer.get("stable", ()), strict=True)
    return {
        **answer,
        "pods": by_key(outcome.last, answer["pods"]),
        "counts": tuple(answer["counts"]),
        "stable": tuple({**moment, "pods": by_key(cycle, moment["pods"])} for cycle, moment in moments) or ABSENT,
    }


def document(result: Result, differences: Differences | None, *, explain: bool = False) -> dict[str, Any]:
    """Return the result as a document, with explanations if ``explain``. Fields are only ever added."""
    fields = as_json(MomentResult.of(result, differences, explain=explain))
    return enveloped("SimulationResult", fields, result.case.origin)


# --- Plans -----------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class PlannedPods:
    """How many pods a job wants, and how many start now or later."""

    wanted: int
    started: int
    held: int


@attrs.frozen(kw_only=True)
class PlannedJob:
    """One job of the files, with its answer."""

    name: str
    namespace: str
    queue: str
    min_member: int
    pods: PlannedPods
    gpus: float
    nodes: tuple[str, ...]
    answer: str
    reason: Mapping[str, str] | None

    @classmethod
    def of(cls, job: Job) -> PlannedJob:
        """Return the item of a job."""
        code, text = _reason_of(job)
        return cls(
            name=job.name,
            namespace=job.namespace,
            queue=job.queue,
            min_member=job.minimum,
            pods=PlannedPods(wanted=job.wanted, started=job.started, held=job.held),
            gpus=job.gpus / GPU_UNIT,
            nodes=job.nodes,
            answer=answer_of(job),
            reason={"code": code, "text": text} if code else None,
        )


@attrs.frozen(kw_only=True)
class PlanExplanation:
    """Why the job with the worst answer does not start, and which changes would help."""

    subject: Mapping[str, str | None]
    state: str
    reason: Mapping[str, str]
    suggestions: tuple[SuggestionItem, ...] = ABSENT
    """As of an Explanation, like the next ones; absent for a job that is not explained."""
    all_changes_tried: bool | None = ABSENT
    waiting: str | None = ABSENT

    @classmethod
    def of(cls, found: Arrival, items: Iterable[ExplanationItem]) -> PlanExplanation | None:
        """Return the explanation; None if nothing waits."""
        waiting = (job for job in found.jobs if answer_of(job) == found.answer and job.waiting_reason is not None)
        job = None if found.answer in {STARTS, AFTER_EVICTIONS} else next(waiting, None)
        if job is None or job.waiting_reason is None:
            return None
        item = next((each for each in items if each.subject.name == job.name), None)
        return cls(
            subject={"kind": "PodGroup", "namespace": job.namespace, "name": job.name, "uid": None},
            state=found.answer,
            reason={"code": str(job.waiting_reason.code), "detail": job.waiting_reason.text},
            suggestions=ABSENT if item is None else item.suggestions,
            all_changes_tried=ABSENT if item is None else item.all_changes_tried,
            waiting=ABSENT if item is None else item.waiting,
        )


@attrs.frozen(kw_only=True)
class LaterItem:
    """Pods that a controller creates later, and the condition for it."""

    job: str
    pods: int
    gpus: float
    once: str


@attrs.frozen(kw_only=True)
class RecordedPlan:
    """Whether the recorded decisions are the same, and which differ."""

    equal: bool
    differences: tuple[Difference, ...]


@attrs.frozen(kw_only=True)
class Plan(Document):
    """What is decided (``kai replay``, ``kai would-run``)."""

    answer: str | None
    place: tuple[Place, ...]
    evict: tuple[Departure, ...]
    move: tuple[Departure, ...]
    hold: tuple[Hold, ...]
    counts: Mapping[str, int]
    decision_hash: str
    jobs: tuple[PlannedJob, ...] = ABSENT
    """Of ``kai would-run``, as the next ones: the jobs of the files, each with its answer."""
    besides: Mapping[str, int] = ABSENT
    """How many pods of others the same cycle starts, holds, evicts and moves."""
    over_quota: tuple[str, ...] = ABSENT
    eta: EtaItem | None = ABSENT
    explanation: PlanExplanation | None
    expected: RecordedPlan | None = ABSENT
    """Of ``kai replay``: how it compares with the recorded decisions; null without recorded ones."""
    agreement: Agreement | None = ABSENT
    """Null where no scheduler has written about jobs."""
    later: tuple[LaterItem, ...] = ABSENT
    """Pods that controllers create later."""


def replayed_plan(plan: decided.Plan, found: Sequence[Difference] | None, theirs: Agreement | None) -> Plan:
    """Return the plan of a snapshot, beside what it records and what the scheduler of the cluster wrote."""
    recorded = None if found is None else RecordedPlan(equal=not found, differences=tuple(found))
    return Plan(answer=None, **_decisions(plan), explanation=None, expected=recorded, agreement=theirs)


def arrival_plan(found: Arrival, items: Iterable[ExplanationItem], later: Iterable[LaterPods] = ()) -> Plan:
    """Return the plan of a workload that arrives; ``items`` are explanations of the jobs that would wait."""
    assumed = ("evicted pods take the default grace period of 30 seconds",) if found.answer == AFTER_EVICTIONS else ()
    eta = None
    if found.eta_seconds is not None:
        basis = "grace periods of evicted pods" if found.eta_seconds else "its places are idle"
        eta = EtaItem(seconds=found.eta_seconds, basis=basis, assumptions=assumed)
    comes = tuple(LaterItem(job=each.job, pods=each.pods, gpus=each.gpus, once=each.once) for each in later)
    return Plan(
        answer=found.answer,
        **_decisions(found.plan),
        jobs=tuple(map(PlannedJob.of, found.jobs)),
        besides=found.besides.counts,
        over_quota=tuple(queue.name for queue in found.over_quota),
        eta=eta,
        explanation=PlanExplanation.of(found, items),
        later=comes or ABSENT,
    )


def _decisions(plan: decided.Plan) -> dict[str, Any]:
    kinds = (("place", plan.place), ("evict", plan.evict), ("move", plan.move), ("hold", plan.hold))
    return {
        **{kind: tuple(map(_without_nothing, items)) for kind, items in kinds},
        "counts": plan.counts,
        "decision_hash": plan.digest,
    }


def _without_nothing(item: D) -> D:
    """Return a decision without its MIG slices if it has none: recordings from before they were counted lack them."""
    return item if item.sliced else attrs.evolve(item, sliced=ABSENT)
