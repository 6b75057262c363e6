"""Deadlines by key, and exponential back-off.

``Deadlines`` knows which key is due or expires first. ``doubling_pause`` is the pause before the next retry.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, MutableMapping
from typing import Final, TypeVar

import attrs

_DOUBLINGS: Final = 40
"""Pauses stop doubling here, far beyond any bound, so that the power of two does not overflow a float."""


def doubling_pause(failures: int, first: float, longest: float) -> float:
    """Return the pause after ``failures`` failures: ``first`` after one, then doubled with each, up to ``longest``."""
    return min(longest, first * 2.0 ** min(max(failures, 1) - 1, _DOUBLINGS))


K = TypeVar("K", bound=Hashable)

_FEW: Final = 64


@attrs.define(eq=False)
class Deadlines(MutableMapping[K, float]):
    """A mapping of keys to times that finds the earliest key; among equal times, the one set first.

    Units: times on a monotonic clock.
    Holds: memory for one entry per key, however often a key is set.
    Cost: O(log n) to set or take a key.
    """

    _entries: dict[K, tuple[float, int, K]] = attrs.field(factory=dict)
    _heap: list[tuple[float, int, K]] = attrs.field(factory=list)
    """All entries, and stale ones, which are skipped."""
    _number: int = 0
    """The number of the last entry: it breaks ties by age, so that keys are never compared."""

    def __getitem__(self, key: K) -> float:
        """Return the time of a key."""
        return self._entries[key][0]

    def __setitem__(self, key: K, time: float) -> None:
        """Set the time of a key."""
        self._number += 1
        entry = self._entries[key] = (time, self._number, key)
        heapq.heappush(self._heap, entry)
        # Stale entries would otherwise pile up for a key that is set again and again; a sorted list is a heap.
        if len(self._heap) > 2 * len(self._entries) + _FEW:
            self._heap = sorted(self._entries.values())

    def __delitem__(self, key: K) -> None:
        """Remove a key."""
        del self._entries[key]

    def __iter__(self) -> Iterator[K]:
        """Yield the keys in arbitrary order."""
        return iter(self._entries)

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._entries)

    def clear(self) -> None:
        """Remove all keys."""
        self._entries.clear()
        self._heap.clear()

    def hasten(self, key: K, time: float) -> None:
        """Set the time of a key unless it has an earlier one."""
        entry = self._entries.get(key)
        if entry is None or time < entry[0]:
            self[key] = time

    def first(self) -> float | None:
        """Return the earliest time; None if there is no key."""
        heap, entries = self._heap, self._entries
        # By identity: a key may have been set to the same time once more.
        while heap and entries.get(heap[0][2]) is not heap[0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else None

    def take(self, now: float) -> Iterator[K]:
        """Remove the keys whose time has come, earliest first, and yield each as it is removed."""
        while (time := self.first()) is not None and time <= now:
            # first() has dropped stale entries from the top, so this one counts.
            key = heapq.heappop(self._heap)[2]
            del self._entries[key]
            yield key

    def forget(self, now: float) -> None:
        """Remove the keys whose time has come."""
        for _ in self.take(now):
            pass
