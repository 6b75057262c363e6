"""Pods whose bind this process ordered a moment ago: they are evicted once it was carried out or failed.

Such a pod holds its place a moment later, or has none. Evicted meanwhile it would have lost both, for a group that may
find the place taken by what the same cycle moves there. The binder need not be there, so an order keeps a pod for a
few seconds only, by our own clock. A process that starts knows of none.

A statement that needs such a pod is rejected, and would be decided again at once on the same facts. So if nothing else
came of a cycle the next one waits: for a change, as when the pod is bound, or until the order keeps the pod no more.
"""

from __future__ import annotations

from typing import Final

import attrs

from kai.deadlines import Deadlines

_KEPT: Final = 10.0
"""Seconds for which an order keeps its pod from being evicted."""


@attrs.define
class RecentBinds:
    """Orders by the UID of their pods, and those that statements of this cycle wait for.

    Units: seconds of a clock that does not go back.
    """

    _until: Deadlines[str] = attrs.field(factory=Deadlines)
    _awaited: set[str] = attrs.field(factory=set)
    _is_decided: bool = False

    def note(self, uid: str, now: float) -> None:
        """Remember that the bind of a pod is ordered."""
        self._until.forget(now)
        self._until[uid] = now + _KEPT

    def holds(self, uid: str, now: float) -> bool:
        """Return whether the bind of a pod was ordered a moment ago."""
        return self._until.get(uid, now) > now

    def clear(self) -> None:
        """Forget all."""
        self._until.clear()
        self.begin_cycle()

    def begin_cycle(self) -> None:
        """Begin with a cycle of which nothing is known."""
        self._awaited.clear()
        self._is_decided = False

    def wait_for(self, uid: str) -> None:
        """Note that a statement was rejected, since it needs a pod that is being bound."""
        self._awaited.add(uid)

    def decided(self) -> None:
        """Note that something was written of what the cycle decided."""
        self._is_decided = True

    @property
    def is_awaited(self) -> bool:
        """Whether nothing came of the cycle, and would of another one before such a pod is bound."""
        return bool(self._awaited) and not self._is_decided

    def next_due(self) -> float | None:
        """Return when the next of the orders that are waited for keeps its pod no more; None if none is."""
        return min((self._until.get(uid, 0.0) for uid in self._awaited), default=None)
