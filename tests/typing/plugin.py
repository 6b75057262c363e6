"""A third party's plugin type-checks against the public names alone, and a wrong one does not."""

from collections.abc import Sequence

import attrs
import numpy as np

from kai.framework import (
    Extension,
    NodeRows,
    NodeScore,
    Plugin,
    PodRow,
    Reason,
    Scores,
    SessionView,
    Verdict,
    Words,
)
from kai.testing import check_plugin, only, pod_row, session_view


@attrs.frozen(kw_only=True)
class SameRack:
    """The plugin of the documentation."""

    label: str = "topology.kubernetes.io/rack"
    weight: float = 1.0

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return one extension."""
        racks = session.label_codes(self.label)

        def score_nodes(pod: PodRow, nodes: NodeRows) -> Scores:
            neighbours = racks[session.nodes_of(session.group_of(pod))]
            in_rack = np.bincount(neighbours, minlength=racks.max(initial=0) + 1).astype(np.float64)
            return in_rack[racks[nodes]] * self.weight

        return [NodeScore(score_nodes)]


def count_nodes(pod: PodRow) -> int:
    """Not what a score is."""
    return int(pod)


plugin: Plugin = SameRack(weight=2.0)
wrong_option = SameRack(weight="much")  # type: ignore[arg-type]  # an option has the type of its field
wrong_score = NodeScore(count_nodes)  # type: ignore[arg-type]  # a score answers for many nodes at once
misspelt = NodeScore(count_nodes, depend=None)  # type: ignore[arg-type, call-arg]  # a field that does not exist is no silent no-op

view = session_view({"n1": {"gpu": 1}}, {"g": {}})
scores = only(NodeScore, plugin.open(view)).score
row: PodRow = pod_row(view, "g-0")
bare: PodRow = 0  # type: ignore[assignment]  # a bare int is no row
check_plugin(SameRack, weight=2.0)

RACK_IS_FULL = Words(code="RackIsFull", text=lambda facts: f"rack {facts['rack']} is full")
refusal = Verdict.refused(RACK_IS_FULL, rack="a")
same = Verdict((Reason(code=RACK_IS_FULL, facts={"rack": "a"}),))
passed_on = Verdict.refused(refusal.reasons[0].code, **refusal.reasons[0].facts)
explained: Reason[str] = Reason("RackIsFull", "rack a is full")
Verdict((explained,))  # type: ignore[arg-type]  # the code of a refusal has the texts, and a name has none
