"""The documents about jobs that wait: `Explanation` and `ExplanationList`.

Names of jobs and pods are ``namespace/name``. A suggested change also comes as edits of objects and files
(``kai.answers.documents.in_file``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.answers.documents.document import ABSENT, Document
from kai.answers.documents.evictions import EvictionItem
from kai.api.values import instant_text
from kai.basics.wording import first_of
from kai.facts.model.units import GPU_UNIT

if TYPE_CHECKING:
    from kai.answers.outcomes.job_lines import JobLine, Owner
    from kai.answers.outcomes.overview import Job
    from kai.answers.why.explanation import Explained, Fold
    from kai.answers.why.facts import Evidence
    from kai.answers.why.trials import ChangeTrial
    from kai.framework.verdict import Reason

_UNITS = {"gpu": GPU_UNIT}
_MOST_NAMED = 6


@attrs.frozen(kw_only=True)
class Fate:
    """The fate of a job that has no pods at an instant: it has ended, or is still to come."""

    namespace: str
    name: str
    queue: str
    state: str
    pods: int
    gpus: float
    summary: str


# --- Parts ---------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class SubjectItem:
    """What an answer is about."""

    kind: str
    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, job: Job) -> SubjectItem:
        """Return a job as a subject."""
        return cls(kind="PodGroup", namespace=job.namespace, name=job.name, uid=job.uid)


@attrs.frozen(kw_only=True)
class AlikeItem(SubjectItem):
    """A job that waits for the same as another one."""

    title: str
    """Its name; with the namespace where another job has the same name."""
    pods: int
    gpus: float

    @classmethod
    def of(cls, job: Job) -> AlikeItem:
        """Return a job beside the explained one."""
        subject = attrs.asdict(SubjectItem.of(job))
        return cls(**subject, title=job.title, pods=job.wanted, gpus=job.gpus / GPU_UNIT)


@attrs.frozen(kw_only=True)
class ReasonItem:
    """A reason with its numbers: GPUs in devices, CPU in millicores, memory in bytes; null is unknown."""

    code: str
    detail: str
    queue: str | None
    resource: str | None
    limit: float | None
    fair_share: float | None
    used: float | None
    requested: float | None
    excess: float | None
    wire_reason: str | None = ABSENT

    @classmethod
    def of(cls, reason: Reason[str]) -> ReasonItem:
        """Return the item of a reason, without the reason on the wire."""
        facts = reason.facts
        limit, used, requested, share = (_amount(facts, key) for key in ("bound", "used", "requested", "fair_share"))
        allowed = share if limit is None else limit
        # Unknown if a part is unknown: 0 would say that nothing is exceeded.
        excess = None if allowed is None or used is None or requested is None else used + requested - allowed
        return cls(
            code=str(reason.code),
            detail=reason.text,
            queue=_text(facts, "queue"),
            resource=_text(facts, "resource"),
            limit=limit,
            fair_share=share,
            used=used,
            requested=requested,
            excess=excess,
        )


def _text(facts: Mapping[str, object], key: str) -> str | None:
    value = facts.get(key)
    return None if value is None else str(value)


def _amount(facts: Mapping[str, object], key: str) -> float | None:
    value = facts.get(key)
    return float(value) / _UNITS.get(str(facts.get("resource")), 1) if isinstance(value, int | float) else None


@attrs.frozen(kw_only=True)
class EvidenceItem:
    """One fact that proves a reason."""

    label: str
    text: str
    values: Mapping[str, Any]

    @classmethod
    def of(cls, one: Evidence) -> EvidenceItem:
        """Return the item of a fact."""
        return cls(label=one.label, text=one.text, values=one.values)


@attrs.frozen(kw_only=True)
class PatchItem:
    """What a change does to one object, as a JSON patch (RFC 6902); ``remove`` of "" deletes the object."""

    kind: str
    namespace: str | None
    name: str
    patch: tuple[Mapping[str, Any], ...]


@attrs.frozen(kw_only=True)
class InFileItem:
    """What is to be merged into one object that people write, or the command to type in its place."""

    object: str | None = ABSENT
    """Such as ``pod template``, or a kind with a name."""
    merge: Mapping[str, Any] | None = ABSENT
    """As in a strategic merge patch: null takes a field away, parts of lists go by their names."""
    command: str | None = ABSENT


@attrs.frozen(kw_only=True)
class LossItem:
    """What a change costs another job."""

    job: str
    pods: int
    evicted: int


@attrs.frozen(kw_only=True)
class SuggestionItem:
    """One change that helps; it was decided again with it."""

    field: str
    from_: str | None
    to: str | None
    text: str
    verified: bool
    outcome: str
    patch: tuple[PatchItem, ...]
    in_file: tuple[InFileItem, ...]
    """What the files that people write should say for it; nothing for what no file says."""
    next_reason: ReasonItem | None
    placement: tuple[Mapping[str, str], ...]
    pods_still_waiting: int
    pods_kept: int
    """Pods that stay where they must go without the change."""
    losses: tuple[LossItem, ...]

    @classmethod
    def of(cls, trial: ChangeTrial, owner: Owner | None) -> SuggestionItem:
        """Return the item of a change that was tried; ``owner`` is the workload of the job."""
        from kai.answers.documents.in_file import in_file, patches_of  # noqa: PLC0415 - it loads what readers do without

        change, before = trial.change, trial.before
        # Without the objects before there is nothing that a patch could be a difference from.
        patches = () if before is None else patches_of(before, change.objects)
        merges = () if before is None else in_file(before, change.objects, owner)
        return cls(
            field=change.field,
            from_=change.old or None,
            to=change.new or None,
            text=change.text,
            verified=True,
            outcome=str(trial.result),
            patch=tuple(PatchItem(**{**each, "patch": tuple(each["patch"])}) for each in patches),
            in_file=tuple(InFileItem(**each) for each in merges),
            next_reason=None if trial.reason is None else ReasonItem.of(trial.reason),
            placement=tuple({"pod": pod, "node": node} for pod, node in trial.placement),
            pods_still_waiting=trial.waiting,
            pods_kept=0 if trial.placement else trial.started,
            losses=tuple(LossItem(job=each.key, pods=each.pods, evicted=each.evicted) for each in trial.losses),
        )


@attrs.frozen(kw_only=True)
class EtaItem:
    """When a job starts, as far as that is known, and what is assumed."""

    seconds: float
    basis: str
    assumptions: tuple[str, ...]


# --- Explanations --------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True, slots=False)  # two bases with slots cannot be one class
class ExplanationItem:
    """Why one job waits, or where it stands; ``alike`` are jobs that wait for the same."""

    subject: SubjectItem
    state: str
    queue: str
    pods: int
    gpus: float
    summary: str
    reason: ReasonItem | None
    also: tuple[ReasonItem, ...]
    evidence: tuple[EvidenceItem, ...]
    suggestions: tuple[SuggestionItem, ...]
    all_changes_tried: bool | None
    waiting: str | None
    position: int | None
    waiting_since: str | None
    waiting_seconds: float | None
    since: str | None
    """Since when a job runs, or stands as it does, that does not wait; null for one that waits."""
    eta: EtaItem | None
    eta_unknown: str | None
    """Why it cannot be estimated when the job starts; null where ``eta`` says it, and where nothing waits."""
    evicted_by: tuple[str, ...]
    alike: tuple[AlikeItem, ...]

    @classmethod
    def of(cls, fold: Fold) -> ExplanationItem:
        """Return why a job waits, and the other jobs that wait for the same reason."""
        each, eta = fold.explanation, fold.explanation.eta
        return ExplanationItem(
            subject=SubjectItem.of(each.job),
            state=str(each.job.state),
            queue=each.job.queue,
            pods=each.job.wanted,
            gpus=each.job.gpus / GPU_UNIT,
            summary=each.summary,
            reason=attrs.evolve(ReasonItem.of(each.reason), wire_reason=each.wire_reason or None),
            also=tuple(map(ReasonItem.of, each.also)),
            evidence=tuple(map(EvidenceItem.of, each.evidence)),
            suggestions=tuple(SuggestionItem.of(trial, each.owner) for trial in each.suggestions.changes),
            all_changes_tried=each.suggestions.all_tried,
            waiting=each.waiting,
            position=each.position,
            waiting_since=None if each.since is None else instant_text(each.since),
            waiting_seconds=each.waited,
            since=None,
            eta=None if eta is None else EtaItem(seconds=eta.seconds, basis=eta.basis, assumptions=eta.assumptions),
            eta_unknown=each.waiting if eta is None else None,
            evicted_by=each.evicted_by,
            alike=tuple(map(AlikeItem.of, fold.alike)),
        )

    @classmethod
    def of_settled(cls, line: JobLine) -> ExplanationItem:
        """Return the state of a job without waiting pods."""
        job = line.job
        nodes = EvidenceItem(label="nodes", text=", ".join(job.nodes), values={"nodes": [*job.nodes]})
        return ExplanationItem(
            subject=SubjectItem.of(job),
            state=str(job.state),
            queue=job.queue,
            pods=job.wanted,
            gpus=job.gpus / GPU_UNIT,
            summary=settled(job),
            **{
                **_WAITS_FOR_NOTHING,
                "evidence": (nodes,),
                "since": None if line.since is None else instant_text(line.since),
                "evicted_by": job.lost_to,
            },
        )


_WAITS_FOR_NOTHING: Final[Mapping[str, Any]] = {
    "reason": None,
    "also": (),
    "evidence": (),
    "suggestions": (),
    "all_changes_tried": None,
    "waiting": None,
    "position": None,
    "waiting_since": None,
    "waiting_seconds": None,
    "since": None,
    "eta": None,
    "eta_unknown": None,
    "evicted_by": (),
    "alike": (),
}
"""The fields of an explanation that are empty for a job without waiting pods."""


@attrs.frozen(kw_only=True, slots=False)
class Explanation(Document, ExplanationItem):
    """Why a job waits, what proves it, and what would help (``kai why JOB``)."""

    evicted: tuple[EvictionItem, ...]
    assumptions: tuple[str, ...]
    untried: str | None = ABSENT
    """Why no change was tried: a service does not decide again on a large cluster. None where changes were tried."""

    @classmethod
    def of_item(cls, item: ExplanationItem, **more: Any) -> Explanation:  # noqa: ANN401 - the own fields of the class
        """Return the document with one item; ``more`` are its own fields."""
        return cls(**{name: getattr(item, name) for name in attrs.fields_dict(ExplanationItem)}, **more)

    @classmethod
    def of_fate(cls, fate: Fate) -> Explanation:
        """Return the outcome of a job without pods in a run over virtual time."""
        return cls(
            subject=SubjectItem(kind="PodGroup", namespace=fate.namespace, name=fate.name, uid=""),
            state=fate.state,
            queue=fate.queue,
            pods=fate.pods,
            gpus=fate.gpus,
            summary=fate.summary,
            **_WAITS_FOR_NOTHING,
            evicted=(),
            assumptions=(),
        )


@attrs.frozen(kw_only=True)
class ExplanationList(Document):
    """Why jobs wait, one item for each reason (``kai why --all``)."""

    items: tuple[ExplanationItem, ...]
    evicted: tuple[EvictionItem, ...] = ABSENT
    assumptions: tuple[str, ...]
    untried: str | None = ABSENT
    """Why no change was tried, as in an Explanation."""
    continue_: str | None = ABSENT
    """Where the next page begins, null on the last one: of a service that is asked for pages."""


def jobs_document(found: Explained, untried: str | None = None) -> Explanation | ExplanationList:
    """Return an answer about jobs: waiting jobs first, then the others.

    ``untried`` says why no change was tried; None where changes were.
    """
    items = [*map(ExplanationItem.of, found.folds), *map(ExplanationItem.of_settled, found.settled)]
    more: dict[str, Any] = {"evicted": tuple(map(EvictionItem.of, found.evictions))}
    more |= {"assumptions": found.assumptions, "untried": untried}
    # One job has a document of its own, whose fields a script reads without a list.
    if len(items) == 1:
        return Explanation.of_item(items[0], **more)
    return ExplanationList(items=tuple(items), **more)


def settled(job: Job) -> str:
    """Return the state of a job without waiting pods, in one sentence."""
    from kai.answers.outcomes.job_states import MEANINGS, State  # noqa: PLC0415 - importing it loads the whole engine

    nodes = first_of(job.nodes, _MOST_NAMED)
    match job.state:
        case State.RUNNING:
            return f"{job.title} runs on {nodes}."
        case State.STARTS:
            return f"{job.title} starts now on {nodes}."
        case State.EVICTED:
            return f"{job.title} is evicted: {', '.join(job.lost_to)}."
        case State.PARTIAL:
            lost = f": {', '.join(job.lost_to)}" if job.lost_to else ""
            return f"{job.title} keeps {job.placed} of {job.wanted} pods, on {nodes}{lost}."
        case State.REFUSED:
            code, text = job.refusal
            return f"{job.title} is refused: {code} {text}."
        case State.LOST:
            return f"{job.title} does not run: {job.reason[1]}."
        case _:
            meaning = MEANINGS[job.state]
            return f"{job.title}: {meaning[0].lower()}{meaning[1:]}"
