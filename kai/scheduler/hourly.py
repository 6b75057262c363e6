"""Once an hour one line of the log sums up what was decided: binds, evictions, refusals, and what waits.

It is for those who read logs and have no metrics: a scheduler that is well says so, and one that evicts much or binds
nothing is seen at a glance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import attrs
import structlog

from kai.cluster.port import Clock
from kai.scheduler.signals import BindOrdered, BindRefused, Evicted, EvictionRefused, Signal, StatementRejected

HOUR: Final = 3600.0


@attrs.define(eq=False)
class Hourly:
    """Counts since the last line."""

    clock: Clock
    waiting: Mapping[str, int] = attrs.field(factory=dict)
    """How many pods waited after the last cycle, by reason."""
    _cycles: int = 0
    _failed: int = 0
    _binds: int = 0
    _evictions: Counter[str] = attrs.field(factory=Counter)
    _refused: Counter[str] = attrs.field(factory=Counter)

    def take(self, signal: Signal) -> None:
        """Count what became of a decision."""
        match signal:
            case BindOrdered():
                self._binds += 1
            case Evicted():
                self._evictions[signal.cause] += 1
            case BindRefused():
                self._refused["binds"] += 1
            case EvictionRefused():
                self._refused["evictions"] += 1
            case StatementRejected():
                self._refused["decisions"] += signal.decisions
            case _:
                pass

    def cycle(self, waiting: Mapping[str, int] | None) -> None:
        """Count a cycle, and note what waits after it; None for a cycle that failed."""
        if waiting is None:
            self._failed += 1
        else:
            self._cycles += 1
            self.waiting = waiting

    async def run(self) -> None:
        """Write a line after each hour, until cancelled."""
        while True:
            await self.clock.sleep(HOUR)
            self.tell()

    def tell(self) -> None:
        """Write the line and begin to count anew."""
        structlog.get_logger().info(
            "last hour",
            cycles=self._cycles,
            failed=self._failed,
            binds=self._binds,
            evictions=dict(sorted(self._evictions.items())),
            refused=dict(sorted(self._refused.items())),
            waiting=dict(sorted(self.waiting.items())),
        )
        self._cycles = self._failed = self._binds = 0
        self._evictions.clear()
        self._refused.clear()
