"""The calendar: what happens when. Events of one instant happen in the order in which they were entered."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from math import inf
from typing import TypeAlias

import attrs

Action: TypeAlias = Callable[[], None]


@attrs.define
class Calendar:
    """Actions by instant and by sequence, so that two runs never differ in the order of what happens at once.

    Units: seconds of virtual time.
    """

    now: float = 0.0
    _heap: list[tuple[float, int, Action]] = attrs.field(factory=list)
    _sequence: int = 0

    def enter(self, at: float, action: Action) -> None:
        """Have ``action`` happen at an instant; one that is past happens now."""
        self._sequence += 1
        heapq.heappush(self._heap, (max(at, self.now), self._sequence, action))

    @property
    def next(self) -> float:
        """The instant of the next action; infinity if there is none."""
        return self._heap[0][0] if self._heap else inf

    def advance(self, to: float) -> None:
        """Move the clock."""
        self.now = to

    def pop(self) -> Action:
        """Take the next action out and move the clock to it."""
        self.now, _, action = heapq.heappop(self._heap)
        return action

    def __len__(self) -> int:
        """Return how many actions are to come."""
        return len(self._heap)
