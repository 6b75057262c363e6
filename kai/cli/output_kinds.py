"""The kinds of documents that kai writes, by name: the contract of ``-o json``, and where JSON Schemas come from.

Most are in ``kai.answers.documents``. Here are those of plans, comparisons and results, whose parts are those of
``kai.lab`` and ``kai.answers.cases``, and the line of the decision log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from kai.answers.cases.plan_document import Departure, Hold, Place
from kai.answers.documents.document import ABSENT, Document, schema_of
from kai.answers.documents.evictions import EvictionList
from kai.answers.documents.explanations import EtaItem, Explanation, ExplanationList
from kai.answers.documents.jobs import JobList
from kai.answers.documents.listings import (
    CheckList,
    CodeList,
    CycleList,
    Findings,
    Kernels,
    MomentResult,
    PluginList,
    PluginTimes,
    Snapshot,
    UsageHistory,
    UsageReport,
    Versions,
)
from kai.answers.documents.nodes import NodeExplanation, NodeList
from kai.answers.documents.queues import QueueExplanation, QueueList, QueueWeekList
from kai.cluster.process.decisions import Decision
from kai.lab.comparing import comparison
from kai.lab.virtual.results import result as over_time


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
    agreement: comparison.Agreement | None = ABSENT
    """Null where no scheduler has written about jobs."""
    expected: Mapping[str, Any] | None = ABSENT
    """Of ``kai replay``: whether the recorded decisions are the same, and which differ; null without recorded ones."""
    jobs: tuple[Mapping[str, Any], ...] = ABSENT
    """Of ``kai would-run``, as the next ones: the jobs of the files, each with its answer."""
    besides: Mapping[str, int] = ABSENT
    """How many pods of others the same cycle starts, holds, evicts and moves."""
    over_quota: tuple[str, ...] = ABSENT
    eta: EtaItem | None = ABSENT
    later: tuple[Mapping[str, Any], ...] = ABSENT
    """Pods that controllers create later."""


@attrs.frozen(kw_only=True, slots=False)
class Comparison(comparison.Comparison, Document):
    """What changes between two policies, results or snapshots (``kai diff``)."""


@attrs.frozen(kw_only=True, slots=False)
class SimulationResult(Document, over_time.SimulationResult):
    """What became of a workload over virtual time (``kai simulate --until``).

    The decision of one moment has the same kind and no ``horizonSeconds``.
    """


KINDS: Final[Mapping[str, type[Any]]] = {
    cls.__name__: cls
    for cls in (
        JobList,
        QueueList,
        QueueWeekList,
        NodeList,
        CycleList,
        Explanation,
        ExplanationList,
        EvictionList,
        QueueExplanation,
        NodeExplanation,
        Plan,
        Comparison,
        SimulationResult,
        Decision,
        Findings,
        Snapshot,
        Versions,
        MomentResult,
        PluginList,
        PluginTimes,
        Kernels,
        CheckList,
        CodeList,
        UsageReport,
        UsageHistory,
    )
}
"""The kinds that ``kai version --schema`` prints, by name."""


def kind_schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of one of `KINDS`. A line of the decision log always has all its fields."""
    return schema_of(KINDS[name], is_whole=KINDS[name] is Decision)
