"""The objects of one kind in the embedded cluster, as listings that say what came and went since the last."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from kai.api.kinds import ApiObject, Key, key_of
from kai.api.listing import Listing

T = TypeVar("T", bound=ApiObject)


class Objects(Generic[T]):
    """The objects of one kind by namespace and name. Cost: of a listing, what changed since the one before."""

    def __init__(self) -> None:
        self._objects: dict[Key, T] = {}
        self._listed: Listing[T] = Listing()
        self._before: dict[Key, T | None] = {}
        """What the last listing has at the keys that changed since."""

    def put(self, obj: T) -> None:
        """Add an object, or put it in the place of the one with its name."""
        key = key_of(obj)
        self._before.setdefault(key, self._objects.get(key))
        self._objects[key] = obj

    def remove(self, key: Key) -> None:
        """Take an object out; nothing happens if there is none."""
        if key in self._objects:
            self._before.setdefault(key, self._objects[key])
            del self._objects[key]

    def get(self, key: Key) -> T | None:
        """Return the object with a name."""
        return self._objects.get(key)

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[T]:
        return iter(self._objects.values())

    def listing(self) -> Listing[T]:
        """Return all objects; the same listing until something changes."""
        if self._before:
            news = [(before, self._objects.get(key)) for key, before in self._before.items()]
            gone = [before for before, now in news if before is not None and before is not now]
            come = [now for before, now in news if now is not None and before is not now]
            self._before = {}
            if gone or come:
                listed = self._listed
                shared = listed.next(gone, come)
                self._listed = shared or Listing.after(listed.mark, self._objects.values(), gone, come)
        return self._listed
