"""Shapes: identical pods share one row, whatever their owners; pods that nodes refused get shapes of their own.

The engine evaluates a shape once for all of its pods. A shape of a refused pod names the nodes not to try, so a refusal
costs what a node selector costs. The signature changes with it: that no node is found for such a pod implies nothing
about others.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Sequence
from operator import attrgetter, is_not

import attrs
import numpy as np

from kai.facts.model.axis import GPU_UNIT, Int64s, locked
from kai.facts.model.placement import NoRoom
from kai.facts.model.pod import Constraints, Pod, Shape
from kai.facts.model.units import packed
from kai.facts.state.memory import replaced
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
        row = bisect_left(records, (each.namespace, each.pod), key=_order)
        if row < len(records) and records[row].order == (each.namespace, each.pod) and pods[row].uid == each.uid:
            by_row.setdefault(row, []).append((each.node, each.reason))
    if not by_row:
        return pods, shapes, pod_shape
    made: dict[Shape, int] = {}
    numbers, changed = pod_shape.copy(), dict[int, Pod]()
    for row, refusing in sorted(by_row.items()):
        shape = shapes[pod_shape[row]]
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
            if record.token is token:
                continue
            if references or not silent:
                record.shape = self._number(demand, traits.constraints, surroundings.of(record))
            else:
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
        if len(shapes) != len(self._used) or any(map(is_not, shapes, self._used)):
            self._used = shapes
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
