"""What an index finds among the objects of one kind, kept up to date change by change."""

from __future__ import annotations

from typing import Generic, TypeVar

from kai.api.kinds import ApiObject, Key, key_of
from kai.cluster.port import Index

T = TypeVar("T", bound=ApiObject)


class Lookup(Generic[T]):
    """An index, kept up to date."""

    def __init__(self, index: Index[T]) -> None:
        self._keys = index.keys
        self._found: dict[str, T | dict[Key, T]] = {}
        """An object that is the only one is here by itself: most groups have one pod."""
        self._sorted: dict[str, tuple[T, ...]] = {}

    def put(self, place: Key, before: T | None, after: T | None) -> None:
        """Take a change of what is shown at a place."""
        if before is not None:
            for key in self._keys(before):
                self._take_out(key, place)
        if after is not None:
            for key in self._keys(after):
                self._put_in(key, place, after)

    def _take_out(self, key: str, place: Key) -> None:
        self._sorted.pop(key, None)
        found = self._found.get(key)
        if not isinstance(found, dict):
            if found is not None and key_of(found) == place:
                del self._found[key]
            return
        found.pop(place, None)
        if len(found) == 1:
            self._found[key] = next(iter(found.values()))

    def _put_in(self, key: str, place: Key, obj: T) -> None:
        self._sorted.pop(key, None)
        found = self._found.get(key)
        if isinstance(found, dict):
            found[place] = obj
        elif found is None or key_of(found) == place:
            self._found[key] = obj
        else:
            self._found[key] = {key_of(found): found, place: obj}

    def find(self, key: str) -> tuple[T, ...]:
        """Return the objects to which a key leads, by namespace and name."""
        found = self._sorted.get(key)
        if found is None:
            group = self._found.get(key)
            if group is None:
                return ()
            if not isinstance(group, dict):
                return (group,)
            found = self._sorted[key] = tuple(obj for _, obj in sorted(group.items(), key=lambda item: item[0]))
        return found
