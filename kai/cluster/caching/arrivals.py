"""Objects that came or changed, for a reader that prepares for them: the newest form of each, in no order."""

from __future__ import annotations

from typing import Any

import anyio
import attrs

from kai.api.kinds import ApiObject, Key
from kai.cluster.port import Change


@attrs.define(eq=False)
class Arrivals:
    """Objects that the reader has not taken yet, in their newest form. Deleted objects are not among them."""

    _waiting: dict[tuple[type[ApiObject], Key], ApiObject] = attrs.field(factory=dict)
    _wake: anyio.Event | None = None

    def add(self, cls: type[ApiObject], key: Key, change: Change[Any]) -> None:
        """Take note of a change."""
        if change.after is None:
            self._waiting.pop((cls, key), None)
            return
        self._waiting[cls, key] = change.after
        if self._wake is not None:
            self._wake.set()

    def take(self, most: int) -> list[ApiObject]:
        """Return some of them, at most so many; they are not returned again."""
        waiting = self._waiting
        return [waiting.popitem()[1] for _ in range(min(most, len(waiting)))]

    async def wait(self) -> None:
        """Wait until there are some."""
        while not self._waiting:
            self._wake = anyio.Event()
            await self._wake.wait()
        self._wake = None
