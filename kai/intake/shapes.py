"""Shapes: identical pods are one row, whoever owns them."""

from collections.abc import Hashable

import attrs
import numpy as np

from kai.intake.neighbours import Neighbours, Surroundings
from kai.intake.requests import Demand, packed
from kai.model.axis import GPU_UNIT
from kai.model.pod import Constraints, Shape
from kai.model.rows import Int64s

_MANY = 1 << 17


class ShapeTable:
    """All shapes seen so far, each with a number that stays; a snapshot holds those in use, numbered anew."""

    def __init__(self) -> None:
        self._shapes: list[Shape] = []
        self._numbers: dict[Shape, int] = {}
        self._known: dict[Hashable, int] = {}
        self._settled: Neighbours | None = None
        self._shape_of: Int64s = np.zeros(0, np.int64)

    @property
    def overgrown(self) -> bool:
        """Whether most of what is remembered belongs to pods of the past."""
        return self._settled is not None and len(self._known) > _MANY + 4 * len(self._settled.cells)

    def settle(self, neighbours: Neighbours) -> bool:
        """Give every pod its shape and signature. Return whether a signature changed."""
        cells, before = neighbours.cells, self._settled
        tokens = neighbours.tokens
        self._settled = neighbours
        if before is not None and before.cells is cells and before.tokens == tokens:
            return False
        changed = False
        for cell in cells:
            token = tokens[cell.traits.needs]
            if cell.token is token:
                continue
            cell.shape = self._number(cell.demand, cell.traits.constraints, neighbours.of(cell))
            cell.token = token
            signature = neighbours.signature(cell)
            if signature != cell.pod.signature:
                cell.pod = attrs.evolve(cell.pod, signature=signature)
                changed = True
        self._shape_of = np.array([cell.shape for cell in cells], np.int64)
        return changed

    def used(self) -> tuple[tuple[Shape, ...], Int64s]:
        """Return the shapes of the pods settled last, in order of first use, and the row of each pod's shape."""
        numbers = self._shape_of
        count = len(numbers)
        first = np.full(len(self._shapes), count, np.int64)
        first[numbers[::-1]] = np.arange(count - 1, -1, -1)  # of several writes the last stays: the first pod's
        order = np.argsort(first, kind="stable")[: np.count_nonzero(first < count)]
        rank = np.empty(len(self._shapes), np.int64)
        rank[order] = np.arange(len(order))
        return tuple([self._shapes[number] for number in order]), rank[numbers]

    def _number(self, demand: Demand, constraints: Constraints, around: Surroundings) -> int:
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


def _shape(demand: Demand, constraints: Constraints, around: Surroundings) -> Shape:
    request, gpu = demand.request, demand.gpu
    if around.claimed:
        total = dict(request)
        total["gpu"] = total.get("gpu", 0) + around.claimed * GPU_UNIT
        request, gpu = packed(total), attrs.evolve(gpu, claimed=around.claimed)
    if around.missing_config_maps or around.containers:
        constraints = attrs.evolve(constraints, config_maps=around.missing_config_maps, containers=around.containers)
    return Shape(request=request, gpu=gpu, constraints=constraints, namespace=around.namespace, labels=around.labels)
