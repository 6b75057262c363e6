"""Bring pods back to the nodes that they were promised in an earlier cycle.

Source: the peer's plugins/nominatednode.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from kai.framework import NONE, Dependence, Extension, NodeRows, NodeScore, PodRow, Scores, SessionView, Shape


@attrs.frozen(kw_only=True)
class NominatedNode:
    """Prefer the node that a pod's status nominates, by ``weight``: more than all other scores together."""

    weight: float = 10_000_000.0

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the score, for the shapes with a nominated node of this snapshot."""
        rows = session.snapshot.node_rows

        def row_of(shape: Shape) -> int:
            return rows.get(shape.constraints.nominated_node, NONE)

        nominated = np.array(session.snapshot.by_shape("nominated nodes", row_of, rows), np.int64)
        if not (nominated >= 0).any():
            return ()

        def score_nodes(pod: PodRow, nodes: NodeRows) -> Scores:
            return np.where(nodes == nominated[session.shape_of(pod)], self.weight, 0.0)

        return (NodeScore(score_nodes, depends=Dependence.SHAPE, concerns=nominated >= 0),)
