"""The objects of one kind as readers see them, with indexes and overlays, and the changes that they have not taken yet.

`Shown` holds the objects by key, as one tuple, and as a listing that knows its difference to the one before.

`Lookup` keeps an index current, change by change.

`Overlays` holds annotations that are shown although the objects do not have them, or not yet. An overlay belongs to one
object (UID). It stays until the object has all of its annotations, another object has the name, or it is removed. The
annotations of the object itself take precedence.

`Subscription` merges changes by object. `Arrivals` keeps the newest form of objects that came or changed, in no order,
for a reader that prepares for them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import anyio
import attrs
from anyio.lowlevel import checkpoint

from kai.api.cluster_objects import Listing
from kai.api.kinds import ApiObject, Key, key_of
from kai.cluster.port import Change, Index
from kai.cluster.threads import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T", bound=ApiObject)


class Lookup(Generic[T]):
    """An index that is kept current."""

    def __init__(self, index: Index[T]) -> None:
        self._keys = index.keys
        self._found: dict[str, T | dict[Key, T]] = {}
        """Objects by index key. A single object is stored without a dict: most groups have one pod."""
        self._sorted: dict[str, tuple[T, ...]] = {}

    def put(self, place: Key, before: T | None, after: T | None) -> None:
        """Apply a change of the shown object at a key."""
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
        # Back to the form of a single object: each group that ever had two pods would else keep its dict.
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
        """Return the objects under an index key, by namespace and name."""
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
    """Empty for an object that is only assumed: the real object, when it comes, gets the annotations."""
    annotations: Mapping[str, str]
    is_kept: bool = False
    """Whether it stays when the assumptions of a term are dropped."""


@attrs.define(eq=False)
class Overlays:
    """The overlays of one kind, by key."""

    known: dict[Key, _Overlay] = attrs.field(factory=dict)

    def shows(self, key: Key, annotations: Mapping[str, str], *, is_kept: bool) -> bool:
        """Return whether an object is overlaid with exactly these annotations, and as long."""
        overlay = self.known.get(key)
        return overlay is not None and overlay.annotations == annotations and overlay.is_kept == is_kept

    def lay(self, key: Key, uid: str, annotations: Mapping[str, str], *, is_kept: bool = False) -> None:
        """Overlay an object with annotations, in place of an earlier overlay."""
        self.known[key] = _Overlay(uid, dict(annotations), is_kept)

    def passing(self) -> list[Key]:
        """Return the keys of the overlays that are not kept."""
        return [key for key, each in self.known.items() if not each.is_kept]

    def take_away(self, key: Key) -> None:
        """Remove the overlay of an object."""
        self.known.pop(key, None)

    def over(self, key: Key, obj: T | None) -> T | None:
        """Return an object with its overlay; remove the overlay if it is no longer needed."""
        overlay = self.known[key]
        if obj is None or overlay.uid not in {"", obj.metadata.uid}:
            del self.known[key]
            return obj
        there = obj.metadata.annotations
        # By key: a value that another client wrote takes precedence over ours anyway.
        if overlay.annotations.keys() <= there.keys():
            del self.known[key]
            return obj
        return annotated(obj, {**overlay.annotations, **there})

    def beneath(self, key: Key, obj: T) -> T:
        """Return a shown object without its overlay."""
        overlay = self.known.get(key)
        if overlay is None:
            return obj
        annotations = obj.metadata.annotations.items()
        return annotated(obj, {name: value for name, value in annotations if name not in overlay.annotations})


def annotated(obj: T, annotations: Mapping[str, str]) -> T:
    """Return an object with these annotations in place of its own."""
    return attrs.evolve(obj, metadata=attrs.evolve(obj.metadata, annotations=annotations))


_FEW: Final = 64


class Shown(Generic[T]):
    """The shown objects, real or assumed; calls ``on_change`` with each change."""

    def __init__(self, on_change: Callable[[Key, Change[T]], None]) -> None:
        self._on_change = on_change
        self._objects: dict[Key, T] = {}
        self.objects: Mapping[Key, T] = self._objects
        self._tuple: tuple[T, ...] | None = ()
        self._listed: Listing[T] | None = None
        """The last listing that was returned."""
        self._news: dict[Key, T | None] = {}
        """For each key that changed since: the object in that listing."""
        self._indexes: dict[str, Lookup[T]] = {}

    def all(self) -> tuple[T, ...]:
        """Return all objects; the same tuple until one changes."""
        if self._tuple is None:
            self._tuple = tuple(self._objects.values())
        return self._tuple

    def listing(self) -> Listing[T]:
        """Return all objects in no order, with the difference to the last listing; the same value until one changes."""
        if self._listed is None or self._news:
            self._listed, self._news = self._list(), {}
        return self._listed

    def _list(self) -> Listing[T]:
        shown, listed = self._objects, self._listed
        if listed is None or len(self._news) > _FEW + len(shown) // 4:  # the difference would cost more than a listing
            return Listing(self.all())
        news = [(before, shown.get(key)) for key, before in self._news.items()]
        gone = [before for before, after in news if before is not None and before is not after]
        come = [after for before, after in news if after is not None and before is not after]
        if not gone and not come:
            return listed
        return listed.next(gone, come) or Listing.after(listed.mark, self.all(), gone, come)

    def find(self, index: Index[T], key: str) -> tuple[T, ...]:
        """Return the objects under a key of an index, by namespace and name."""
        lookup = self._indexes.get(index.name)
        if lookup is None:
            lookup = self._indexes[index.name] = Lookup(index)
            for place, obj in self._objects.items():
                lookup.put(place, None, obj)
        return lookup.find(key)

    def put(self, key: Key, obj: T | None) -> None:
        """Show an object at a key; None removes it."""
        before = self._objects.get(key)
        if before is obj:
            return
        if obj is None:
            del self._objects[key]
        else:
            self._objects[key] = obj
        self._tuple = None
        if self._listed is not None:
            # Only the first change counts: the difference is to the last listing, not to the last change.
            self._news.setdefault(key, before)
        for lookup in self._indexes.values():
            lookup.put(key, before, obj)
        # A new object took the name: subscribers must also see the end of the old one.
        if before is not None and obj is not None and before.metadata.uid != obj.metadata.uid and before.metadata.uid:
            self._on_change(key, Change(before, None))
            self._on_change(key, Change(None, obj))
        else:
            self._on_change(key, Change(before, obj))


@attrs.define(eq=False)
class Arrivals:
    """Objects that the reader has not taken yet, in their newest form, without deleted ones."""

    _waiting: dict[tuple[type[ApiObject], Key], ApiObject] = attrs.field(factory=dict)
    _wake: anyio.Event | None = None

    def add(self, cls: type[ApiObject], key: Key, change: Change[Any]) -> None:
        """Record a change."""
        # An object that is gone needs no preparation.
        if change.after is None:
            self._waiting.pop((cls, key), None)
            return
        self._waiting[cls, key] = change.after
        if self._wake is not None:
            self._wake.set()

    def take(self, most: int) -> list[ApiObject]:
        """Remove and return at most ``most`` objects."""
        waiting = self._waiting
        return [waiting.popitem()[1] for _ in range(min(most, len(waiting)))]

    async def wait(self) -> None:
        """Wait until there are objects to take."""
        while not self._waiting:
            self._wake = anyio.Event()
            await self._wake.wait()
        self._wake = None


Place: TypeAlias = tuple[type[ApiObject], Key, str]


class Present:
    """The existing objects of a kind as changes for new subscriptions; made in parts that all subscriptions share.

    When a term begins, all roles subscribe to tens of thousands of objects. Made at once, their changes would block the
    event loop for hundreds of milliseconds.
    """

    def __init__(self, cls: type[ApiObject], objects: Sequence[Any]) -> None:
        self._cls = cls
        self._objects = objects
        self._parts: list[list[tuple[Place, Change[Any]]]] = []

    def part(self, number: int) -> list[tuple[Place, Change[Any]]]:
        """Return a part, empty after the last one. Call it for successive numbers."""
        if number == len(self._parts):
            some = self._objects[number * AT_ONCE : (number + 1) * AT_ONCE]
            self._parts.append([(self._place(obj), Change(None, obj)) for obj in some])
        return self._parts[number]

    def _place(self, obj: Any) -> Place:  # noqa: ANN401 - an object of the kind
        return self._cls, (obj.metadata.namespace, obj.metadata.name), obj.metadata.uid


class Subscription:
    """Changes that a subscriber has not taken yet, merged by object."""

    def __init__(self) -> None:
        self._pending: dict[Place, Change[Any]] = {}
        self._begins: deque[Present] = deque()
        self._begun: dict[Place, Change[Any]] = {}
        """The existing objects that were taken so far."""
        self._part = 0
        """Number of the next part of the first entry in ``_begins``."""
        self._wake: anyio.Event | None = None

    def begin(self, present: Present) -> None:
        """Start with the existing objects of a kind."""
        self._begins.append(present)

    async def _take_all_that_is(self) -> None:
        """Take the existing objects, then the changes since."""
        while self._begins:
            part = self._begins[0].part(self._part)
            self._begun.update(part)
            self._part += 1
            if not part:
                self._begins.popleft()
                self._part = 0
            await checkpoint()
        if self._begun:
            # Changes since the subscription go on top: an object that was deleted meanwhile is never reported.
            since, self._pending, self._begun = self._pending, self._begun, {}
            for place, change in since.items():
                self._join(place, change)

    def add(self, cls: type[ApiObject], key: Key, change: Change[Any]) -> None:
        """Record a change; an object that came and went since the last batch is left out."""
        self._join((cls, key, change.present.metadata.uid), change)
        if self._wake is not None and self._pending:
            self._wake.set()

    def _join(self, place: Place, change: Change[Any]) -> None:
        known = self._pending.pop(place, None)
        joined = change if known is None else Change(known.before, change.after)
        # Else it came and went, or is as it was: the subscriber saw nothing in between.
        if joined.before is not joined.after:
            self._pending[place] = joined

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> tuple[Change[Any], ...]:
        await self._take_all_that_is()
        while not self._pending:
            self._wake = anyio.Event()
            await self._wake.wait()
        self._wake = None
        batch = tuple(self._pending.values())
        self._pending.clear()
        return batch
