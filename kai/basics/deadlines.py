"""Deadlines by key: what is due when, or is remembered until when.

Pauses that double: what failed is tried again, each time a little later.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, MutableMapping
from typing import Final, TypeVar

import attrs

_DOUBLINGS: Final = 40
"""A larger power of two says nothing, and at last fits into no number."""


def doubling_pause(failures: int, first: float, longest: float) -> float:
    """Return the pause after so many failures: ``first`` after one, doubled with each further one up to ``longest``."""
    return min(longest, first * 2.0 ** min(max(failures, 1) - 1, _DOUBLINGS))


K = TypeVar("K", bound=Hashable)

_FEW: Final = 64


@attrs.define(eq=False)
class Deadlines(MutableMapping[K, float]):
    """A mapping of keys to times that knows which key comes first; of keys with one time, the one that was set first.

    Units: times on a clock that does not go back.
    Holds: memory for so many entries as there are keys, however often a key is set.
    Cost: O(log n) for a key that is set or taken.
    """

    _entries: dict[K, tuple[float, int, K]] = attrs.field(factory=dict)
    _heap: list[tuple[float, int, K]] = attrs.field(factory=list)
    """All of the entries, and some that mean nothing any more: these are passed over."""
    _number: int = 0
    """Of the last entry: it keeps the order, and keys from being compared."""

    def __getitem__(self, key: K) -> float:
        """Return the time of a key."""
        return self._entries[key][0]

    def __setitem__(self, key: K, time: float) -> None:
        """Give a key a time, whatever it had before."""
        self._number += 1
        entry = self._entries[key] = (time, self._number, key)
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._entries) + _FEW:
            self._heap = sorted(self._entries.values())

    def __delitem__(self, key: K) -> None:
        """Remove a key."""
        del self._entries[key]

    def __iter__(self) -> Iterator[K]:
        """Yield the keys, in no order of time."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return how many keys there are."""
        return len(self._entries)

    def clear(self) -> None:
        """Remove all keys."""
        self._entries.clear()
        self._heap.clear()

    def hasten(self, key: K, time: float) -> None:
        """Give a key a time unless it has an earlier one."""
        entry = self._entries.get(key)
        if entry is None or time < entry[0]:
            self[key] = time

    def first(self) -> float | None:
        """Return the time that comes first; None if there is none."""
        heap, entries = self._heap, self._entries
        while heap and entries.get(heap[0][2]) is not heap[0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take(self, now: float) -> Iterator[K]:
        """Remove the keys whose time has come, first things first, and yield each as it is removed."""
        while (time := self.first()) is not None and time <= now:
            key = heapq.heappop(self._heap)[2]
            del self._entries[key]
            yield key

    def forget(self, now: float) -> None:
        """Remove the keys whose time has come."""
        for _ in self.take(now):
            pass
