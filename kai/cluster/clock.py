"""The clock and the randomness of a real process; everything else in this package gets them as arguments."""

from __future__ import annotations

import random
import time
from typing import Final

import anyio

_COUNTING_SLEEP: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clocks of the operating system."""

    def monotonic(self) -> float:
        """Return seconds of a monotonic clock that includes the time in which the machine was suspended.

        A term that expired while the machine was suspended is over, but CLOCK_MONOTONIC stands still in that time.
        """
        return time.clock_gettime(_COUNTING_SLEEP)

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait; with 0 seconds, let other tasks run."""
        await anyio.sleep(max(0.0, seconds))


def system_draw() -> float:
    """Return a random number from 0 up to 1, for jitter."""
    return random.random()  # noqa: S311 - spreads retries over time; nothing is secret
