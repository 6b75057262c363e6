"""The resource axis: the resources of a cluster with their order and units, and the types of table rows.

Amounts are int64: exact, associative, invertible, so that undoing is subtraction. Units: CPU in millicores, memory in
bytes (storage and huge pages too), GPU in thousandths of a device, ``pods`` and MIG profiles in whole ones, every
other resource in thousandths of its own unit.

Row types name the table that an integer indexes. A ``PodRow`` is not a ``NodeRow``; a bare ``int`` is neither.
"""

from collections.abc import Iterable, Mapping
from typing import Any, NewType, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from kai.facts.model import units
from kai.facts.model.units import mig_slices

NodeRow = NewType("NodeRow", int)
PodRow = NewType("PodRow", int)
GroupRow = NewType("GroupRow", int)
SubGroupRow = NewType("SubGroupRow", int)
QueueRow = NewType("QueueRow", int)
ShapeRow = NewType("ShapeRow", int)

Int64s = NDArray[np.int64]
Float64s = NDArray[np.float64]
Bools = NDArray[np.bool_]
Scores = NDArray[np.float64]
NodeRows = NDArray[np.int64]
PodRows = NDArray[np.int64]
GroupRows = NDArray[np.int64]

A = TypeVar("A", bound=NDArray[Any])

NONE = -1
"""The row number for "none": a pod without a node, a queue without a parent."""


def locked(array: A) -> A:
    """Return a read-only view of ``array``; it shows later writes to ``array`` itself."""
    view = array.view()
    view.flags.writeable = False
    return view


CPU, MEMORY, GPU, PODS = 0, 1, 2, 3
SHARED_RESOURCES = 3
"""The number of leading resources that queues share: CPU, memory, GPU."""
GPU_UNIT = units.GPU_UNIT
PLUGGED_GPU = units.PLUGGED_GPU
LEADING = ("cpu", "memory", "gpu", "pods")
MOST_UNOFFERED = 64
"""The most resources with a place of their own on the axis although no node offers them.

Users may request resources of any name, and tables of nodes and shapes are as wide as the axis.
"""
UNOFFERED = "resources that no node offers"
"""All further ones share this place, which is on the axis only if needed. No resource can have this name."""
UNBOUNDED = 1 << 40
"""The amount of `PLUGGED_GPU` on a node whose GPUs all belong to a device plugin: there ``gpu`` is the only bound."""


@attrs.frozen
class ResourceAxis:
    """Names of the resources of one snapshot; the only maker of vectors.

    ``cpu``, ``memory``, ``gpu`` and ``pods`` come first, everything else follows by name, so the axis does not depend
    on the order of objects.
    """

    names: tuple[str, ...]
    index: Mapping[str, int] = attrs.field(init=False, repr=False, eq=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "index", {name: row for row, name in enumerate(self.names)})

    @classmethod
    def of(cls, resources: Iterable[str]) -> "ResourceAxis":
        """Return the axis that covers ``resources`` besides the leading four."""
        return cls(LEADING + tuple(sorted(set(resources) - set(LEADING))))

    @classmethod
    def around(cls, offered: Iterable[str], asked: Iterable[str]) -> "ResourceAxis":
        """Return the axis of all offered resources, and of the first requested ones by name that no node offers.

        A pod that requests a resource that no node offers fits nowhere, whatever the amount.
        """
        there = {*LEADING, *offered}
        absent = sorted(set(asked) - there)
        if len(absent) > MOST_UNOFFERED:
            absent = [*absent[:MOST_UNOFFERED], UNOFFERED]
        return cls.of({*there, *absent})

    def __len__(self) -> int:
        return len(self.names)

    def vector(self, amounts: Mapping[str, int]) -> Int64s:
        """Return ``amounts`` as int64[R] in axis units; any other resource counts as one unit of `UNOFFERED`.

        Raises: KeyError for an unknown resource if all have their places (a bug of the caller: the axis is built
            from the same objects).
        """
        out, rest = np.zeros(len(self.names), np.int64), self.index.get(UNOFFERED)
        for name, amount in amounts.items():
            if rest is not None and name not in self.index:
                out[rest] = 1
            else:
                out[self.index[name]] += amount
        return out

    def gpu_weights(self) -> Int64s:
        """Return int64[R].

        Thousandths of a GPU that one axis unit of each resource stands for in quota (a ``2g`` slice is two GPUs).
        """
        weights = np.zeros(len(self.names), np.int64)
        weights[GPU] = 1
        for row, name in enumerate(self.names):
            weights[row] += mig_slices(name)[0] * GPU_UNIT
        return weights

    def mig(self) -> Int64s:
        """Return bool-like int64[R]: 1 for MIG profile resources."""
        return np.array([int("mig-" in name) for name in self.names], np.int64)

    def is_bytes(self, row: int) -> bool:
        """Return whether a resource is counted in bytes."""
        return units.is_bytes(self.names[row])
