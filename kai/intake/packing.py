"""The numbers of a record as bytes, so that the columns of many records are made by one join."""

from collections.abc import Iterable
from struct import Struct

import numpy as np

from kai.model.rows import Int64s


class Packing:
    """So many numbers of 32 bits for each record.

    A list comprehension for each column touches every record once for each column. Packed when the object arrives, a
    record is touched once, and the columns are slices of one array: 0.04 instead of 0.4 microseconds a record of eight.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        self.pack = Struct(f"={width}i").pack

    def columns(self, packed: Iterable[bytes]) -> Int64s:
        """Return int64[width, n]: one row for each number, one column for each record."""
        numbers = np.frombuffer(b"".join(packed), np.int32).reshape(-1, self._width)
        return np.ascontiguousarray(numbers.T, np.int64)
