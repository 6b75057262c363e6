"""The clock of a cycle: one instant, and until which later instant its answers stay the same.

A cycle is a function of facts and of one instant. A plugin that only asks whether a deadline has come gets the same
answer until the next deadline. So the service need not repeat a cycle that decided nothing before then, unless facts
change.
"""

from math import inf
from typing import Final

import attrs
import numpy as np

from kai.model.rows import Bools, Float64s

_MARGIN: Final = 1e-3
"""Seconds. Deadlines are looked at that much early again, so that no rounding of a sum can hide one."""


@attrs.define
class Clock:
    """One instant; remembers which later ones were asked about.

    Units: seconds since the epoch.
    """

    _now: float
    holds_until: float = attrs.field(default=inf, init=False)
    """Every answer so far is the same at any instant from now to this one."""

    def read(self) -> float:
        """Return the instant itself: what is made of it holds for this instant only."""
        self.holds_until = -inf
        return self._now

    def is_past(self, deadline: float) -> bool:
        """Return whether ``deadline`` has come; NaN never comes."""
        if self._now >= deadline:
            return True
        self._expect(deadline)
        return False

    def are_past(self, deadlines: Float64s) -> Bools:
        """Return bool[n]: which of ``deadlines`` have come; NaN never comes."""
        past: Bools = self._now >= deadlines
        if past.all():
            return past
        ahead = deadlines[~past & ~np.isnan(deadlines)]
        if len(ahead):
            self._expect(float(ahead.min()))
        return past

    def has_lasted(self, since: float, seconds: float) -> bool:
        """Return whether what began at ``since`` has lasted for ``seconds``."""
        if self._now - since >= seconds:
            return True
        self._expect(since + seconds)
        return False

    def _expect(self, deadline: float) -> None:
        if deadline == deadline:  # noqa: PLR0124 - NaN is no deadline
            self.holds_until = min(self.holds_until, deadline - _MARGIN)
