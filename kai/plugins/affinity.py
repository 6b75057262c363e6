"""Send pods only to nodes that they select: node selectors, and required affinity to labels and names of nodes.

Preferred node affinity is not asked about: the peer does not score it.

Source: the peer's plugins/predicates, which runs kube-scheduler's NodeAffinity filter.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from kai.framework import (
    Bools,
    Dependence,
    Extension,
    NodeFilter,
    NodeRows,
    NodeTerm,
    PodRow,
    Requirement,
    SessionView,
    Shape,
)

REFUSED = "node(s) didn't match Pod's node affinity/selector"

Demand = tuple[tuple[tuple[str, str], ...], tuple[NodeTerm, ...] | None]


@attrs.frozen(kw_only=True)
class Affinity:
    """Refuse nodes whose labels or name a pod's selector or required affinity does not match."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the filter, for the shapes that select nodes."""
        demands = session.snapshot.by_shape("where shapes want to be", _demand)
        concerns = np.array([bool(selector) or terms is not None for selector, terms in demands], np.bool_)
        if not concerns.any():
            return ()
        masks: dict[Demand, Bools] = {}

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            demand = demands[session.shape_of(pod)]
            if demand not in masks:
                masks[demand] = _matching(session, demand)
            return masks[demand][nodes]

        return (NodeFilter(filter_nodes, depends=Dependence.SHAPE, concerns=concerns, explain=_explain),)


def _demand(shape: Shape) -> Demand:
    return shape.constraints.node_selector, shape.constraints.node_affinity


def _matching(session: SessionView, demand: Demand) -> Bools:
    selector, terms = demand
    mask = session.node_labels.satisfies(Requirement(key, "In", (value,)) for key, value in selector)
    return mask if terms is None else mask & session.selected_nodes(terms)


def _explain(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
    del pod
    return [REFUSED] * len(nodes)
