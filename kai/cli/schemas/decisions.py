"""The documents about decisions: what a cycle decides, what a run comes to, how two of them differ, and the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kai.cli.schemas.document import Document
from kai.simulation.cases.plan_document import Departure, Hold, Place
from kai.virtual.results import result as over_time


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
    place: tuple[Place, ...]
    hold: tuple[Hold, ...]
    evict: tuple[Departure, ...]
    move: tuple[Departure, ...]
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
