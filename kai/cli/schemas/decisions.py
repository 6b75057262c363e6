"""The documents about decisions: what a cycle decides, what a run comes to, how two of them differ, and the log."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kai.cli.schemas.document import Document
from kai.simulation.cases.plan_document import Departure, Hold, Place
from kai.simulation.comparing import documents
from kai.virtual.results import result as over_time


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
    agreement: documents.Agreement | None = None
    """Null where no scheduler has written about jobs."""


@attrs.frozen(kw_only=True, slots=False)
class Comparison(documents.Comparison, Document):
    """What changes between two policies, results or snapshots (``kai diff``)."""


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
