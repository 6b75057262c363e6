"""The clock and the chance of a real process; everything else in this package is given them."""

from __future__ import annotations

import random
import time
from typing import Final

import anyio

_COUNTING_SLEEP: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clocks of the operating system."""

    def monotonic(self) -> float:
        """Return seconds since some moment; other clocks being set does not show, and a machine's sleep counts.

        A term that ran out while the machine was suspended is over; the usual clock stands still meanwhile.
        """
        return time.clock_gettime(_COUNTING_SLEEP)

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait; for no time at all, let others run."""
        await anyio.sleep(max(0.0, seconds))


def system_draw() -> float:
    """Return a random number from 0 up to 1, for jitter."""
    return random.random()  # noqa: S311 - spreads retries over time; nothing is secret
