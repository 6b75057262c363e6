"""Changes and objects that subscribers of the store have not taken yet.

`Subscription` merges changes by object. `Arrivals` keeps the newest form of objects that came or changed, in no order,
for a reader that prepares for them.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import attrs
from anyio.lowlevel import checkpoint

from kai.api.kinds import ApiObject, Key
from kai.cluster.port import Change
from kai.cluster.threads import AT_ONCE

if TYPE_CHECKING:
    from collections.abc import Sequence


@attrs.define(eq=False)
class Arrivals:
    """Objects that the reader has not taken yet, in their newest form, without deleted ones."""

    _waiting: dict[tuple[type[ApiObject], Key], ApiObject] = attrs.field(factory=dict)
    _wake: anyio.Event | None = None

    def add(self, cls: type[ApiObject], key: Key, change: Change[Any]) -> None:
        """Record a change."""
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
