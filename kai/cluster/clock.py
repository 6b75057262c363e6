"""The clock and the chance of a real process; everything else in this package is given them."""

from __future__ import annotations

import random
import time

import anyio


class SystemClock:
    """The clocks of the operating system."""

    def monotonic(self) -> float:
        """Return seconds since some moment; other clocks being set does not show."""
        return time.monotonic()

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait; for no time at all, let others run."""
        await anyio.sleep(max(0.0, seconds))


def system_draw() -> float:
    """Return a random number from 0 up to 1, for jitter."""
    return random.random()  # noqa: S311 - spreads retries over time; nothing is secret
