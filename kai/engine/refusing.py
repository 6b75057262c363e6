"""Nodes that refused a pod at its bind are not tried again, whatever plugins are on."""

from collections.abc import Sequence

import numpy as np

from kai.engine.opened import OpenedPlugin
from kai.framework.hooks import Dependence, NodeFilter
from kai.framework.view import SessionView
from kai.model.rows import Bools, NodeRows, PodRow

NAME = "refusals"


def refusing_nodes(session: SessionView) -> list[OpenedPlugin]:
    """Return the filter as that of one more plugin, for the shapes of pods that some node refused; none without."""
    if not session.snapshot.past.refused:
        return []
    shapes = session.snapshot.shapes
    refused = session.snapshot.by_shape("shapes that nodes refused", lambda shape: bool(shape.constraints.refusing))
    concerns = np.array(refused, np.bool_)
    if not concerns.any():
        return []
    rows = session.snapshot.node_rows

    def refusals(pod: PodRow) -> dict[int, str]:
        found = shapes[session.shape_of(pod)].constraints.refusing
        return {rows[node]: reason for node, reason in found if node in rows}

    def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
        mask: Bools = ~np.isin(nodes, list(refusals(pod)))
        return mask

    def explain_nodes(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
        said = refusals(pod)
        return [f"node(s) refused it: {said[node]}" for node in nodes.tolist()]

    filters = NodeFilter(filter_nodes, depends=Dependence.SHAPE, explain=explain_nodes)
    return [OpenedPlugin(name=NAME, concerns=concerns, node_filter=filters)]
