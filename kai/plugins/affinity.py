"""Send pods only to nodes that they select: by node selectors, required affinity, and features that they need.

Preferred node affinity is not asked about: the peer does not score it.

Source: the peer's plugins/predicates, which runs kube-scheduler's NodeAffinity filter; of Kubernetes 1.36 and later its
    NodeDeclaredFeatures filter.
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
LACKING = "node(s) didn't match Pod's required features"

Demand = tuple[tuple[tuple[str, str], ...], tuple[NodeTerm, ...] | None, frozenset[str]]


@attrs.frozen(kw_only=True)
class Affinity:
    """Refuse nodes whose labels, name or features are not those that a pod selects, requires or needs."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the filter, for the shapes that select nodes."""
        demands = session.snapshot.by_shape("where shapes want to be", _demand)
        concerns = np.array([any((selector, terms is not None, features)) for selector, terms, features in demands])
        if not concerns.any():
            return ()
        masks: dict[Demand, Bools] = {}

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            demand = demands[session.shape_of(pod)]
            if demand not in masks:
                masks[demand] = _matching(session, demand)
            return masks[demand][nodes]

        def explain(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
            selected = _selected(session, demands[session.shape_of(pod)])[nodes]
            return [LACKING if fit else REFUSED for fit in selected.tolist()]

        return (NodeFilter(filter_nodes, depends=Dependence.SHAPE, concerns=concerns, explain=explain),)


def _demand(shape: Shape) -> Demand:
    constraints = shape.constraints
    return constraints.node_selector, constraints.node_affinity, frozenset(constraints.features)


def _matching(session: SessionView, demand: Demand) -> Bools:
    mask, (_, _, features) = _selected(session, demand), demand
    if not features:
        return mask
    declared = [node.features is None or features <= node.features for node in session.snapshot.nodes]
    return mask & np.array(declared, np.bool_)


def _selected(session: SessionView, demand: Demand) -> Bools:
    selector, terms, _ = demand
    mask = session.node_labels.satisfies(Requirement(key, "In", (value,)) for key, value in selector)
    return mask if terms is None else mask & session.selected_nodes(terms)
