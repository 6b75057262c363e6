"""Where answers are computed: in a thread, one after the other, each once for a moment and a scope.

A cycle computes in a thread of its own, and both want the interpreter. So what readers ask for is computed at most for
a part of the time: a moment is looked at until as many times as it cost have passed, and later moments wait or are
skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, TypeVar

import anyio
import attrs
from anyio import to_thread

from kai.cluster.port import Clock
from kai.dashboard.access import Access, JobQueues, Reader
from kai.dashboard.feed import Feed
from kai.dashboard.look import Look
from kai.dashboard.scope import EVERYTHING, Scope

LEAST_SECONDS: Final = 1.0
"""A moment is looked at for so long at least."""
_REST: Final = 4.0
"""Times that a moment's answers took, for which later moments wait: a fifth of a core at most."""
_MOST_SCOPES: Final = 32
_MOST_KEPT: Final = 256

R = TypeVar("R")


@attrs.define(eq=False)
class AnswerCache:
    """Computes what readers ask for."""

    feed: Feed
    clock: Clock
    _whole: Look | None = None
    _revision: int = -1
    _since: float = 0.0
    _spent: float = 0.0
    """Seconds that answers of the present look took."""
    _looks: dict[Scope, Look] = attrs.field(factory=dict)
    _turn: anyio.Lock = attrs.field(factory=anyio.Lock)

    @property
    def revision(self) -> int:
        """Return the revision that readers are answered from; the newest once it is time for it."""
        self._turn_over()
        return self._revision

    def look(self, scope: Scope = EVERYTHING) -> Look | None:
        """Return the present moment within a scope; None where no cycle has ended yet, or another process leads."""
        self._turn_over()
        if self._whole is None or scope == EVERYTHING:
            return self._whole
        found = self._looks.pop(scope, None) or self._whole.within(scope)
        self._looks[scope] = found
        while len(self._looks) > _MOST_SCOPES:
            del self._looks[next(iter(self._looks))]
        return found

    async def look_for(self, access: Access, reader: Reader, namespace: str = "") -> Look | None:
        """Return what a reader sees of the present moment; None before the first.

        Raises: ReviewError.
        """
        whole = self.look()
        places = JobQueues() if whole is None else await self.ask(whole, "places", _places)
        scope = await access.scope(reader, places, namespace)
        return None if whole is None else self.look(scope)

    @property
    def seconds_behind(self) -> float:
        """Return how much older the cycle is that readers are answered from than the last one."""
        last, whole = self.feed.cycle, self._whole
        return 0.0 if last is None or whole is None else max(0.0, last.time - whole.cycle.time)

    async def ask(self, look: Look, key: Hashable, answer: Callable[[Look], R]) -> R:
        """Return an answer, computed in a thread unless it was for this look before."""
        if key not in look.kept:
            async with self._turn:
                if key not in look.kept:
                    began = self.clock.monotonic()
                    found = await to_thread.run_sync(answer, look)
                    self._spent += self.clock.monotonic() - began
                    while len(look.kept) >= _MOST_KEPT:
                        del look.kept[next(iter(look.kept))]
                    look.kept[key] = found
        result: R = look.kept[key]
        return result

    async def newer(self, revision: int) -> int:
        """Wait until there is a later moment to be looked at, and return its revision."""
        await self.feed.newer(revision)
        while self.revision == revision:
            await self.clock.sleep(max(0.05, self._due() - self.clock.monotonic()))
        return self._revision

    def _turn_over(self) -> None:
        feed, now = self.feed, self.clock.monotonic()
        if self._revision == feed.revision or (
            self._whole is not None and feed.cycle is not None and now < self._due()
        ):
            return
        self._whole = None if feed.cycle is None else Look(cycle=feed.cycle)
        self._looks.clear()
        self._revision, self._since, self._spent = feed.revision, now, 0.0

    def _due(self) -> float:
        """Return when a later moment may take the place of the present one."""
        return self._since + max(LEAST_SECONDS, _REST * self._spent)


def _places(look: Look) -> JobQueues:
    found: dict[str, set[str]] = {}
    for group in look.cycle.outcome.last.snapshot.groups:
        found.setdefault(group.namespace, set()).add(group.queue)
    return JobQueues(queues_by_namespace={name: frozenset(queues - {""}) for name, queues in found.items()})
