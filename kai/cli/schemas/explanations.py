"""The kinds of documents of ``kai why``, as classes; see ``kai.cli.schemas.kinds``.

What every document for machines begins with, as a class.

What was held over a time, as ``kai report`` and ``kai history`` write it.

The MIG slices of a node, as ``kai nodes`` and ``kai why node/NAME`` write them; see ``kai.cli.schemas.kinds``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Source:
    """Where a document was made from."""

    type: str
    cluster: str | None
    revision: str | None
    sha256: str | None
    complete: bool


@attrs.frozen(kw_only=True)
class Program:
    """Which kai made a document."""

    version: str


@attrs.frozen(kw_only=True)
class Document:
    """What every document begins with."""

    api_version: str
    kind: str
    generated_at: str
    source: Source | None
    program: Program


@attrs.frozen(kw_only=True)
class UserOfSlices:
    """A pod with MIG slices of one profile."""

    job: str
    namespace: str
    queue: str | None
    pod: str
    count: int
    state: str


@attrs.frozen(kw_only=True)
class SlicesItem:
    """The MIG slices of one profile on a node; ``resource`` is what pods ask for."""

    resource: str
    total: int
    used: int
    held: int
    leaving: int
    free: int
    users: tuple[UserOfSlices, ...]


@attrs.frozen(kw_only=True)
class SubjectItem:
    """What an answer is about."""

    kind: str
    namespace: str
    name: str
    uid: str


@attrs.frozen(kw_only=True)
class AlikeItem(SubjectItem):
    """A job that waits for the same as another one."""

    title: str
    """Its name; with the namespace where another job has the same name."""
    pods: int
    gpus: float


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
    wire_reason: str | None = None


@attrs.frozen(kw_only=True)
class EvidenceItem:
    """One fact that proves a reason."""

    label: str
    text: str
    values: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class LossItem:
    """What a change costs another job."""

    job: str
    pods: int
    evicted: int


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

    object: str | None = None
    """Such as ``pod template``, or a kind with a name."""
    merge: Mapping[str, Any] | None = None
    """As in a strategic merge patch: null takes a field away, parts of lists go by their names."""
    command: str | None = None


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


@attrs.frozen(kw_only=True)
class EtaItem:
    """When a job starts, as far as that is known, and what is assumed."""

    seconds: float
    basis: str
    assumptions: tuple[str, ...]


@attrs.frozen(kw_only=True)
class EvictionItem:
    """Why one pod has to go."""

    pod: str
    job: str
    queue: str
    node: str | None
    gpus: float
    cause: str
    beneficiary: str | None
    rule: str
    moved_to: str | None
    because: tuple[str, ...]


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


@attrs.frozen(kw_only=True)
class Explanation(Document, ExplanationItem):
    """Why a job waits, what proves it, and what would help (``kai why JOB``)."""

    evicted: tuple[EvictionItem, ...]
    assumptions: tuple[str, ...]
    untried: str | None
    """Why no change was tried: a service does not decide again on a large cluster. None where changes were tried."""


@attrs.frozen(kw_only=True)
class ExplanationList(Document):
    """Why jobs wait, one item for each reason (``kai why --all``)."""

    items: tuple[ExplanationItem, ...]
    assumptions: tuple[str, ...]


@attrs.frozen(kw_only=True)
class PastEvictionItem:
    """Why one pod was evicted, as far as it is on record."""

    time: str | None
    pod: str | None
    job: str
    queue: str | None
    gpus: float | None
    cause: str
    beneficiary: str | None
    """``namespace/name`` of the job that gained, or ``another queue`` where the reader may not see it."""
    beneficiary_queue: str | None
    rule: str
    because: str | None
    source: str


@attrs.frozen(kw_only=True)
class EvictionList(Document):
    """Which pods went or have to go, for whom and why (``kai why --evicted``)."""

    items: tuple[EvictionItem, ...]
    unused_evictions: tuple[str, ...]
    past: tuple[PastEvictionItem, ...] = ()
    looked_at: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class SiblingItem:
    """What one of the queues that divide an amount asks for and gets."""

    name: str
    requested: float
    quota: float | None
    limit: float | None
    weight: float
    priority: int
    usage: float
    used: float
    fair_share: float


@attrs.frozen(kw_only=True)
class StepItem:
    """One step of the division: what the queue was given, and what all were given."""

    step: str
    total: float
    given: float
    formula: str


@attrs.frozen(kw_only=True)
class GainsItem:
    """Siblings that have to ask for less, and bounds of the queue that have to be higher: each alone is enough."""

    siblings: tuple[str, ...]
    bounds: tuple[str, ...]


@attrs.frozen(kw_only=True)
class QueueExplanation(Document):
    """Why a queue has its fair share (``kai why queue/NAME``)."""

    subject: Mapping[str, str]
    summary: str
    reason: ReasonItem | None
    """Why the queue takes no part; null for one that does, which has the fields below."""
    parent: str | None = None
    resource: str = ""
    total: float | None = None
    """What is divided; null where a service does not tell it, nor the steps, because others have the rest."""
    fair_share: float = 0.0
    used: float = 0.0
    requested: float = 0.0
    siblings: tuple[SiblingItem, ...] = ()
    fair_share_steps: tuple[StepItem, ...] = ()
    past_usage_counts: bool = False
    gets_more_by: GainsItem | None = None
    """What alone would give it more; null where fair shares are divided by other rules."""
    waiting: tuple[Mapping[str, str], ...] = ()


@attrs.frozen(kw_only=True)
class UserItem:
    """The pods of one job on a node."""

    job: str
    queue: str | None
    pods: int
    gpus: float
    state: str


@attrs.frozen(kw_only=True)
class KeptAwayItem:
    """What keeps waiting jobs from a node."""

    reason: str
    jobs: tuple[str, ...]


@attrs.frozen(kw_only=True)
class NodeExplanation(Document):
    """Why a node is empty or full (``kai why node/NAME``)."""

    subject: Mapping[str, str]
    summary: str
    gpus: float
    idle_gpus: float
    partly_idle_gpus: float
    """What is left of GPUs that pods share."""
    ready: bool
    taints: tuple[str, ...]
    users: tuple[UserItem, ...]
    kept_away: tuple[KeptAwayItem, ...]
    closed: str | None = None
    """What keeps all pods from it, such as ``cordoned``; null where nothing does."""
    closed_seconds: float | None = None
    """For how long; null where that is not known."""
    failed_gpus: float = 0.0
    """GPUs that it has and does not offer."""
    mig_slices: tuple[SlicesItem, ...] = ()


@attrs.frozen(kw_only=True)
class SpanItem:
    """A time and what was held in it; the keys of rows follow from the report, and keys in small units are exact."""

    from_: str
    to: str
    rows: tuple[Mapping[str, Any], ...]


@attrs.frozen(kw_only=True)
class UsageReport(Document):
    """Who used what over a time (``kai report``)."""

    report: str
    recorded_until: str | None
    """The last instant that the file has a record of; null for an empty file."""
    spans: tuple[SpanItem, ...]


@attrs.frozen(kw_only=True)
class UsageItem:
    """What was held in a day, a week or a month, and what the cluster had; ``held`` and ``capacity`` are exact."""

    name: str
    from_: str
    to: str
    hours: float
    held_hours: float
    capacity_hours: float
    fraction: float
    unrecorded_hours: float
    held: int
    capacity: int


@attrs.frozen(kw_only=True)
class UsageHistory(Document):
    """What a queue or the cluster held over time (``kai history``)."""

    queue: str | None
    """Null for all queues together."""
    resource: str
    items: tuple[UsageItem, ...]


USAGE_KINDS = (UsageReport, UsageHistory)
WHY_KINDS = (Explanation, ExplanationList, EvictionList, QueueExplanation, NodeExplanation)
