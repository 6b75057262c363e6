"""What is not there, remembered for a minute, and so much of it at most.

Tenants name what kai reads, and can name as many things that do not exist as they like. Each of them is asked for once
a minute, as long as there is room to remember it: what comes into being is found within that time.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

import attrs

from kai.deadlines import Deadlines

K = TypeVar("K", bound=Hashable)

SECONDS: Final = 60.0
MOST: Final = 512


@attrs.define
class Absence(Generic[K]):
    """Keys of what was asked for in vain.

    Units: seconds of a clock that does not go back.
    """

    _until: Deadlines[K] = attrs.field(factory=Deadlines)

    def __len__(self) -> int:
        """Return how many keys are remembered, those included whose time is over."""
        return len(self._until)

    def holds(self, key: K, now: float) -> bool:
        """Return whether this was asked for in vain within the last minute."""
        return self._until.get(key, now) > now

    def note(self, key: K, now: float) -> None:
        """Remember a key, unless as many are remembered whose time is not over."""
        if len(self._until) >= MOST:
            self._until.forget(now)
        if len(self._until) < MOST or key in self._until:
            self._until[key] = now + SECONDS

    def forget(self, key: K) -> None:
        """Take it that this is there."""
        self._until.pop(key, None)
