"""What is remembered of objects that are gone, so that a late word about one does not bring it back.

A late word is the page of a list that began before the end, or the answer to a write that was sent before it. Neither
takes minutes, so an end is remembered for some minutes: with each call of `fade`, those from before the call before it
are forgotten.
"""

from __future__ import annotations

from typing import Final

import attrs

_MOST: Final = 1 << 16
_FOREVER: Final = 1 << 64


@attrs.define(eq=False)
class Tombstones:
    """UIDs of deleted objects of one kind, and the versions at which they ended."""

    _young: dict[str, int] = attrs.field(factory=dict)
    _old: dict[str, int] = attrs.field(factory=dict)

    def leave(self, uid: str, version: int) -> None:
        """Note the end of an object; one at no version covers every word about it."""
        if uid:
            self._young[uid] = version if version >= 0 else _FOREVER
            if len(self._young) > _MOST:
                del self._young[next(iter(self._young))]

    def covers(self, uid: str, version: int) -> bool:
        """Return whether an object is known to have ended at this version, or after it."""
        ended = self._young.get(uid, self._old.get(uid))
        return ended is not None and version <= ended

    def ended_by(self, uid: str, version: int) -> bool:
        """Return whether an object is known to have ended at this version, or before it."""
        ended = self._young.get(uid, self._old.get(uid))
        return ended is not None and ended <= version

    def fade(self) -> None:
        """Forget the ends from before the last call."""
        self._young, self._old = {}, self._young

    def clear(self) -> None:
        """Forget all ends."""
        self._young, self._old = {}, {}
