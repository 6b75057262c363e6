"""Sort and copy arrays, in functions that all kernels call.

NumPy's functions would be compiled again for each type of numbers. A sort takes one to two seconds to compile. So does
a copy into a slice, because of the error text for differing shapes.
"""

from typing import TypeVar

import numpy as np

from kai.facts.compiled.jit import inner
from kai.facts.compiled.struct import Float64s, Float64Table, Int64s

Numbers = TypeVar("Numbers", Float64s, Int64s)


@inner
def ascending(keys: Numbers) -> Int64s:
    """Return the positions of ``keys`` in ascending order; equal keys keep their order.

    Holds: no key is NaN. Cost: O(n log n), O(n) if they are in order already.
    """
    count = keys.shape[0]
    order, merged = np.arange(count), np.empty(count, np.int64)
    width = 1 if _is_out_of_order(keys) else count
    while width < count:
        for first in range(0, count, 2 * width):
            left, middle = first, min(first + width, count)
            right, past = middle, min(first + 2 * width, count)
            for at in range(first, past):
                # `<=` lets equal keys keep their order, on which ties of queues and groups depend.
                if left < middle and (right == past or keys[order[left]] <= keys[order[right]]):
                    merged[at] = order[left]
                    left += 1
                else:
                    merged[at] = order[right]
                    right += 1
        order, merged = merged, order
        width *= 2
    return order


@inner
def falling(keys: Numbers) -> Numbers:
    """Return the ``keys`` in descending order. Holds and cost as ``ascending``."""
    count = keys.shape[0]
    order, found = ascending(keys), np.empty_like(keys)
    for at in range(count):
        found[at] = keys[order[count - 1 - at]]
    return found


@inner
def copy(source: Numbers, target: Numbers) -> None:
    """Write ``source`` to the first places of ``target``."""
    for at in range(source.shape[0]):
        target[at] = source[at]


@inner
def copy_table(source: Float64Table, target: Float64Table) -> None:
    """Write ``source`` to the first rows of ``target``."""
    for row in range(source.shape[0]):
        copy(source[row], target[row])


@inner
def _is_out_of_order(keys: Numbers) -> bool:
    for at in range(1, keys.shape[0]):
        if keys[at] < keys[at - 1]:
            return True
    return False


__all__ = ["ascending", "copy", "copy_table", "falling"]
