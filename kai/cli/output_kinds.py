"""The kinds of documents that kai writes, by name: the contract of ``-o json``, and where JSON Schemas come from.

Most are in ``kai.answers.documents``; plans and what one moment decides are in ``kai.cli.deciding.documents``. Here are
comparisons and results over time, whose parts are those of ``kai.lab``, and the line of the decision log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from kai.answers.documents.document import Document, schema_of
from kai.answers.documents.evictions import EvictionList
from kai.answers.documents.explanations import Explanation, ExplanationList
from kai.answers.documents.jobs import JobList
from kai.answers.documents.listings import (
    CheckList,
    CodeList,
    CycleList,
    Findings,
    Kernels,
    PluginList,
    PluginTimes,
    Snapshot,
    UsageHistory,
    UsageReport,
    Versions,
)
from kai.answers.documents.nodes import NodeExplanation, NodeList
from kai.answers.documents.queues import QueueExplanation, QueueList, QueueWeekList
from kai.cli.deciding.documents import MomentResult, Plan
from kai.cluster.process.decisions import Decision
from kai.lab.comparing import comparison
from kai.lab.virtual.results import result as over_time


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
