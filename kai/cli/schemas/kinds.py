"""The kinds of documents for machines, as classes: the contract of ``-o json``, and where JSON Schemas come from.

Within a version fields are only added, and enumerations may grow, so a schema allows what it does not name. Absent is
not zero: what is unknown is null. Names are those of the wire, written in Python's manner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from kai.cli.schemas.document import Document
from kai.cli.schemas.explanations import WHY_KINDS
from kai.cli.schemas.queues import QueueList
from kai.cli.schemas.results import RESULT_KINDS
from kai.virtual import result as over_time

# --- Jobs, nodes -------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class ReasonOfJob:
    """Why pods of a job wait."""

    code: str
    text: str


@attrs.frozen(kw_only=True)
class PodCounts:
    """How many pods a job wants, and how many of them run and wait; null where they cannot be seen."""

    wanted: int | None
    running: int | None
    waiting: int | None


@attrs.frozen(kw_only=True)
class OrderKey:
    """One key by which jobs are ordered."""

    name: str
    value: float | str | None


@attrs.frozen(kw_only=True)
class PodItem:
    """One pod of a job."""

    name: str
    state: str
    node: str | None
    gpus: float


@attrs.frozen(kw_only=True)
class JobItem:
    """One job."""

    name: str
    namespace: str
    uid: str
    owner: Mapping[str, Any] | None
    queue: str
    priority: int | None
    preemptible: bool | None
    min_member: int
    pods: PodCounts
    gpus: float
    gpu_memory_bytes: int
    """What pods ask for by memory of GPUs; how many GPUs that is depends on the node."""
    nodes: tuple[str, ...]
    state: str
    since: str | None
    position: int | None
    order_keys: tuple[OrderKey, ...]
    reason: ReasonOfJob | None
    ends_in_seconds: float | None
    labels: Mapping[str, str] = attrs.field(factory=dict)
    """Of the pod group."""
    pod_list: tuple[PodItem, ...] = ()
    """With ``--pods``."""


@attrs.frozen(kw_only=True)
class JobList(Document):
    """What runs, what waits, why and in which order (``kai jobs``)."""

    items: tuple[JobItem, ...]


@attrs.frozen(kw_only=True)
class UserOfGpu:
    """A pod on a GPU."""

    job: str
    queue: str
    share: float


@attrs.frozen(kw_only=True)
class GpuOfNode:
    """One GPU of a node."""

    index: int
    uuid: str | None
    free: float
    state: str
    users: tuple[UserOfGpu, ...]


@attrs.frozen(kw_only=True)
class FreeGpus:
    """What is free on a node: whole GPUs, and the sum of free parts."""

    whole: int
    fractions: float


@attrs.frozen(kw_only=True)
class NodeItem:
    """One node."""

    name: str
    labels: Mapping[str, str]
    gpu_type: str | None
    gpus: tuple[GpuOfNode, ...]
    free: FreeGpus
    domains: Mapping[str, str]


@attrs.frozen(kw_only=True)
class NodeList(Document):
    """Where the GPUs are and in what pieces (``kai nodes``)."""

    items: tuple[NodeItem, ...]


# --- Decisions -----------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class PlaceItem:
    """A pod that starts."""

    cycle: int
    pod: str
    job: str
    queue: str
    node: str
    gpus: float
    slots: tuple[str, ...]
    share: float | None


@attrs.frozen(kw_only=True)
class HoldItem:
    """A pod that is promised a place which others have still to leave."""

    cycle: int
    pod: str
    job: str
    queue: str
    node: str
    gpus: float


@attrs.frozen(kw_only=True)
class DepartureItem:
    """A pod that has to go."""

    cycle: int
    pod: str
    job: str
    queue: str
    node: str
    gpus: float
    cause: str
    rule: str
    aggressor: str | None
    to: str | None


@attrs.frozen(kw_only=True)
class DissentItem:
    """A job about which the scheduler of the cluster decided otherwise."""

    job: str
    queue: str
    theirs: str
    ours: str
    rule: str
    their_rule: str | None


@attrs.frozen(kw_only=True)
class AgreementItem:
    """What the scheduler of the cluster wrote about its jobs, beside what is decided here."""

    decided: int
    undecided: int
    equal: int
    differences: tuple[DissentItem, ...]


@attrs.frozen(kw_only=True)
class Plan(Document):
    """What is decided (``kai replay``)."""

    answer: str | None
    place: tuple[PlaceItem, ...]
    hold: tuple[HoldItem, ...]
    evict: tuple[DepartureItem, ...]
    move: tuple[DepartureItem, ...]
    counts: Mapping[str, int]
    decision_hash: str
    explanation: Mapping[str, Any] | None
    agreement: AgreementItem | None = None
    """Null where no scheduler has written about jobs."""


@attrs.frozen(kw_only=True)
class MetricItem:
    """One figure on both sides."""

    name: str
    unit: str
    a: float | None
    b: float | None
    change: float | None
    better: str


@attrs.frozen(kw_only=True)
class JobStateItem:
    """How a job ends on one side."""

    state: str
    nodes: tuple[str, ...]
    queue: str
    reason: str
    placed: int
    wanted: int


@attrs.frozen(kw_only=True)
class JobChangeItem:
    """A job that ends otherwise."""

    job: str
    a: JobStateItem | None
    b: JobStateItem | None


@attrs.frozen(kw_only=True)
class FirstDivergence:
    """The first decision that differs."""

    cycle: int
    decision_a: Mapping[str, Any] | None
    decision_b: Mapping[str, Any] | None


@attrs.frozen(kw_only=True)
class Comparison(Document):
    """What changes between two policies, results or snapshots (``kai diff``)."""

    a: str
    b: str
    metrics: tuple[MetricItem, ...]
    jobs: tuple[JobChangeItem, ...]
    first_divergence: FirstDivergence | None


@attrs.frozen(kw_only=True, slots=False)
class SimulationResult(Document, over_time.SimulationResult):
    """What became of a workload over virtual time (``kai simulate --until``).

    The decision of one moment has the same kind and no ``horizonSeconds``.
    """


@attrs.frozen(kw_only=True)
class Subject:
    """What a decision is about."""

    kind: str
    namespace: str
    name: str
    uid: str


@attrs.frozen(kw_only=True)
class GainerItem:
    """The job for which a pod was evicted."""

    namespace: str
    name: str
    queue: str


@attrs.frozen(kw_only=True)
class Decision:
    """A line of the decision log (``kai run --decision-log``); it has no envelope."""

    cycle: int
    time: str
    kind: str
    subject: Subject
    job: str
    queue: str
    node: str
    action: str
    rule: str
    gainer: GainerItem | None
    numbers: Mapping[str, float]
    input_hash: str


# --- Findings and versions -----------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class FindingItem:
    """One thing that is not as it should be; ``severity`` ok is a check that found nothing."""

    code: str
    severity: str
    message: str
    file: str | None
    line: int | None
    column: int | None
    object: str | None
    found: str | None
    expected: str | None
    help: str | None
    url: str | None


@attrs.frozen(kw_only=True)
class Findings(Document):
    """What is wrong with files or an installation (``kai lint``, ``kai doctor``)."""

    items: tuple[FindingItem, ...]


@attrs.frozen(kw_only=True)
class Snapshot(Document):
    """What was written into a file (``kai snapshot``)."""

    file: str
    redacted: str
    counts: Mapping[str, int]


@attrs.frozen(kw_only=True)
class Versions(Document):
    """The versions of all parts (``kai version``), by name beside the fields of every document."""

    kai: str
    python: str


# --- Cycles --------------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class CycleItem:
    """One cycle: how long it and its phases took, and how many pods were started, held, evicted or moved."""

    number: int
    time: str
    seconds: float
    phases: Mapping[str, float]
    decisions: Mapping[str, int]


@attrs.frozen(kw_only=True)
class CycleList(Document):
    """The last cycles of the service, the newest first (``/api/v1/cycles``)."""

    items: tuple[CycleItem, ...]


KINDS: Final = {
    cls.__name__: cls
    for cls in (
        JobList,
        QueueList,
        NodeList,
        CycleList,
        *WHY_KINDS,
        Plan,
        Comparison,
        SimulationResult,
        Decision,
        Findings,
        Snapshot,
        Versions,
        *RESULT_KINDS,
    )
}
"""The kinds that ``kai version --schema`` prints, by name."""
