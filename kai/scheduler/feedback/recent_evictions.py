"""What was evicted within the last hour, by queue: an input of the cycles that follow, for caps on evictions.

An eviction counts from when it is ordered, so that the next cycle knows of it before the API server answered; one that
was refused, or came too late, is taken out again. A process that starts knows of none: the hour begins with its term.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import attrs

HOUR: Final = 3600.0


@attrs.define
class RecentEvictions:
    """Evictions by the UID of their pods, oldest first.

    Units: seconds of a clock that does not go back; thousandths of GPUs.
    """

    _known: dict[str, tuple[float, str, int]] = attrs.field(factory=dict)

    def note(self, uid: str, queue: str, gpus: int, now: float) -> None:
        """Count an eviction that is ordered, and forget what is older than an hour, whether or not a cycle asks."""
        self._forget_old(now)
        if gpus:
            self._known.pop(uid, None)
            self._known[uid] = (now, queue, gpus)

    def forget(self, uid: str) -> None:
        """Take out an eviction that did not happen."""
        self._known.pop(uid, None)

    def current(self, now: float) -> tuple[tuple[str, int], ...]:
        """Return what pods of each queue lost within the hour, by name, and forget what is older."""
        self._forget_old(now)
        totals: Counter[str] = Counter()
        for _, queue, gpus in self._known.values():
            totals[queue] += gpus
        return tuple(sorted(totals.items()))

    def next_due(self) -> float | None:
        """Return when the next eviction is an hour old; None if none is known."""
        return next((since + HOUR for since, _, _ in self._known.values()), None)

    def _forget_old(self, now: float) -> None:
        while self._known:
            oldest = next(iter(self._known))
            if self._known[oldest][0] > now - HOUR:
                break
            del self._known[oldest]
