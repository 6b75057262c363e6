"""What the store shows of one kind: objects by key, as one tuple, as a listing that tells its news, and by indexes.

What an index finds among the objects of one kind, kept up to date change by change.

Annotations that objects of one kind are shown with although they do not have them, or not yet.

An overlay lies on one object (UID) until the object has all of its annotations, another object has its name, or it is
taken away. What the object says itself counts more than what is laid over it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Generic, TypeVar

import attrs

from kai.api.kinds import ApiObject, Key, key_of
from kai.api.listing import Listing
from kai.cluster.port import Change, Index

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


@attrs.frozen
class _Overlay:
    uid: str
    """Empty for an object that is only assumed: whatever comes in its place keeps the annotations."""
    annotations: Mapping[str, str]


@attrs.define(eq=False)
class Overlays:
    """What lies over objects, by key."""

    known: dict[Key, _Overlay] = attrs.field(factory=dict)

    def shows(self, key: Key, annotations: Mapping[str, str]) -> bool:
        """Return whether just these annotations lie over an object."""
        overlay = self.known.get(key)
        return overlay is not None and overlay.annotations == annotations

    def lay(self, key: Key, uid: str, annotations: Mapping[str, str]) -> None:
        """Lay annotations over an object, in the place of those before."""
        self.known[key] = _Overlay(uid, dict(annotations))

    def take_away(self, key: Key) -> None:
        """Lay nothing over an object."""
        self.known.pop(key, None)

    def over(self, key: Key, obj: T | None) -> T | None:
        """Return an object as it is shown; an overlay that it needs no longer is taken away."""
        overlay = self.known[key]
        if obj is None or overlay.uid not in {"", obj.metadata.uid}:
            del self.known[key]
            return obj
        there = obj.metadata.annotations
        if overlay.annotations.keys() <= there.keys():
            del self.known[key]
            return obj
        return annotated(obj, {**overlay.annotations, **there})

    def beneath(self, key: Key, obj: T) -> T:
        """Return an object that is shown as it is without its overlay."""
        overlay = self.known.get(key)
        if overlay is None:
            return obj
        annotations = obj.metadata.annotations.items()
        return annotated(obj, {name: value for name, value in annotations if name not in overlay.annotations})


def annotated(obj: T, annotations: Mapping[str, str]) -> T:
    """Return an object with these annotations in the place of its own."""
    return attrs.evolve(obj, metadata=attrs.evolve(obj.metadata, annotations=annotations))


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
