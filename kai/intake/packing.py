"""The numbers of a cell as bytes, so that the columns of many cells are made by one join."""

from collections.abc import Iterable
from struct import Struct

import numpy as np

from kai.model.rows import Int64s


class Packing:
    """So many numbers of 32 bits for each cell.

    A list comprehension for each column touches every cell once for each column. Packed when the object arrives, a
    cell is touched once, and the columns are slices of one array: 0.04 instead of 0.4 microseconds a cell of eight.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self.pack = Struct(f"={width}i").pack

    def columns(self, packed: Iterable[bytes]) -> Int64s:
        """Return int64[width, n]: one row for each number, one column for each cell."""
        numbers = np.frombuffer(b"".join(packed), np.int32).reshape(-1, self._width)
        return np.ascontiguousarray(numbers.T, np.int64)
