"""How many pods of each group were evicted, as a metric whose series go some time after their groups.

The counter has a label for each group, so what it shows would grow with all groups that were ever evicted. The series
of a group that is gone stays until it must have been scraped: many a group goes with its last pod, and then its last
eviction would never be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Final, TypeAlias

import attrs
from prometheus_client import Counter

_SCRAPED: Final = 600.0
"""So long at least a series stays after the eviction that it counted last."""
_APART: Final = 60.0
"""Groups are compared with those that there are so often at most."""
_MOST: Final = 1000

Labels: TypeAlias = tuple[str, ...]


@attrs.define(eq=False)
class EvictedGroups:
    """Counts evicted pods by group.

    Units: seconds of a clock that does not go back.
    """

    counter: Counter
    uid_at: int
    """Which of the labels is the UID of the group."""
    clock: Callable[[], float]
    _counted: dict[Labels, float] = attrs.field(factory=dict)
    """When each series was counted up last, oldest first."""
    _looked: float = float("-inf")

    def count(self, labels: Labels) -> None:
        """Count a pod; of more groups than there may be, the one goes that was evicted longest ago."""
        self._counted.pop(labels, None)
        self._counted[labels] = self.clock()
        self.counter.labels(*labels).inc()
        if len(self._counted) > _MOST:
            self._remove(next(iter(self._counted)))

    def keep(self, uids: Callable[[], Iterable[str]]) -> None:
        """Let the series go of groups that are gone for long enough; ``uids`` returns those that there are.

        Cost: nothing while no series is old, else a look at all groups once a minute.
        """
        now = self.clock()
        if now - self._looked < _APART:
            return
        old = list(takewhile(lambda labels: self._counted[labels] <= now - _SCRAPED, self._counted))
        if not old:
            return
        self._looked = now
        there = frozenset(uids())
        for labels in old:
            if labels[self.uid_at] not in there:
                self._remove(labels)

    def _remove(self, labels: Labels) -> None:
        del self._counted[labels]
        self.counter.remove(*labels)
