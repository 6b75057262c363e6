"""Topology spread constraints with ``DoNotSchedule``: spreads pods evenly over domains.

A constraint selects pods of the pod's own namespace by label selector, and names a node label whose equal values form a
domain. A node is refused if its domain would hold more than ``maxSkew`` selected pods above the domain with the fewest,
or if it lacks the label. Constraints with ``ScheduleAnyway`` are preferences and are ignored.

The selected shapes and the domains of nodes are computed once in a session. The places of pods are read from the live
columns each time, so placements, promises, moves and evictions of this session count at once, and undoing needs no
extra work. A terminating or evicted pod no longer counts, because its end makes the room in its domain.

Source: kube-scheduler's PodTopologySpread filter. The peer does not run it.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from kai.framework import (
    Bools,
    Constraints,
    Dependence,
    Extension,
    Int64s,
    LabelTable,
    NodeFilter,
    NodeRows,
    Placement,
    PodRow,
    PodRows,
    Requirement,
    Selector,
    SessionView,
    Shape,
    SpreadConstraint,
    Taint,
    Toleration,
    tolerates,
)
from kai.framework.kept import UNBOUNDED, RoomRule, batch_of

UNEVEN = "node(s) didn't match pod topology spread constraints"
LACKING = f"{UNEVEN} (missing required label)"

_REPELLING = ("NoSchedule", "NoExecute")
_NAMESPACE = "namespace"


@attrs.frozen(kw_only=True)
class PodTopologySpread:
    """Refuse nodes in domains that would hold too many of the pods that a pod is to be spread with."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the filter, for shapes with such constraints."""
        demands = session.snapshot.by_shape("how shapes are spread", lambda shape: shape.constraints.spread)
        concerns = np.array([bool(spread) for spread in demands], np.bool_)
        if not concerns.any():
            return ()
        shapes = _Shapes(session)
        rules: dict[int, _Rules] = {}

        def rules_of(pod: PodRow) -> _Rules:
            shape = session.shape_of(pod)
            if shape not in rules:
                rules[shape] = _Rules(session, shapes, shape)
            return rules[shape]

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            return rules_of(pod).accepted(nodes)

        def explain_nodes(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
            return rules_of(pod).objections(nodes)

        def rule_of(shape: int) -> RoomRule | None:
            if shape not in rules:
                rules[shape] = _Rules(session, shapes, shape)
            return rules[shape].room_rule()

        return (
            NodeFilter(
                filter_nodes,
                depends=Dependence.SESSION,
                concerns=concerns,
                explain=explain_nodes,
                signatures=session.snapshot.by_shape("who is spread together", _signature),
            ),
            Placement(batch=batch_of(session, concerns, rule_of), concerns=concerns),
        )


def _signature(shape: Shape) -> str:
    """Return the key of pods with equal constraints: their namespaces, and the labels that selectors use."""
    return f"{shape.namespace} {shape.labels}" if shape.constraints.spread else ""


class _Shapes:
    """Which shapes a constraint means."""

    def __init__(self, session: SessionView) -> None:
        shapes = session.snapshot.shapes
        self._labels = session.once("labels of shapes", (shapes,), lambda: LabelTable([dict(s.labels) for s in shapes]))
        self._namespaces = session.once(
            "namespaces of shapes", (shapes,), lambda: LabelTable([{_NAMESPACE: s.namespace} for s in shapes])
        )
        self._selected: dict[tuple[Selector | None, tuple[Requirement, ...]], Bools] = {}

    def meant_by(self, constraint: SpreadConstraint, shape: Shape) -> Bools:
        """Return bool[K]: the shapes of pods that ``constraint`` counts, for a pod of ``shape``.

        An absent selector means none; beside keys whose values are to match, those alone decide.
        """
        labels = dict(shape.labels)
        equal = tuple([Requirement(key, "In", (labels[key],)) for key in constraint.match_label_keys if key in labels])
        key = (constraint.selector, equal)
        if key not in self._selected:
            selector = Selector() if constraint.selector is None and equal else constraint.selector
            self._selected[key] = self._labels.selects(selector) & self._labels.satisfies(equal)
        return self._selected[key] & self._namespaces.matches(Requirement(_NAMESPACE, "In", (shape.namespace,)))


class _Rules:
    """The constraints that pods of one shape have."""

    def __init__(self, session: SessionView, shapes: _Shapes, number: int) -> None:
        shape = session.snapshot.shapes[number]
        spread = shape.constraints.spread
        # A node that lacks the label of one constraint counts for none.
        labelled = np.ones(len(session.snapshot.nodes), np.bool_)
        for each in spread:
            labelled &= session.label_codes(each.topology_key) > 0
        honors = [(each.honors_affinity, each.honors_taints) for each in spread]
        counted = {kind: labelled & _included(session, kind, shape.constraints) for kind in set(honors)}
        self._each = [
            _Rule(session, each, number, shapes.meant_by(each, shape), counted[kind])
            for each, kind in zip(spread, honors, strict=True)
        ]

    def room_rule(self) -> RoomRule | None:
        """Return how many more pods domains take; None where more than one constraint decides."""
        return self._each[0].room_rule() if len(self._each) == 1 else None

    def accepted(self, nodes: NodeRows) -> Bools:
        """Return bool[n]: which of ``nodes`` the pod may go to."""
        mask = np.ones(len(nodes), np.bool_)
        for each in self._each:
            mask &= each.is_in_domain(nodes) & each.is_even(nodes)
        return mask

    def objections(self, nodes: NodeRows) -> Sequence[str]:
        """Return the text of the first constraint that refuses a node, "" for nodes that none refuses."""
        texts = [""] * len(nodes)
        for each in self._each:
            for text, fine in ((LACKING, each.is_in_domain(nodes)), (UNEVEN, each.is_even(nodes))):
                for at in np.flatnonzero(~fine):
                    texts[at] = texts[at] or text
        return texts


class _Rule:
    """One constraint of pods of one shape."""

    def __init__(
        self,
        session: SessionView,
        constraint: SpreadConstraint,
        number: int,
        meant: Bools,
        counted: Bools,
    ) -> None:
        self._session = session
        self._codes = session.label_codes(constraint.topology_key)
        self._counted = counted
        self._exists = np.zeros(int(self._codes.max(initial=0)) + 1, np.bool_)
        self._exists[self._codes[self._counted]] = True
        self._too_few = int(self._exists.sum()) < constraint.min_domains
        self._meant = meant
        self._pods = session.pods_of_shapes(meant)
        # A pod that its own constraint means adds one to the domain that it joins.
        self._most = constraint.max_skew - int(meant[number])
        self._means_itself = bool(meant[number])

    def is_in_domain(self, nodes: NodeRows) -> Bools:
        """Return bool[n]: which of ``nodes`` have the label."""
        mask: Bools = self._codes[nodes] > 0
        return mask

    def is_even(self, nodes: NodeRows) -> Bools:
        """Return bool[n]: which of ``nodes`` have room in their domains for one more pod; False without a domain."""
        held = self._held()
        # Below minDomains Kubernetes takes the minimum as 0; minDomains is at least 1, so `min` never sees nothing.
        fewest = 0 if self._too_few else int(held[self._exists].min())
        mask: Bools = (held - fewest <= self._most)[self._codes[nodes]]
        return mask

    def room_rule(self) -> RoomRule:
        """Return how many more pods of the shape domains take.

        A pod that the constraint means takes one from its domain. Once all domains have taken one, each takes one more.
        """
        # Domains in a row, and one cell behind them for nodes without the label. Nodes that have it and do not count
        # may take pods, but these would change nothing.
        numbers = np.where(self._exists, np.cumsum(self._exists) - 1, -1)
        domains = np.where(self._codes > 0, np.where(self._counted, numbers[self._codes], -1), self._exists.sum())
        key = self._meant.tobytes(), domains.tobytes(), self._most, self._means_itself, self._too_few

        def room(_: PodRows) -> Int64s:
            held = self._held()[self._exists]
            left = self._most + 1 - (held if self._too_few else held - held.min())
            if not self._means_itself:
                left = np.where(left > 0, UNBOUNDED, 0)
            return np.append(left, -UNBOUNDED)

        refills = self._means_itself and not self._too_few
        return RoomRule(key=key, meant=self._meant, domains=domains, room=room, refill=self._most + 1 if refills else 0)

    def _held(self) -> Int64s:
        """Return int64 by code of a domain: how many pods it holds. Code 0 is no domain, and holds none.

        Cost: O(pods that the constraint means), and of domains.
        """
        # Pods on nodes that do not count are not counted in their domain either, as in kube-scheduler.
        where = self._session.columns.node[self._session.placed(self._pods)]
        where = where[where >= 0]
        where = where[self._counted[where]]
        return np.bincount(self._codes[where], minlength=len(self._exists))


def _included(session: SessionView, honors: tuple[bool, bool], demands: Constraints) -> Bools:
    """Return bool[N]: the nodes that make domains for a pod that demands these things of nodes.

    ``honors``: whether the constraint goes by node affinity, and by taints. Cost: a look at each node.
    """
    affinity, taints = honors
    nodes = session.snapshot.nodes
    mask = np.ones(len(nodes), np.bool_)
    if affinity:
        mask &= session.node_labels.satisfies(Requirement(key, "In", (value,)) for key, value in demands.node_selector)
        if demands.node_affinity is not None:
            mask &= session.selected_nodes(demands.node_affinity)
    if taints:
        known = {each: _puts_up_with(each, demands.tolerations) for each in {node.taints for node in nodes}}
        mask &= np.array([known[node.taints] for node in nodes], np.bool_)
    return mask


def _puts_up_with(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> bool:
    repelling = [taint for taint in taints if taint.effect in _REPELLING]
    return all(any(tolerates(each, taint) for each in tolerations) for taint in repelling)
