"""What the store shows of one kind: objects by key, as one tuple, as a listing that tells its news, and by indexes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

from kai.api.kinds import ApiObject, Key
from kai.api.listing import Listing
from kai.cluster.caching.lookup import Lookup
from kai.cluster.port import Change, Index

T = TypeVar("T", bound=ApiObject)

_FEW: Final = 64


class Shown(Generic[T]):
    """The objects that are shown, really there or assumed; `on_change` is called with each change."""

    def __init__(self, on_change: Callable[[Key, Change[T]], None]) -> None:
        self._on_change = on_change
        self._objects: dict[Key, T] = {}
        self.objects: Mapping[Key, T] = self._objects
        self._tuple: tuple[T, ...] | None = ()
        self._listed: Listing[T] | None = None
        """The listing that was given out last."""
        self._news: dict[Key, T | None] = {}
        """What that listing has at the keys that changed since."""
        self._indexes: dict[str, Lookup[T]] = {}

    def all(self) -> tuple[T, ...]:
        """Return all objects; the same tuple until something changes."""
        if self._tuple is None:
            self._tuple = tuple(self._objects.values())
        return self._tuple

    def listing(self) -> Listing[T]:
        """Return all objects, in no order, and how they differ from the listing before; the same until they do."""
        if self._listed is None or self._news:
            self._listed, self._news = self._list(), {}
        return self._listed

    def _list(self) -> Listing[T]:
        shown, listed = self._objects, self._listed
        if listed is None or len(self._news) > _FEW + len(shown) // 4:  # to say so much takes longer than to look
            return Listing(self.all())
        news = [(before, shown.get(key)) for key, before in self._news.items()]
        gone = [before for before, after in news if before is not None and before is not after]
        come = [after for before, after in news if after is not None and before is not after]
        if not gone and not come:
            return listed
        return listed.next(gone, come) or Listing.after(listed.mark, self.all(), gone, come)

    def find(self, index: Index[T], key: str) -> tuple[T, ...]:
        """Return the objects to which a key of an index leads, by namespace and name."""
        lookup = self._indexes.get(index.name)
        if lookup is None:
            lookup = self._indexes[index.name] = Lookup(index)
            for place, obj in self._objects.items():
                lookup.put(place, None, obj)
        return lookup.find(key)

    def put(self, key: Key, obj: T | None) -> None:
        """Show an object at a key, or nothing any more."""
        before = self._objects.get(key)
        if before is obj:
            return
        if obj is None:
            del self._objects[key]
        else:
            self._objects[key] = obj
        self._tuple = None
        if self._listed is not None:
            self._news.setdefault(key, before)
        for lookup in self._indexes.values():
            lookup.put(key, before, obj)
        if before is not None and obj is not None and before.metadata.uid != obj.metadata.uid and before.metadata.uid:
            self._on_change(key, Change(before, None))
            self._on_change(key, Change(None, obj))
        else:
            self._on_change(key, Change(before, obj))
