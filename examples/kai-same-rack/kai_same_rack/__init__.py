"""Prefer nodes in racks that already hold pods of the same group."""

from collections.abc import Sequence

import attrs
import numpy as np
from kai.framework import Dependence, Extension, NodeRows, NodeScore, PodRow, Scores, SessionView


@attrs.frozen(kw_only=True)
class SameRack:
    """Score ``weight`` for each pod of the group that already sits in the node's rack."""

    label: str = "topology.kubernetes.io/rack"
    weight: float = attrs.field(default=1.0, validator=attrs.validators.ge(0.0))

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Look up the racks once; answer for many nodes at a time."""
        racks = session.label_codes(self.label)  # one code for each node; 0 where the label is absent

        def score_nodes(pod: PodRow, nodes: NodeRows) -> Scores:
            neighbours = racks[session.nodes_of(session.group_of(pod))]
            in_rack = np.bincount(neighbours, minlength=racks.max(initial=0) + 1).astype(np.float64)
            in_rack[0] = 0.0
            return in_rack[racks[nodes]] * self.weight

        return [NodeScore(score_nodes, depends=Dependence.GROUP)]
