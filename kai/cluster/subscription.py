"""What a subscriber of the store has not taken yet."""

from __future__ import annotations

from typing import Any, TypeAlias

import anyio

from kai.api.kinds import ApiObject
from kai.cluster.port import Change, Key

Changes: TypeAlias = dict[tuple[type[ApiObject], Key, str], Change[Any]]


class Subscription:
    """Changes that a subscriber has not taken yet, joined object by object."""

    def __init__(self) -> None:
        self._pending: Changes = {}
        self._wake: anyio.Event | None = None

    def begin(self, present: Changes) -> None:
        """Take what there is when the subscription begins."""
        self._pending.update(present)

    def add(self, cls: type[ApiObject], key: Key, change: Change[Any]) -> None:
        """Take note of a change; what came and went since the last batch is not told."""
        place = (cls, key, change.present.metadata.uid)
        known = self._pending.pop(place, None)
        joined = change if known is None else Change(known.before, change.after)
        if joined.before is not joined.after:
            self._pending[place] = joined
        if self._wake is not None and self._pending:
            self._wake.set()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> tuple[Change[Any], ...]:
        while not self._pending:
            self._wake = anyio.Event()
            await self._wake.wait()
        self._wake = None
        batch = tuple(self._pending.values())
        self._pending.clear()
        return batch


__all__ = ["Changes", "Subscription"]
