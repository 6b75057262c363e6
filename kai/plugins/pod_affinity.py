"""Inter-pod affinity and anti-affinity: places pods near some pods and away from others.

``PodAffinity`` refuses nodes by required terms, ``PodAffinityScore`` rates nodes by preferred ones. A term selects pods
by label selector and namespace, and names a node label whose equal values form a domain. Terms are resolved once, to
masks of shapes, and so to rows of pods. The places of these pods are read from the live columns each time, so
placements, promises, moves and evictions of this session count at once, and undoing needs no extra work. A terminating
pod counts until it is gone.

Source: the peer's plugins/predicates and plugins/podaffinity, which run kube-scheduler's InterPodAffinity on the nodes
of the session, and count evicted pods until they are gone, so that no pod is ever evicted for a required term. The
peer remembers for the rest of a session that no term applied to a pod at its first attempt; here every attempt checks.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final

import attrs
import numpy as np

from kai.framework import (
    AffinityTerm,
    Bools,
    Constraints,
    Dependence,
    Extension,
    Int64s,
    LabelTable,
    NodeFilter,
    NodeRows,
    NodeScore,
    NodeWait,
    Placement,
    PodRow,
    PodRows,
    Scores,
    Selector,
    SessionView,
)
from kai.framework.kept import UNBOUNDED, RoomRule, batch_of

NOT_NEAR = "node(s) didn't match pod affinity rules"
NOT_AWAY = "node(s) didn't match pod anti-affinity rules"
KEPT_OFF = "node(s) didn't satisfy existing pods anti-affinity rules"

ShapeMasks = defaultdict[str, Bools]
"""By topology key: the shapes that matter there."""


class ShapeTerms:
    """Which shapes a term means: the terms of a session, resolved once each, and kept while shapes are the same.

    Pods that run carry their terms for as long as they run, and one may have a thousand: no cycle pays for them anew.
    """

    @classmethod
    def of(cls, session: SessionView) -> "ShapeTerms":
        """Return the terms of ``session``, memoized while shapes and namespaces are the same objects."""
        inputs = (session.snapshot.shapes, session.snapshot.catalog.namespaces)
        return session.once("terms of shapes", inputs, lambda: cls(session))

    def __init__(self, session: SessionView) -> None:
        """Look at the shapes of ``session``."""
        snapshot, shapes = session.snapshot, session.snapshot.shapes
        self.constraints: Sequence[Constraints] = snapshot.by_shape("constraints", lambda shape: shape.constraints)
        labels = snapshot.by_shape("labels of shapes", lambda shape: dict(shape.labels))
        self._labels = snapshot.memory.once("label table of shapes", (shapes,), lambda: LabelTable(labels))
        self._namespaces = snapshot.by_shape("namespaces of shapes", lambda shape: shape.namespace)
        self._namespace_labels = session.snapshot.catalog.namespaces
        self._by_selector: dict[Selector | None, Bools] = {}
        self._by_namespace: dict[tuple[tuple[str, ...], Selector | None], Bools] = {}
        self._carried: dict[str, Carried] = {}

    @cached_property
    def repelling_themselves(self) -> Mapping[str, Bools]:
        """By topology key, bool[K]: shapes whose pods keep away from each other there."""
        found: ShapeMasks = defaultdict(lambda: np.zeros(len(self.constraints), np.bool_))
        for shape, each in enumerate(self.constraints):
            for term in each.anti_affinity:
                if self.meant_by(term)[shape]:
                    found[term.topology_key][shape] = True
        return found

    def carried(self, kind: str) -> "Carried":
        """Return the terms of a ``kind``, which is a field of constraints; resolved on first use."""
        if kind not in self._carried:
            self._carried[kind] = Carried(self, (getattr(each, kind) for each in self.constraints))
        return self._carried[kind]

    def meant_by(self, term: AffinityTerm) -> Bools:
        """Return bool[K]: the shapes of pods that ``term`` is about."""
        if term.selector not in self._by_selector:
            self._by_selector[term.selector] = self._labels.selects(term.selector)
        mask: Bools = self._by_selector[term.selector] & self._in_namespaces(term)
        return mask

    def _in_namespaces(self, term: AffinityTerm) -> Bools:
        key = (term.namespaces, term.namespace_selector)
        if key not in self._by_namespace:
            every = AffinityTerm("", Selector(), term.namespaces, term.namespace_selector)
            allowed = {name for name in set(self._namespaces) if every.selects(name, {}, self._namespace_labels)}
            self._by_namespace[key] = np.array([name in allowed for name in self._namespaces], np.bool_)
        return self._by_namespace[key]

    def meant_by_all(self, terms: Iterable[AffinityTerm]) -> Bools:
        """Return bool[K]: the shapes of pods that every one of ``terms`` is about."""
        mask = np.ones(len(self.constraints), np.bool_)
        for term in terms:
            mask &= self.meant_by(term)
        return mask


class Carried:
    """Terms of one kind that shapes carry, and which other shapes they reach."""

    def __init__(self, terms: ShapeTerms, carried: Iterable[Sequence[AffinityTerm]]) -> None:
        """Resolve the terms of each shape; a shape that carries a term twice counts twice."""
        self._shapes: dict[AffinityTerm, list[int]] = {}
        for shape, each in enumerate(carried):
            for term in each:
                self._shapes.setdefault(term, []).append(shape)
        self.reached = np.zeros(len(terms.constraints), np.bool_)
        """bool[K]: shapes that some term is about."""
        self._reaching: dict[int, list[AffinityTerm]] = {}
        for term in self._shapes:
            meant = terms.meant_by(term)
            self.reached |= meant
            for reached in np.flatnonzero(meant):
                self._reaching.setdefault(int(reached), []).append(term)

    def reaching(self, shape: int) -> Iterator[tuple[AffinityTerm, list[int]]]:
        """Yield the terms that are about pods of ``shape``, each with the shapes that carry it."""
        for term in self._reaching.get(shape, ()):
            yield term, self._shapes[term]


# ------------------------------------------------------------------------------------------------------ required terms


@attrs.frozen(kw_only=True)
class PodAffinity:
    """Refuse nodes in domains without the pods that a pod must be near, or with pods that keep away from each other."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the filter, for shapes with required terms or meant by the required anti-affinity of others."""
        terms = ShapeTerms.of(session)
        # Anti-affinity binds both ways in Kubernetes: a pod without terms is kept off by the terms of others.
        repelling = terms.carried("anti_affinity")
        own = np.array([bool(each.affinity or each.anti_affinity) for each in terms.constraints], np.bool_)
        concerns = own | repelling.reached
        if not concerns.any():
            return ()
        rules: dict[int, _Rules] = {}

        def rules_of(pod: PodRow) -> _Rules:
            shape = session.shape_of(pod)
            if shape not in rules:
                rules[shape] = _Rules(session, terms, repelling, shape)
            return rules[shape]

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            mask = np.ones(len(nodes), np.bool_)
            for accepted in rules_of(pod).accepts(nodes):
                mask &= accepted
            return mask

        def explain_nodes(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
            texts = [""] * len(nodes)
            for reason, accepted in rules_of(pod).answers(nodes):
                for at in np.flatnonzero(~accepted):
                    texts[at] = texts[at] or reason
            return texts

        def must_wait(pod: PodRow, nodes: NodeRows) -> Bools:
            return rules_of(pod).waits(nodes)

        def rule_of(shape: int) -> RoomRule | None:
            if shape not in rules:
                rules[shape] = _Rules(session, terms, repelling, shape)
            return rules[shape].room_rule()

        keeping_away = repelling.reached | np.array([bool(each.anti_affinity) for each in terms.constraints], np.bool_)
        return (
            NodeFilter(
                filter_nodes,
                depends=Dependence.SESSION,
                concerns=concerns,
                explain=explain_nodes,
                single=_alone(session, terms),
            ),
            NodeWait(must_wait, concerns=keeping_away),
            Placement(batch=batch_of(session, keeping_away, rule_of), concerns=keeping_away),
        )


def _alone(session: SessionView, terms: ShapeTerms) -> Bools | None:
    """Return bool[K]: shapes that exclude a second pod of theirs from any node in a domain; None if there are none."""
    found: Bools | None = None
    for key, shapes in terms.repelling_themselves.items():
        # A node without the label is in no domain, and takes any number of such pods.
        if session.label_codes(key).all():  # code 0 is no domain
            found = shapes if found is None else found | shapes
    return found


_NONE: Final[PodRows] = np.zeros(0, np.int64)


class _Rules:
    """The required terms that bear on pods of one shape."""

    def __init__(self, session: SessionView, terms: ShapeTerms, repelling: Carried, shape: int) -> None:
        own = terms.constraints[shape]
        self._session = session
        self._near = tuple(dict.fromkeys(term.topology_key for term in own.affinity))
        wanted = terms.meant_by_all(own.affinity)
        self._wanted = session.pods_of_shapes(wanted) if own.affinity else np.zeros(0, np.int64)
        self._wants_itself = bool(wanted[shape])
        none = np.zeros(len(terms.constraints), np.bool_)
        away: ShapeMasks = defaultdict(none.copy)
        for term in own.anti_affinity:
            away[term.topology_key] |= terms.meant_by(term)
        kept_off: ShapeMasks = defaultdict(none.copy)
        for term, shapes in repelling.reaching(shape):
            kept_off[term.topology_key][shapes] = True
        self._shape = shape
        self._masks = {key: away[key] | kept_off[key] for key in dict.fromkeys((*away, *kept_off))}
        self._away = _rows(session, away)
        self._kept_off = _rows(session, kept_off)
        # Pods of one app that keep away from each other are in both, so that each is looked at once.
        self._apart = {
            key: np.union1d(self._away.get(key, _NONE), self._kept_off.get(key, _NONE))
            for key in dict.fromkeys((*self._away, *self._kept_off))
        }

    def accepts(self, nodes: NodeRows) -> Iterator[Bools]:
        """Yield bool[n] for each kind of refusal that nodes may have; all together mean the same as ``answers``."""
        if self._near:
            yield self._is_near(nodes)
        for key, pods in self._apart.items():
            codes = self._session.label_codes(key)
            _, there = self._session.staying(pods)
            yield ~_occupied(codes, there)[codes[nodes]]

    def room_rule(self) -> RoomRule | None:
        """Return how many more pods of the shape domains take; None where more than pods of one label's domains decide.

        A domain takes one pod that keeps away from its like, and none that keeps away from a pod there.
        """
        if self._near or len(self._masks) != 1:
            return None
        ((key, meant),) = self._masks.items()
        session, codes = self._session, self._session.label_codes(key)
        most = 1 if meant[self._shape] else UNBOUNDED
        own = session.once(f"whether {key} tells nodes apart", (codes,), lambda: len(np.unique(codes)) == len(codes))
        # Where each node is a domain, the cell of a node is its row. Else cell 0 is no domain, and takes any number.
        domains = session.nodes if own and codes.all() else codes

        def room(pods: PodRows) -> Int64s | None:
            if len(session.leaving(pods)[0]):
                return None
            left = np.full(int(domains.max(initial=0)) + 1, most, np.int64)
            left[domains[session.staying(pods)[1]]] = 0
            if domains is codes:
                left[0] = UNBOUNDED
            return left

        return RoomRule(key=(key, meant.tobytes(), most), meant=meant, domains=domains, room=room)

    def answers(self, nodes: NodeRows) -> Iterator[tuple[str, Bools]]:
        """Yield each kind of refusal with bool[n]: the accepted nodes; in the order of the peer's checks."""
        if self._near:
            yield NOT_NEAR, self._is_near(nodes)
        for reason, unwanted in ((NOT_AWAY, self._away), (KEPT_OFF, self._kept_off)):
            for key, pods in unwanted.items():
                codes = self._session.label_codes(key)
                _, there = self._session.staying(pods)
                yield reason, ~_occupied(codes, there)[codes[nodes]]

    def waits(self, nodes: NodeRows) -> Bools:
        """Return bool[n]: which of ``nodes`` share a domain with a leaving pod that excludes this one till then."""
        mask = np.zeros(len(nodes), np.bool_)
        for key, pods in self._apart.items():
            _, there = self._session.leaving(pods)
            if len(there):
                codes = self._session.label_codes(key)
                mask |= _occupied(codes, there)[codes[nodes]]
        return mask

    def _is_near(self, nodes: NodeRows) -> Bools:
        """Return bool[n]: the nodes whose domains all hold pods that match every term.

        The first pod of a series is excused, where no placed pod matches but the pod itself does. It needs the labels
        even so.
        """
        assigned = self._company()
        labelled = np.ones(len(nodes), np.bool_)
        mask = np.ones(len(nodes), np.bool_)
        anywhere = False
        for key in self._near:
            codes = self._session.label_codes(key)
            occupied = _occupied(codes, assigned)
            anywhere = anywhere or bool(occupied.any())
            labelled &= codes[nodes] > 0
            mask &= occupied[codes[nodes]]
        return labelled if self._wants_itself and not anywhere else mask

    def _company(self) -> NodeRows:
        """Return the places of the pods that this one must be near, without pods that the open statement evicts."""
        _, staying = self._session.staying(self._wanted)
        pods, left = self._session.leaving(self._wanted)
        # An evicted pod is no company: this pod may only start once that one is gone. One that terminates by itself
        # counts for as long as it is there.
        if not len(pods):
            return staying
        return np.concatenate([staying, left[self._session.columns.evicted_status[pods] == 0]])


def _rows(session: SessionView, masks: ShapeMasks) -> Mapping[str, PodRows]:
    return {key: session.pods_of_shapes(shapes) for key, shapes in masks.items()}


def _occupied(codes: Int64s, assigned: NodeRows) -> Bools:
    """Return bool by code of a domain: whether one of the nodes ``assigned`` is in it. Code 0 is no domain."""
    out = np.zeros(int(codes.max(initial=0)) + 1, np.bool_)
    out[codes[assigned]] = True
    out[0] = False
    return out


# ----------------------------------------------------------------------------------------------------- preferred terms


@attrs.frozen(kw_only=True)
class PodAffinityScore:
    """Score nodes by preferred terms, of the pod and of the pods on the node.

    A node gets ``weight`` times the weight of each term, for each pod in the domain that the term means or that has it.
    """

    weight: float = 1_000_000.0

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the score, for shapes with preferred terms or selected by those of others."""
        terms = ShapeTerms.of(session)
        liking, loathing = terms.carried("preferred_affinity"), terms.carried("preferred_anti_affinity")
        own = np.array(
            [bool(each.preferred_affinity or each.preferred_anti_affinity) for each in terms.constraints], np.bool_
        )
        concerns = own | liking.reached | loathing.reached
        if not concerns.any():
            return ()
        wishes: dict[int, _Wishes] = {}

        def score_nodes(pod: PodRow, nodes: NodeRows) -> Scores:
            shape = session.shape_of(pod)
            if shape not in wishes:
                wishes[shape] = _Wishes(session, terms, (liking, loathing), shape)
            return self.weight * wishes[shape].totals(nodes)

        return (NodeScore(score_nodes, concerns=concerns),)


class _Wishes:
    """The preferred terms that bear on pods of one shape, as what each pod of other shapes is worth in its domain."""

    def __init__(self, session: SessionView, terms: ShapeTerms, others: tuple[Carried, Carried], shape: int) -> None:
        own = terms.constraints[shape]
        self._session = session
        self._worth: dict[str, Int64s] = {}
        self._shapes = len(terms.constraints)
        for sign, wished in ((1, own.preferred_affinity), (-1, own.preferred_anti_affinity)):
            for term in wished:
                self._of(term.topology_key)[terms.meant_by(term)] += sign * term.weight
        for sign, carried in zip((1, -1), others, strict=True):
            for term, shapes in carried.reaching(shape):
                # Not `+=`, which would count a shape that carries the term twice only once.
                np.add.at(self._of(term.topology_key), shapes, sign * term.weight)

    def _of(self, key: str) -> Int64s:
        return self._worth.setdefault(key, np.zeros(self._shapes, np.int64))

    @cached_property
    def _pods(self) -> Mapping[str, PodRows]:
        return {key: self._session.pods_of_shapes(worth != 0) for key, worth in self._worth.items()}

    def totals(self, nodes: NodeRows) -> Scores:
        """Return float64[n]: for each node, the sum of the weights of the pods in its domains."""
        total = np.zeros(len(nodes), np.float64)
        for key, worth in self._worth.items():
            codes = self._session.label_codes(key)
            pods, assigned = self._session.assigned(self._pods[key])
            by_domain = np.bincount(
                codes[assigned],
                weights=worth[self._session.facts.pods.shape[pods]],
                minlength=int(codes.max(initial=0)) + 1,
            )
            # Code 0 stands for nodes without the label, which are no domain.
            by_domain[0] = 0.0
            total += by_domain[codes[nodes]]
        return total
