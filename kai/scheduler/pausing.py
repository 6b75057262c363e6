"""How long the scheduler rests after a cycle if nothing changes.

It rests as long as another cycle could not decide anything new: until something is due. While pods wait, a cycle tries
again after a period, and ever more rarely. While groups wait for their turn, the next turn follows at once: each is as
new as a change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Self

import anyio
import attrs

from kai.cluster.port import Store
from kai.scheduler.settings import SchedulerSettings

MOST_PERIODS: Final = 5
"""So many periods pass at most between two cycles while something waits."""


@attrs.frozen
class Seen:
    """How far the store was when a cycle began."""

    revision: int
    substance: int

    @classmethod
    def of(cls, store: Store) -> Self:
        """Return how far the store is."""
        return cls(store.revision, store.substance)

    async def outdated(self, store: Store, seconds: float) -> None:
        """Wait until another cycle may decide something else.

        What only tells people more comes thick and fast when many pods were bound, and most of it is our own: it is
        gathered for some seconds.
        """
        await store.newer(self.revision)
        with anyio.move_on_after(seconds):
            await store.more_substantial(self.substance)


def pause_after(
    settings: SchedulerSettings, *, turns: int, idle: int, restless: bool, dues: Iterable[float]
) -> float | None:
    """Return after how many seconds to decide again if nothing changes; None if only a change can matter.

    ``idle`` is how many cycles decided nothing since something changed, ``turns`` after how many all groups were
    considered, ``restless`` whether something waits, and ``dues`` in how many seconds something is due.
    """
    if idle < turns and turns > 1:  # not all groups were considered since something changed
        return settings.coalescing_seconds
    pauses = [max(0.0, due) for due in dues]
    if restless:
        pauses.append(settings.period_seconds * min(MOST_PERIODS, max(1, idle // turns)))
    return min(pauses, default=None)
