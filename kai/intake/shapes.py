"""Shapes of pods, and turns: which kinds of waiting pods a cycle considers.

Identical pods share one row, whatever their owners; pods that nodes refused get shapes of their own.

The engine evaluates a shape once for all of its pods. A shape of a refused pod names the nodes not to try, so a refusal
costs what a node selector costs. The signature changes with it: that no node is found for such a pod implies nothing
about others.

Turns: a cycle considers a bounded number of pending pods and of kinds in each namespace, in rotation.

A group costs little if it resembles one that the cycle has looked at before; otherwise it costs as much as a pod of any
other user. A user with thousands of pods that all differ would lengthen every cycle accordingly. So the kinds of
waiting groups in a namespace are dealt into turns, oldest first, and each cycle has one turn of each namespace:

    bound 2      kinds, oldest first   a b | c d | e      turns 0, 1, 2
    cycle 7      7 mod 3 = 1           c and d are considered; groups of the others wait for their turn

A kind is what pods ask for. Pods with resource claims of their own have shapes of their own, because a shape names the
claims; where these claims ask for the same, such pods are of one kind.

Thousands of groups of one kind cost less each, and together as much. So within a turn, groups with a bounded number of
pods are considered. Half of that number goes to the first groups by priority and age, which are considered in every
cycle of their turn, because without a bound they would be served first too. The other groups come one part after the
other. A group is never split, however large it is.

The turn follows from the number of the cycle, so the same input gives the same snapshot. Groups for which others were
evicted are always considered. Otherwise a waiting group is treated as usual: its requests count in fair shares.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import attrgetter, is_not
from typing import Final

import attrs
import numpy as np

from kai.facts.model.axis import GPU_UNIT, GroupRows, Int64s, locked
from kai.facts.model.groups import Crowd, Crowds, PodGroup
from kai.facts.model.placement import NoRoom
from kai.facts.model.pod import Constraints, Pod, Shape, Status
from kai.facts.model.units import packed
from kai.facts.state.memory import replaced
from kai.facts.state.snapshot import Snapshot
from kai.facts.state.table_version import Carrier, TableVersion
from kai.intake.pods import PodRecord
from kai.intake.requests import Demand
from kai.intake.surroundings import NOTHING, Additions, Surroundings
from kai.intake.traits import digest

_order = attrgetter("order")


def with_refusals(
    refused: Sequence[NoRoom],
    records: Sequence[PodRecord],
    pods: Sequence[Pod],
    shapes: tuple[Shape, ...],
    pod_shape: Int64s,
) -> tuple[Sequence[Pod], tuple[Shape, ...], Int64s]:
    """Return pods, shapes and the shape of each pod, with those of refused pods replaced; new shapes come last."""
    by_row: dict[int, list[tuple[str, str]]] = {}
    for each in refused:
        # A refusal is remembered by the pod's name and uid: a new pod of the name was refused by no node.
        row = bisect_left(records, (each.namespace, each.pod), key=_order)
        if row < len(records) and records[row].order == (each.namespace, each.pod) and pods[row].uid == each.uid:
            by_row.setdefault(row, []).append((each.node, each.reason))
    if not by_row:
        return pods, shapes, pod_shape
    made: dict[Shape, int] = {}
    numbers, changed = pod_shape.copy(), dict[int, Pod]()
    for row, refusing in sorted(by_row.items()):
        shape = shapes[pod_shape[row]]
        # Sorted, so that pods that the same nodes refused in another order share a shape.
        shape = attrs.evolve(shape, constraints=attrs.evolve(shape.constraints, refusing=tuple(sorted(refusing))))
        numbers[row] = made.setdefault(shape, len(shapes) + len(made))
        nodes = sorted(node for node, _ in refusing)
        changed[row] = attrs.evolve(pods[row], signature=digest([pods[row].signature, nodes]))
    return replaced(pods, changed), (*shapes, *made), numbers.astype(np.int64)


_MANY = 1 << 13


class ShapeTable:
    """All shapes seen so far, each with a permanent number; a snapshot has those in use, renumbered."""

    def __init__(self) -> None:
        self._shapes: list[Shape] = []
        self._numbers: dict[Shape, int] = {}
        self._known: dict[Hashable, int] = {}
        self._alone: dict[tuple[int, int], int] = {}
        """Shapes of pods without additions from their surroundings, by the identities of demand and constraints."""
        self._settled: Surroundings | None = None
        self._version = TableVersion()
        self._rows = Carrier()
        self._shape_of: Int64s = np.zeros(0, np.int64)
        self._used: tuple[Shape, ...] = ()
        self._ranked: tuple[Int64s, Int64s] | None = None
        """The shape numbers that were ranked last, and the row of each pod's shape."""

    @property
    def overgrown(self) -> bool:
        """Whether most memoized shapes belong to pods of the past."""
        return self._settled is not None and len(self._known) > _MANY + 4 * len(self._settled.records)

    def settle(self, surroundings: Surroundings) -> None:
        """Give every pod its shape.

        Cost: of fresh pods; of all pods, when something changed on which shapes of known pods depend.
        """
        records, version, tokens = surroundings.records, surroundings.version, surroundings.tokens
        before, mark = self._settled, self._version.mark
        if version is self._version and before is not None and before.tokens == tokens:
            return
        self._settled, self._version = surroundings, version
        if before is None or before.tokens != tokens or version.before is not mark:
            self._fit(records, surroundings)
        else:
            self._fit([records[row] for row in version.fresh.tolist()], surroundings)

        def read(rows: Sequence[int]) -> tuple[Int64s]:
            return (np.array([records[row].shape for row in rows], np.int64),)

        (self._shape_of,) = self._rows.columns("shapes", version, len(records), read, tokens)

    def _fit(self, records: Iterable[PodRecord], surroundings: Surroundings) -> None:
        """Give ``records`` their shapes; records whose shape is valid in these surroundings keep it."""
        tokens, alone, silent = surroundings.tokens, self._alone, surroundings.are_silent
        for record in records:
            traits, demand = record.traits, record.demand
            references = traits.references
            token = tokens[references]
            # A token is a new object whenever something changes on which shapes of this kind of pod depend, so identity
            # is the whole test.
            if record.token is token:
                continue
            if references or not silent:
                record.shape = self._number(demand, traits.constraints, surroundings.of(record))
            else:
                # Demands and constraints are interned and kept alive by the readers, so their identities serve as keys
                # here.
                key = (id(demand), id(traits.constraints))
                found = alone.get(key)
                if found is None:
                    found = alone[key] = self._number(demand, traits.constraints, NOTHING)
                record.shape = found
            record.token = token

    def used(self) -> tuple[tuple[Shape, ...], Int64s]:
        """Return the shapes of the pods settled last, in order of first use, and the row of each pod's shape.

        Cost: nothing while each pod has the shape that it had, else a pass over all pods.
        """
        if self._ranked is None or self._ranked[0] is not self._shape_of:
            self._ranked = self._shape_of, self._rank()
        return self._used, self._ranked[1]

    def _rank(self) -> Int64s:
        """Find the shapes in use, and return the row of each pod's shape."""
        numbers = self._shape_of
        count = len(numbers)
        counts = np.bincount(numbers, minlength=len(self._shapes))
        order = np.flatnonzero(counts)
        if len(order) > 1:
            first = np.full(len(self._shapes), count, np.int64)
            first[numbers[::-1]] = np.arange(count - 1, -1, -1)  # the last write wins, so each shape gets its first pod
            order = order[np.argsort(first[order])]
        shapes = tuple([self._shapes[number] for number in order])
        # The former tuple stays while its shapes are the same objects: masks, requests and kinds are memoized by that
        # tuple.
        if len(shapes) != len(self._used) or any(map(is_not, shapes, self._used)):
            self._used = shapes
        # Also spares a copy: the column of numbers is given as it is, and so keeps its identity from cycle to cycle.
        if (order == np.arange(len(order))).all():  # they are numbered in this order already
            return numbers
        rank = np.empty(len(self._shapes), np.int64)
        rank[order] = np.arange(len(order))
        return locked(rank[numbers])

    def _number(self, demand: Demand, constraints: Constraints, around: Additions) -> int:
        """Return the number of a shape. Demands and constraints are interned, so their identities stand for them."""
        key = (id(demand), id(constraints), around)
        found = self._known.get(key)
        if found is None:
            shape = _shape(demand, constraints, around)
            # Different parts may still make equal shapes; these share a number.
            found = self._numbers.setdefault(shape, len(self._shapes))
            if found == len(self._shapes):
                self._shapes.append(shape)
            self._known[key] = found
        return found


def _shape(demand: Demand, constraints: Constraints, around: Additions) -> Shape:
    request, gpu = demand.request, demand.gpu
    if around.claimed:
        total = dict(request)
        total["gpu"] = total.get("gpu", 0) + around.claimed * GPU_UNIT
        request = packed(total)
        gpu = attrs.evolve(
            gpu,
            claimed=around.claimed,
            not_had=around.not_had,
            spared=around.spared,
            most_spared=around.most_spared,
        )
    if around.missing_config_maps:
        constraints = attrs.evolve(constraints, config_maps=around.missing_config_maps)
    return Shape(
        request=request,
        gpu=gpu,
        constraints=constraints,
        containers=demand.containers,
        guaranteed=demand.guaranteed,
        namespace=around.namespace,
        labels=around.labels,
    )


UNBOUNDED: Final = 0


@attrs.define(eq=False)
class Turns:
    """Deals waiting groups into turns. Shapes: P pods, G groups."""

    most: int
    """The most shapes of pending pods that a cycle considers in one namespace; 0 is all."""
    at_a_time: int = UNBOUNDED
    """The most pending pods that a cycle considers in one namespace; 0 is all."""
    _namespaces: dict[str, int] = attrs.field(factory=dict)

    def settle(self, snapshot: Snapshot) -> Crowds:
        """Return which groups wait for a turn in the cycle on ``snapshot``.

        Cost: a look at the statuses of pods while there are fewer than a bound; then a few passes over columns.
        """
        pods = self._crowding(snapshot)
        if pods is None:
            return NONE
        width = len(snapshot.shapes)
        # A group and a kind in one number: sorting numbers is much faster than sorting rows of two.
        pairs = np.unique(snapshot.pod_group[pods] * width + _kinds(snapshot)[snapshot.pod_shape[pods]])
        groups, first, sizes = np.unique(pairs // width, return_index=True, return_counts=True)
        # A group with pods of several shapes is a kind of its own; it counts as many as it has shapes.
        kinds = np.where(sizes == 1, pairs[first] % width, width + groups)
        spaces = self._namespaces_of(snapshot)[groups]
        # The row, which follows the name, breaks ties of age, so that turns do not depend on how objects arrived.
        rank = np.lexsort((groups, self._created(snapshot)[groups]))
        groups, kinds, sizes, spaces = groups[rank], kinds[rank], sizes[rank], spaces[rank]
        crowds: dict[str, Crowd] = {}
        later: list[Int64s] = []
        awaited = _rows_of(snapshot.past.awaited, snapshot.groups)
        pending = np.bincount(snapshot.pod_group[pods])
        for space in self._crowded(spaces, sizes, pending[groups]):
            mine = np.flatnonzero(spaces == space)
            turn_of, turns, shapes = self._deal(kinds[mine], sizes[mine])
            chosen = groups[mine][turn_of == snapshot.revision % turns]
            considered, parts = self._part(chosen, pending[chosen], snapshot, turns)
            if turns * parts == 1:
                continue
            waiting = groups[mine][~np.isin(groups[mine], np.concatenate((considered, awaited)))]
            among = int(pending[groups[mine]].sum())
            name = snapshot.groups[int(groups[mine[0]])].namespace
            crowds[name] = Crowd(
                namespace=name,
                shapes=shapes,
                considered=self.most,
                pods=among,
                at_a_time=self.at_a_time,
                turns=turns * self._parts(among),
                groups=waiting,
            )
            later.append(waiting)
        return Crowds(by_namespace=crowds, waiting=np.sort(np.concatenate(later))) if crowds else NONE

    def _crowding(self, snapshot: Snapshot) -> Int64s | None:
        """Return the pending pods; None if no namespace can exceed a bound on pods or on shapes."""
        fewest = min((each for each in (self.most, self.at_a_time) if each != UNBOUNDED), default=None)
        if fewest is None or len(snapshot.pods) <= fewest:
            return None
        if self.at_a_time == UNBOUNDED and len(snapshot.shapes) <= self.most:
            return None
        pods = np.flatnonzero(snapshot.pod_status == Status.PENDING)
        pods = pods[snapshot.pod_group[pods] >= 0]
        return pods if len(pods) > fewest else None

    def _crowded(self, spaces: Int64s, sizes: Int64s, pending: Int64s) -> list[int]:
        """Return the namespaces that may exceed a bound."""
        shapes, pods = np.bincount(spaces, weights=sizes), np.bincount(spaces, weights=pending)
        crowded = np.zeros(len(pods), np.bool_)
        if self.most != UNBOUNDED:
            crowded |= shapes > self.most
        if self.at_a_time != UNBOUNDED:
            crowded |= pods > self.at_a_time
        found: list[int] = np.flatnonzero(crowded).tolist()
        return found

    def _part(self, groups: GroupRows, pending: Int64s, snapshot: Snapshot, turns: int) -> tuple[GroupRows, int]:
        """Return the considered groups out of ``groups``, oldest first, and the number of parts."""
        if self._parts(int(pending.sum())) == 1:
            return groups, 1
        priority = np.array([snapshot.groups[row].priority for row in groups.tolist()], np.int64)
        rank = np.argsort(-priority, kind="stable")
        groups, pending = groups[rank], pending[rank]
        always = self.at_a_time // 2
        # A group belongs to the part in which its first pod falls. It is never split, so a part may exceed the bound by
        # one group.
        begins = np.cumsum(pending) - pending
        is_rest = begins >= always
        used, part = np.unique((begins[is_rest] - always) // (self.at_a_time - always), return_inverse=True)
        parts = max(1, len(used))  # a group with many pods may leave parts empty
        # The turn moves with each cycle and the part with each round of turns; both by the cycle's number would leave
        # out some pairs of turn and part for ever where the counts have a common divisor.
        chosen = part == (snapshot.revision // turns) % parts
        return np.concatenate((groups[~is_rest], groups[is_rest][chosen])), parts

    def _parts(self, pods: int) -> int:
        """Return the most parts into which ``pods`` pods are divided."""
        if self.at_a_time == UNBOUNDED or pods <= self.at_a_time:
            return 1
        always = self.at_a_time // 2
        return -(-(pods - always) // (self.at_a_time - always))

    def _deal(self, kinds: Int64s, sizes: Int64s) -> tuple[Int64s, int, int]:
        """Return the turn of each group, the number of turns, and the number of shapes."""
        if self.most == UNBOUNDED:
            return np.zeros(len(kinds), np.int64), 1, len(np.unique(kinds))
        _, first, which = np.unique(kinds, return_index=True, return_inverse=True)
        by_age = np.argsort(first)
        weights = sizes[first[by_age]]
        ends = np.cumsum(weights)
        turn: Int64s = np.empty(len(by_age), np.int64)
        # By where a kind begins: one with more shapes than the bound stays in one turn.
        turn[by_age] = (ends - weights) // self.most
        used, number = np.unique(turn, return_inverse=True)  # a kind with many shapes may leave turns empty
        return number[which].astype(np.int64), len(used), int(ends[-1])

    def _namespaces_of(self, snapshot: Snapshot) -> Int64s:
        """Return int64[G]: equal numbers for groups of one namespace."""
        groups, numbers = snapshot.groups, self._namespaces

        def read(rows: Sequence[int]) -> tuple[Int64s]:
            return (np.array([numbers.setdefault(groups[row].namespace, len(numbers)) for row in rows], np.int64),)

        (found,) = snapshot.memory.rows.columns(
            "group namespaces", snapshot.versions.groups, len(groups), read, (numbers,)
        )
        return found

    @staticmethod
    def _created(snapshot: Snapshot) -> Int64s:
        groups = snapshot.groups

        def read(rows: Sequence[int]) -> tuple[Int64s]:
            # In whole seconds, as Kubernetes writes them; `lexsort` then has ties where the clock had them.
            return (np.array([round(groups[row].created) for row in rows], np.int64),)

        (found,) = snapshot.memory.rows.columns("group seconds", snapshot.versions.groups, len(groups), read)
        return found


def _kinds(snapshot: Snapshot) -> Int64s:
    """Return int64[K]: for each shape, the first shape that asks for the same, whatever its claims are called.

    Cost: a look at each shape that is new or whose claims may have changed.
    """
    catalog = snapshot.catalog.claims.claims

    def asked(shape: Shape) -> tuple[Shape, tuple[object, ...]] | None:
        # A claim that cannot be found stands for itself in the key: what it asks for is not known.
        names = shape.constraints.claims
        found = [(each, catalog.get((shape.namespace, each.claim))) for each in names]
        wanted = tuple([each if claim is None else (claim.requests, claim.constraints) for each, claim in found])
        return (attrs.evolve(shape, constraints=attrs.evolve(shape.constraints, claims=())), wanted) if names else None

    kinds = np.arange(len(snapshot.shapes))
    first: dict[object, int] = {}
    for row, key in enumerate(snapshot.by_shape("kinds of pods", asked, catalog) if catalog else ()):
        if key is not None:
            kinds[row] = first.setdefault(key, row)
    return kinds


def _rows_of(keys: Sequence[str], groups: Sequence[PodGroup]) -> Int64s:
    """Return the rows of the groups with these keys."""
    if not keys:
        return np.zeros(0, np.int64)
    wanted = frozenset(keys)
    return np.array([row for row, group in enumerate(groups) if group.key in wanted], np.int64)


_NOBODY: Final[Mapping[str, Crowd]] = {}
NONE: Final = Crowds(by_namespace=_NOBODY, waiting=np.zeros(0, np.int64))
