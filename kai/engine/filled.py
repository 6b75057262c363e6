"""A heap of groups as it was once it was full: what later actions begin with as long as nothing has changed.

Where nothing can be placed, allocate, consolidation, reclaim and preempt fill a heap with the same groups, one after
the other.
"""

from typing import Self

import attrs
import numpy as np

from kai.kernels.order import Heap
from kai.model.rows import Float64s, GroupRows, Int64s


@attrs.frozen(eq=False, kw_only=True)
class Filled:
    """What filling wrote, of the entries alone. Shapes: W entries, k keys."""

    changes: int
    """How often pods had changed their status by then."""
    groups: GroupRows
    """[W] In the order in which they were pushed."""
    depth: int
    places: Int64s
    """Where the heaps of queues hold an item."""
    items: Int64s
    length: Int64s
    dirty: Int64s
    keys: Float64s
    """[W, k]"""
    amounts: Float64s
    """[W, 3]"""

    @classmethod
    def of(cls, heap: Heap, groups: GroupRows, changes: int) -> Self:
        """Keep what ``heap``, which held nothing before, is after ``groups`` were pushed. Cost: O(W k)."""
        return cls(
            changes=changes,
            groups=groups,
            depth=int(heap.depth[0]),
            places=(places := _places(heap)),
            items=heap.items[places],
            length=heap.length.copy(),
            dirty=heap.dirty.copy(),
            keys=heap.keys[groups],
            amounts=heap.amounts[groups],
        )

    def holds(self, heap: Heap, groups: GroupRows, changes: int) -> bool:
        """Return whether filling the empty ``heap`` with ``groups`` now would write the same."""
        return self.changes == changes and self.depth == int(heap.depth[0]) and np.array_equal(self.groups, groups)

    def write(self, heap: Heap) -> None:
        """Write it to an empty heap."""
        heap.items[self.places] = self.items
        heap.length[:] = self.length
        heap.dirty[:] = self.dirty
        heap.keys[self.groups] = self.keys
        heap.amounts[self.groups] = self.amounts


def _places(heap: Heap) -> Int64s:
    queues = np.flatnonzero(heap.length).tolist()
    begins, sizes = heap.start[queues], heap.length[queues]
    return np.repeat(begins - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
