"""A table of distinct rows that grows by doubling: many shapes share one mask, few masks are made."""

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)


class DistinctRows(Generic[T]):
    """Rows of one length, each kept once; row 0 is there from the beginning.

    ``table`` may have more rows than are in use, and is another array after it grew. A row never moves or changes.
    """

    def __init__(self, first: NDArray[T]) -> None:
        """Begin with one row."""
        self.table: NDArray[T] = first[np.newaxis].copy()
        self._count = 1
        self._rows: dict[int, list[int]] = {hash(first.tobytes()): [0]}

    def row_of(self, values: NDArray[T]) -> int:
        """Return the row that holds ``values``, bit by bit; a new one if none does yet. Cost: O(length)."""
        content = values.tobytes()
        same_hash = self._rows.setdefault(hash(content), [])
        for row in same_hash:
            if self.table[row].tobytes() == content:
                return row
        row = self._count
        if row == len(self.table):
            larger = np.zeros((2 * row, self.table.shape[1]), self.table.dtype)
            larger[:row] = self.table
            self.table = larger
        self.table[row] = values
        self._count += 1
        same_hash.append(row)
        return row
