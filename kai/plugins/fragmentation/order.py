"""The order in which most of what waits fits: large pods first, then parts of GPUs, then pods that need no GPU.

Whole GPUs are found while nodes are empty; parts of GPUs fill what is left. Parts of different size go in turns, each
size in order of age, because they complete each other on a device. A size that leaves much of a device unused, whatever
comes beside it, goes later.
"""

from collections.abc import Callable, Sequence

import numpy as np

from kai.framework import GPU, GPU_UNIT, Bools, Float64s, GpuKind, GroupRows, Int64s, SessionView, Status

DELAY = 2.5
"""Turns, of all that wait, by which a size goes later for each device's worth of what it leaves unused."""
LAST = 10.0
"""The key of groups that need no GPU."""


def order_keys(session: SessionView) -> Callable[[GroupRows], Float64s]:
    """Return the keys of groups: what one of their waiting pods asks for at most, then what they ask for together."""

    def keys(groups: GroupRows) -> Float64s:
        facts = session.facts
        pods = np.flatnonzero((session.columns.status == Status.PENDING) & (facts.pods.group >= 0))
        owner, shape = facts.pods.group[pods], facts.pods.shape[pods]
        count = len(session.snapshot.groups)
        wanted = session.requested[:, GPU]
        kinds = facts.shapes.kind
        shares = ((kinds == GpuKind.FRACTION) | (kinds == GpuKind.MEMORY)) & (facts.shapes.devices == 1)
        largest, together = np.zeros(count, np.float64), np.zeros(count, np.float64)
        np.maximum.at(largest, owner, np.where(shares, 0.0, wanted)[shape])
        np.add.at(together, owner, wanted[shape])
        parts = np.zeros(count, np.int64)
        np.maximum.at(parts, owner, np.where(shares, wanted, 0.0).astype(np.int64)[shape])
        out = np.full((count, 2), LAST)
        out[:, 1] = -together
        sharing = (parts > 0) & (largest == 0)
        out[largest > 0, 0] = -largest[largest > 0] / GPU_UNIT
        out[sharing, 0] = _turns(session.groups_by_age, sharing, parts)[sharing]
        return out[groups]

    return keys


def _turns(by_age: GroupRows, sharing: Bools, parts: Int64s) -> Float64s:
    """Return float64[G]: the place of sharing groups by age, from 0 to 1, and what their size is delayed by."""
    oldest = by_age[sharing[by_age]]
    sizes, size_of, counts = np.unique(parts[oldest], return_inverse=True, return_counts=True)
    unused = np.array(unused_beside(sizes.tolist(), counts.tolist()), np.float64)
    out = np.zeros(len(parts), np.float64)
    out[oldest] = np.arange(len(oldest)) / len(oldest) + DELAY * unused[size_of]
    return out


def unused_beside(sizes: Sequence[int], counts: Sequence[int]) -> list[float]:
    """Return how much of a device stays unused beside each of ``sizes``, on average, if all are packed densely.

    Shapes: sizes [n] ascending, in thousandths of a device; counts [n], how many there are of each.
    Holds:  each device takes the largest that is left, then the largest that fits, and so on.
    Cost:   O(n) for each of at most some n patterns.
    """
    left, unused = list(counts), [0] * len(sizes)
    for largest in reversed(range(len(sizes))):
        while left[largest] > 0:
            room, pattern = GPU_UNIT, []
            for at in range(largest, -1, -1):
                fitting = min(left[at], room // sizes[at])
                if fitting > 0:
                    pattern.append((at, fitting))
                    room -= fitting * sizes[at]
            if not pattern:  # larger than a device
                break
            devices = min(left[at] // fitting for at, fitting in pattern)
            for at, fitting in pattern:
                left[at] -= devices * fitting
                unused[at] += devices * fitting * room
    return [each / max(1, count) / GPU_UNIT for each, count in zip(unused, counts, strict=True)]
