"""How virtual time follows the clock: at a speed, slower where much happens, not at all while it is paused.

A machine without a clock: it is told what the clock shows.
"""

from __future__ import annotations

from math import inf
from typing import Final

import attrs

SLOW: Final = 5.0
"""Times the clock's pace while something is to be watched."""
_TINY: Final = 1e-6
_LEAST: Final = 1.0
_MOST: Final = 100_000.0


@attrs.define
class Pacing:
    """Virtual time beside the clock.

    Units: seconds of virtual time for ``virtual``, seconds of the clock for ``clock``.
    """

    speed: float
    clock: float
    virtual: float = 0.0
    is_paused: bool = False
    why_slow: str = ""
    """What is watched slowly; "" for nothing."""
    _slow_until: float = -inf

    @property
    def pace(self) -> float:
        """Seconds of virtual time that pass in one of the clock."""
        return min(self.speed, SLOW) if self.why_slow else self.speed

    def follow(self, clock: float, most: float = inf) -> None:
        """Have the clock show another time: virtual time follows, up to ``most``."""
        passed, self.clock = max(0.0, clock - self.clock), clock
        if not self.is_paused:
            reached = self.virtual + passed * self.pace
            # What is left of rounding must not be waited for: the clock may be too coarse to show it.
            self.virtual = max(self.virtual, most if reached > most - _TINY else reached)
        if self.virtual >= self._slow_until:
            self.why_slow = ""

    def wait_for(self, virtual: float) -> float:
        """Return after how many seconds of the clock an instant of virtual time comes."""
        if self.is_paused:
            return inf
        return max(0.0, virtual - self.virtual) / self.pace

    def slow_down(self, why: str, until: float) -> None:
        """Go slowly up to an instant of virtual time."""
        self.why_slow, self._slow_until = why, until

    def faster(self, times: float) -> None:
        """Change the speed."""
        self.speed = min(_MOST, max(_LEAST, self.speed * times))
        self.why_slow = ""

    def jump(self, virtual: float) -> None:
        """Be at an instant at once."""
        self.virtual = max(self.virtual, virtual)
