"""A third party's plugin type-checks against the public names alone, and a wrong one does not."""

import attrs
import numpy as np

from kai.framework import Hooks, NodeRows, Plugin, PodRow, Scores, SessionView
from kai.testing import check_plugin, pod_row, session_view


@attrs.frozen(kw_only=True)
class SameRack:
    """The plugin of the documentation."""

    label: str = "topology.kubernetes.io/rack"
    weight: float = 1.0

    def open(self, session: SessionView) -> Hooks:
        """Return one hook."""
        racks = session.label_codes(self.label)

        def score_nodes(pod: PodRow, nodes: NodeRows) -> Scores:
            neighbours = racks[session.nodes_of(session.group_of(pod))]
            in_rack = np.bincount(neighbours, minlength=racks.max(initial=0) + 1).astype(np.float64)
            return in_rack[racks[nodes]] * self.weight

        return Hooks(score_nodes=score_nodes)


def count_nodes(pod: PodRow) -> int:
    """Not what a hook is."""
    return int(pod)


plugin: Plugin = SameRack(weight=2.0)
wrong_option = SameRack(weight="much")  # type: ignore[arg-type]  # an option has the type of its field
wrong_hook = Hooks(score_nodes=count_nodes)  # type: ignore[arg-type]  # a hook answers for many nodes at once
misspelt = Hooks(score_node=None)  # type: ignore[call-arg]  # a hook that does not exist is no silent no-op

view = session_view({"n1": {"gpu": 1}}, {"g": {}})
scores = plugin.open(view).score_nodes
row: PodRow = pod_row(view, "g-0")
bare: PodRow = 0  # type: ignore[assignment]  # a bare int is no row
check_plugin(SameRack, weight=2.0)
