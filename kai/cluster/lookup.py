"""What an index finds among the objects of one kind, kept up to date change by change."""

from __future__ import annotations

from typing import Generic, TypeVar

from kai.api.kinds import ApiObject
from kai.cluster.port import Index, Key

T = TypeVar("T", bound=ApiObject)


class Lookup(Generic[T]):
    """An index, kept up to date."""

    def __init__(self, index: Index[T]) -> None:
        self._keys = index.keys
        self._found: dict[str, dict[Key, T]] = {}
        self._sorted: dict[str, tuple[T, ...]] = {}

    def put(self, place: Key, before: T | None, after: T | None) -> None:
        """Take a change of what is shown at a place."""
        if before is not None:
            for key in self._keys(before):
                group = self._found.get(key, {})
                group.pop(place, None)
                if not group:
                    self._found.pop(key, None)
                self._sorted.pop(key, None)
        if after is not None:
            for key in self._keys(after):
                self._found.setdefault(key, {})[place] = after
                self._sorted.pop(key, None)

    def find(self, key: str) -> tuple[T, ...]:
        """Return the objects to which a key leads, by namespace and name."""
        found = self._sorted.get(key)
        if found is None:
            group = self._found.get(key)
            if group is None:
                return ()
            found = self._sorted[key] = tuple(obj for _, obj in sorted(group.items(), key=lambda item: item[0]))
        return found
