"""A cache of answers, computed in worker threads, once for each moment and scope.

Cycles compute in a thread too and compete for the interpreter lock, so answers get a limited share of the time: a
moment stays current until a multiple of its computing time has passed, and the moments in between wait or are skipped.
A reader waits no longer than the server allows; a computation that was begun goes on, and its answer is cached when the
reader asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, TypeAlias, TypeVar

import anyio
import attrs
from anyio import to_thread

from kai.cluster.port import Clock
from kai.cluster.process.connections import Response
from kai.dashboard.access import EVERYTHING, Access, JobQueues, Reader, Scope
from kai.dashboard.feed import Feed
from kai.dashboard.look import Look, WholeLook
from kai.dashboard.own import OwnLook

LEAST_SECONDS: Final = 1.0
"""A moment stays current for at least this long."""
UNASKED_SECONDS: Final = 60.0
"""Seconds without readers after which the moment is dropped: it keeps a snapshot alive that nothing else needs."""
_REST: Final = 4.0
"""A moment stays current for this many times its computing time, so answers take a fifth of a core at most."""
_MOST_SCOPES: Final = 32
_MOST_KEPT: Final = 256
_MOST_BYTES: Final = 16 << 20
"""The most bytes of cached answers. An answer about 3,000 queues has two megabytes."""
_GLANCE: Final = 0.25
READING: Final = "reading"
"""The lane of answers that only read the moment."""
DECIDING: Final = "deciding"
"""The lane of answers that decide again, which take seconds."""
PAST: Final = "past"
"""The lane of searches in the history, which may take as long."""

R = TypeVar("R")
Place: TypeAlias = tuple[int, Scope, Hashable]


@attrs.define(eq=False)
class _Turn:
    """An answer that a thread computes, for a reader who may have left meanwhile."""

    has_begun: bool = False
    is_over: bool = False


@attrs.define(eq=False)
class _Lane:
    """A queue of answers that are computed one after the other."""

    turn: _Turn = attrs.field(factory=lambda: _Turn(is_over=True))
    """The last answer."""
    news: anyio.Event = attrs.field(factory=anyio.Event)

    def end(self) -> None:
        """Wake those who wait for their turn."""
        news, self.news = self.news, anyio.Event()
        news.set()


@attrs.define(eq=False)
class AnswerCache:
    """Computes and caches answers for readers."""

    feed: Feed
    clock: Clock
    _whole: WholeLook | None = None
    _revision: int = -1
    _since: float = 0.0
    _asked: float = 0.0
    """When a reader asked last."""
    _spent: float = 0.0
    """Seconds of computing for the present look."""
    _looks: dict[Scope, Look] = attrs.field(factory=dict)
    _kept: dict[Place, tuple[object, int]] = attrs.field(factory=dict)
    """Answers with their sizes, the oldest first."""
    _lanes: dict[str, _Lane] = attrs.field(factory=lambda: {each: _Lane() for each in (READING, DECIDING, PAST)})

    @property
    def revision(self) -> int:
        """Return the revision that answers are made from, after advancing to the newest if that is due."""
        self._turn_over()
        return self._revision

    def look(self, scope: Scope = EVERYTHING) -> Look | None:
        """Return the present moment within a scope; None before the first cycle, or while another process leads."""
        self._asked = self.clock.monotonic()
        self._turn_over()
        if self._whole is None or scope == EVERYTHING:
            return self._whole
        # Taken out and put back: the bound drops the scope that was asked for longest ago.
        found = self._looks.pop(scope, None) or OwnLook.of(self._whole, scope)
        self._looks[scope] = found
        while len(self._looks) > _MOST_SCOPES:
            del self._looks[next(iter(self._looks))]
        return found

    async def look_for(
        self,
        access: Access,
        reader: Reader,
        namespace: str = "",
        queue: str = "",
        past: Callable[[], frozenset[str]] | None = None,
    ) -> Look | None:
        """Return the present moment for a reader; None before the first.

        If given, ``namespace`` and ``queue`` are the only ones whose rights are reviewed. ``past`` returns namespaces
        that are reviewed beside those with jobs; it may block.

        Raises: ReviewError.
        """
        whole = self.look()

        async def places() -> JobQueues:
            if whole is None:
                return JobQueues()
            found = await self.ask(whole, "places", _places)
            if past is None:
                return found
            names = await self.ask(whole, "past places", lambda _: past(), lane=PAST)
            more = dict.fromkeys(names - found.queues_by_namespace.keys(), frozenset[str]())
            return attrs.evolve(found, queues_by_namespace={**found.queues_by_namespace, **more})

        scope = await access.scope(reader, places, namespace, queue)
        return None if whole is None else self.look(scope)

    @property
    def seconds_behind(self) -> float:
        """Return how much older the current moment is than the last cycle."""
        last, whole = self.feed.cycle, self._whole
        return 0.0 if last is None or whole is None else max(0.0, last.time - whole.time)

    async def ask(self, look: Look, key: Hashable, answer: Callable[[Look], R], *, lane: str = READING) -> R:
        """Return an answer, computed in a thread unless cached for this look; answers of other lanes do not wait.

        If the reader leaves, the thread goes on, and its answer is cached.
        """
        place, queue = (look.number, look.scope, key), self._lanes[lane]
        while place not in self._kept:
            if queue.turn.is_over:
                turn = queue.turn = _Turn()
                try:
                    return await to_thread.run_sync(self._compute, turn, place, look, answer, abandon_on_cancel=True)
                finally:
                    turn.is_over |= not turn.has_begun  # the reader left before a thread began
                    queue.end()
            # The thread of a reader who left wakes no task when it ends, so look again now and then.
            with anyio.move_on_after(_GLANCE):
                await queue.news.wait()
        result: R = self._kept[place][0]  # type: ignore[assignment]  # the key says what it is an answer to
        return result

    def _compute(self, turn: _Turn, place: Place, look: Look, answer: Callable[[Look], R]) -> R:
        """Compute an answer and cache it, even if the reader is gone by then."""
        turn.has_begun = True
        try:
            began = self.clock.monotonic()
            found = answer(look)
            self._keep(place, found)
            self._spent += self.clock.monotonic() - began
            return found
        finally:
            turn.is_over = True

    def _keep(self, place: Place, found: object) -> None:
        """Cache an answer, and evict the oldest beyond the limit. Runs in threads: each step is atomic for others."""
        size = len(found.body) if isinstance(found, Response) else int(getattr(found, "size", 0))
        kept = {**self._kept, place: (found, size)}
        sizes = sum(size for _, size in kept.values())
        while len(kept) > _MOST_KEPT or (sizes > _MOST_BYTES and len(kept) > 1):
            sizes -= kept.pop(next(iter(kept)))[1]
        self._kept = kept

    async def newer(self, revision: int) -> int:
        """Wait for a later moment, and return its revision."""
        await self.feed.newer(revision)
        while self.revision == revision:
            await self.clock.sleep(max(0.05, self._due() - self.clock.monotonic()))
        return self._revision

    async def run(self) -> None:
        """Drop the moment when no reader asks, until cancelled."""
        while True:
            await self.clock.sleep(UNASKED_SECONDS / 2)
            if self.clock.monotonic() - self._asked >= UNASKED_SECONDS:
                self._forget()
                self._revision = -1

    def _forget(self) -> None:
        self._whole = None
        self._looks.clear()
        self._kept = {}

    def _turn_over(self) -> None:
        feed, now = self.feed, self.clock.monotonic()
        if self._revision == feed.revision or (
            self._whole is not None and feed.cycle is not None and now < self._due()
        ):
            return
        self._forget()
        self._whole = None if feed.cycle is None else WholeLook.of(feed.cycle)
        self._revision, self._since, self._spent = feed.revision, now, 0.0

    def _due(self) -> float:
        """Return when a later moment may replace the present one."""
        return self._since + max(LEAST_SECONDS, _REST * self._spent)


def _places(look: Look) -> JobQueues:
    found: dict[str, set[str]] = {}
    for line in look.lines:
        found.setdefault(line.job.namespace, set()).add(line.job.queue)
    parents = {line.name: line.parent for line in look.queues}
    return JobQueues(
        queues_by_namespace={name: frozenset(queues - {""}) for name, queues in found.items()}, parents=parents
    )
