"""Pods whose binds failed leave their capacity to others for a while, a little longer each time.

Without that a pod that cannot be bound would win every cycle and starve the pods behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from kai.backoff import doubling_pause

_FIRST: Final = 1.0
_LONGEST: Final = 300.0
_FORGOTTEN_AFTER: Final = 900.0


@attrs.define
class BindBackoff:
    """How often binds of pods failed, by UID, and until when they are not tried.

    Units: seconds of a clock that does not go back.
    """

    _failures: dict[str, tuple[int, float]] = attrs.field(factory=dict)

    def failed(self, uids: Iterable[str], now: float) -> None:
        """Count a failed bind of each of these pods."""
        for uid in uids:
            count = self._failures.get(uid, (0, 0.0))[0] + 1
            self._failures[uid] = (count, now + doubling_pause(count, _FIRST, _LONGEST))

    def resting(self, now: float) -> frozenset[str]:
        """Return the UIDs of pods that are not to be tried now."""
        if not self._failures:
            return frozenset()
        known = self._failures.items()
        self._failures = {uid: (count, until) for uid, (count, until) in known if until > now - _FORGOTTEN_AFTER}
        return frozenset(uid for uid, (_, until) in self._failures.items() if until > now)

    def next_due(self, now: float) -> float | None:
        """Return when the next of them may be tried again; None if none rests."""
        return min((until for _, until in self._failures.values() if until > now), default=None)
