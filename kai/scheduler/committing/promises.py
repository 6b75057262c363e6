"""Nodes that pods were told they are promised: each cycle may promise the same one again, and says so once."""

from __future__ import annotations

from typing import Final

import attrs

_KEPT: Final = 600
"""So many cycles after the last one that promised it a promise is forgotten."""


@attrs.define
class Promises:
    """Which node each pod was promised, by UID, and in which cycle last."""

    _cycle: int = -1
    _told: dict[str, tuple[str, int]] = attrs.field(factory=dict)

    def begin_cycle(self, cycle: int) -> None:
        """Take what follows as decided in a cycle, and forget what no cycle promised for long."""
        self._cycle = cycle
        self._told = {uid: told for uid, told in self._told.items() if told[1] > cycle - _KEPT}

    def note(self, uid: str, node: str) -> bool:
        """Remember a promise; return whether it is another than the last."""
        told = self._told.get(uid)
        self._told[uid] = (node, self._cycle)
        return told is None or told[0] != node

    def forget(self, uid: str) -> None:
        """Forget the promise of a pod that is being bound."""
        self._told.pop(uid, None)
