"""Budgets of GPU-hours as facts of a cycle: what of each is left at the instant of the snapshot.

Units: GPU-microseconds, thousandths of GPUs times milliseconds, each times the weight of the GPU's model; instants in
milliseconds since the epoch where they are integers, else in seconds.
"""

from typing import Final

import attrs

WARN: Final = "warn"
ADMIT: Final = "admit"
STOP: Final = "stop"


@attrs.frozen(kw_only=True)
class Spent:
    """What the history of usage says about one budget in one of its periods."""

    since: int
    """When the period began."""
    at: int
    """Until when usage is counted."""
    total: int
    """What was used from ``since`` to ``at``, less refunds."""
    pace: int = 0
    """Thousandths of GPUs, weighted, that were still held at ``at``."""
    carried: int = 0
    """What was left of the period before and counts in this one."""
    users: tuple[tuple[str, int], ...] = ()
    """The users who used most, with what they used."""
    jobs: tuple[tuple[str, int], ...] = ()
    """The jobs that used most."""

    def total_at(self, instant: int, since: int) -> int:
        """Return what was used by an instant of the period that began at ``since``, if nothing ended after ``at``."""
        if since > self.since:  # a period began after the history was read
            return self.pace * max(0, instant - since)
        return self.total + self.pace * max(0, instant - self.at)


Key = tuple[str, str]
"""The name of a queue and that of a budget of it."""


@attrs.frozen(kw_only=True)
class Budget:
    """One budget of one queue at the instant of a snapshot."""

    queue: int
    """The row of the queue."""
    name: str
    enforce: str
    """``WARN``, ``ADMIT`` or ``STOP``."""
    amount: int
    """What the period has, with what was carried over."""
    spent: int | None
    """What was used; None where nothing is known."""
    since: float
    """When the period began; negative infinity for no begin."""
    until: float
    """When it ends; infinity for never."""
    timezone: str = ""
    is_open: bool = True
    """Whether anything may start: a budget for once gives nothing before it begins and after it ended."""
    carried: int = 0
    pace: int = 0
    """Thousandths of GPUs, weighted, that are held, as far as history knows."""
    users: tuple[tuple[str, int], ...] = ()
    jobs: tuple[tuple[str, int], ...] = ()

    @property
    def left(self) -> int:
        """What was not used; nothing where that is not known."""
        return 0 if self.spent is None or not self.is_open else self.amount - self.spent

    @property
    def bounds_starts(self) -> bool:
        """Whether work may have to wait for it."""
        return self.enforce == ADMIT or (self.enforce == STOP and self.spent is not None)

    @property
    def is_used_up(self) -> bool:
        """Whether what runs may be taken back by other queues."""
        return self.enforce == STOP and self.spent is not None and self.left <= 0
