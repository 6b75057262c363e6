"""Shapes: identical pods are one row, whoever owns them."""

from collections.abc import Hashable, Sequence

import attrs
import numpy as np

from kai.intake.requests import Demand, packed
from kai.intake.traits import Traits
from kai.model.axis import GPU_UNIT
from kai.model.pod import Constraints, ContainerRequest, Shape
from kai.model.rows import Int64s

_MANY = 1 << 16
"""More shapes than this are kept only while they are in use."""


@attrs.frozen
class Surroundings:
    """What objects around a pod add to its shape; the default adds nothing."""

    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()
    missing_config_maps: tuple[str, ...] = ()
    claimed: int = 0
    """GPUs asked for through resource claims."""
    containers: tuple[ContainerRequest, ...] = ()


NOTHING = Surroundings()


class ShapeTable:
    """All shapes seen so far, each with a number that stays. A snapshot holds those that its pods use, numbered anew."""

    def __init__(self) -> None:
        self._shapes: list[Shape] = []
        self._numbers: dict[Shape, int] = {}
        self._known: dict[Hashable, int] = {}

    @property
    def overgrown(self) -> bool:
        """Whether it is time to begin anew."""
        return len(self._known) > _MANY

    def number(self, demand: Demand, traits: Traits, around: Surroundings = NOTHING) -> int:
        """Return the number of the shape of a pod."""
        key = (id(demand), id(traits), around)
        found = self._known.get(key)
        if found is None:
            shape = _shape(demand, traits.constraints, around)
            found = self._numbers.setdefault(shape, len(self._shapes))
            if found == len(self._shapes):
                self._shapes.append(shape)
            self._known[key] = found
        return found

    def used(self, numbers: Sequence[int]) -> tuple[tuple[Shape, ...], Int64s]:
        """Return the shapes of pods in order of first use, and the row of each pod's shape."""
        per_pod = np.array(numbers, np.int64)
        distinct, first, inverse = np.unique(per_pod, return_index=True, return_inverse=True)
        order = np.argsort(first, kind="stable")
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        return tuple(self._shapes[number] for number in distinct[order]), rank[inverse]


def _shape(demand: Demand, constraints: Constraints, around: Surroundings) -> Shape:
    request, gpu = demand.request, demand.gpu
    if around.claimed:
        total = dict(request)
        total["gpu"] = total.get("gpu", 0) + around.claimed * GPU_UNIT
        request, gpu = packed(total), attrs.evolve(gpu, claimed=around.claimed)
    if around.missing_config_maps or around.containers:
        constraints = attrs.evolve(constraints, config_maps=around.missing_config_maps, containers=around.containers)
    return Shape(request=request, gpu=gpu, constraints=constraints, namespace=around.namespace, labels=around.labels)
