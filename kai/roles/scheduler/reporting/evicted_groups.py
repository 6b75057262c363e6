"""A metric that counts evicted pods by group, and drops its series some time after their groups are gone.

The group is a label of the counter, so without that the exposition would grow with every group that was ever evicted. A
series outlives its group until it must have been scraped: many groups go with their last pod, and their last eviction
would never be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Final, TypeAlias

import attrs
from prometheus_client import Counter

_SCRAPED: Final = 600.0
"""How long a series stays after it last counted, at least.

Units: seconds.
"""
_APART: Final = 60.0
"""Interval between comparisons with the existing groups, at least.

Units: seconds.
"""
_MOST: Final = 1000

Labels: TypeAlias = tuple[str, ...]


@attrs.define(eq=False)
class EvictedGroups:
    """Counts evicted pods by group.

    Units: seconds of a monotonic clock.
    """

    counter: Counter
    uid_at: int
    """Index of the label that holds the UID of the group."""
    clock: Callable[[], float]
    _counted: dict[Labels, float] = attrs.field(factory=dict)
    """When each series last counted, oldest first."""
    _looked: float = float("-inf")

    def count(self, labels: Labels) -> None:
        """Count a pod; beyond the limit of series, drop the one that counted longest ago."""
        self._counted.pop(labels, None)
        self._counted[labels] = self.clock()
        self.counter.labels(*labels).inc()
        if len(self._counted) > _MOST:
            self._remove(next(iter(self._counted)))

    def keep(self, uids: Callable[[], Iterable[str]]) -> None:
        """Drop old series whose groups are gone; ``uids`` returns the UIDs of existing groups.

        Cost: nothing while no series is old, else a scan of all groups once a minute.
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
