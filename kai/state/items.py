"""Sequences of frozen objects that share what did not change with the sequence that they came from.

To copy a tuple of a hundred thousand objects is to touch each of them, which takes milliseconds. An ``Items`` copies a
column of numbers instead.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar, overload

import numpy as np

from kai.model.rows import Int64s
from kai.state.table_version import Carried, TableVersion

T = TypeVar("T")

_FEW: Final = 64
_PAST: Final = 32
"""One item of so many may be of the past: it is held for no reader, and a list is made anew once there are more."""


class Items(Sequence[T]):
    """An immutable sequence: a column of places in a list that only grows, and that several sequences share.

    Cost: of an item, two look-ups; of all, little more than of a tuple's.
    """

    __slots__ = ("_carried", "_places", "_store")

    def __init__(self, store: list[T], places: Carried) -> None:
        self._store = store
        self._carried = places
        self._places: Int64s = places.column

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, row: int) -> T: ...

    @overload
    def __getitem__(self, row: slice) -> Sequence[T]: ...

    def __getitem__(self, row: int | slice) -> T | Sequence[T]:
        """Return one item, or some as a tuple."""
        if isinstance(row, slice):
            return tuple(map(self._store.__getitem__, self._places[row].tolist()))
        place: int = self._places[row]
        return self._store[place]

    def __iter__(self) -> Iterator[T]:
        return map(self._store.__getitem__, self._places.tolist())

    def __eq__(self, other: object) -> bool:
        """Return whether ``other`` has equal items; a tuple may."""
        return isinstance(other, Items | tuple) and len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """Return what a tuple of the items returns."""
        return hash(tuple(self))

    def next(self, version: TableVersion, fresh: Sequence[T]) -> "Items[T] | None":
        """Return the items of the version after this one; None if too much of the list would be of the past."""
        first = len(self._store)
        if first + len(fresh) > _FEW + len(self) + len(self) // _PAST:
            return None
        self._store.extend(fresh)
        rows = np.arange(first, len(self._store))
        return Items(self._store, self._carried.next(version, version.count(len(self)), rows))


def carried_items(values: Sequence[T], version: TableVersion, fresh: Sequence[T]) -> Sequence[T]:
    """Return values of the version before, with rows where they are now and ``fresh`` in the fresh ones.

    They are a tuple after many changes and share after few; readers need not tell the two apart.

    Cost: of what is fresh, and of a column of numbers; after many changes O(n).
    """
    if len(fresh) <= _FEW + len(values) // 8:
        shared = values if isinstance(values, Items) else Items(list(values), Carried.of(np.arange(len(values))))
        after = shared.next(version, fresh)
        if after is not None:
            return after
    return tuple(version.carried_list(values, fresh))


def replaced(values: Sequence[T], changed: dict[int, T]) -> Sequence[T]:
    """Return ``values`` with other items in some rows."""
    rows = np.array(sorted(changed), np.int64)
    return carried_items(values, TableVersion(fresh=rows), [changed[row] for row in rows.tolist()])
