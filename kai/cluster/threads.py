"""Where a real process computes what takes long: in threads, so that the event loop goes on meanwhile.

The clock and the chance of a real process; everything else in this package is given them.

Long batches in pieces, between which the event loop turns.

The first batch of a subscription brings each object that there is. A role that took tens of thousands of them at one go
would hold the loop for a second as its term begins, just when a new leader is to decide.
"""

from __future__ import annotations

import random
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, TypeVarTuple, cast

import anyio
import structlog
from anyio import CancelScope, to_thread
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled, current_token

from kai.errors import places

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
    from types import FrameType

_COUNTING_SLEEP: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SystemClock:
    """The clocks of the operating system."""

    def monotonic(self) -> float:
        """Return seconds since some moment; other clocks being set does not show, and a machine's sleep counts.

        A term that ran out while the machine was suspended is over; the usual clock stands still meanwhile.
        """
        return time.clock_gettime(_COUNTING_SLEEP)

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait; for no time at all, let others run."""
        await anyio.sleep(max(0.0, seconds))


def system_draw() -> float:
    """Return a random number from 0 up to 1, for jitter."""
    return random.random()  # noqa: S311 - spreads retries over time; nothing is secret


T = TypeVar("T")

AT_ONCE: Final = 256
"""So much of what takes some ten microseconds is done before others have their turn."""


async def pieces(batch: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """Yield a batch in pieces, in its order; the loop turns between them."""
    for first in range(0, len(batch), AT_ONCE):
        if first:
            await checkpoint()
        yield batch[first : first + AT_ONCE]


async def pieces_of(batches: AsyncIterable[Sequence[T]]) -> AsyncIterator[Sequence[T]]:
    """Yield batches in pieces as they come, in their order; the loop turns between the pieces of one."""
    async for batch in batches:
        async for piece in pieces(batch):
            yield piece


_LONG: Final = 60.0
"""Seconds after which a computation that has not ended is told of; again after twice as long, and so on."""
A = TypeVarTuple("A")
R = TypeVar("R")


class _Timer(Protocol):
    """A call that is to come."""

    def cancel(self) -> None:
        """Let it not come."""
        ...


class _Loop(Protocol):
    """What is needed of the event loop, which is the one that the connections run on."""

    def call_later(self, delay: float, callback: Callable[[*A], object], *args: *A) -> _Timer:
        """Call a function after some seconds."""
        ...

    def call_soon_threadsafe(self, callback: Callable[[*A], object], *args: *A, context: Context) -> object:
        """Have a function called soon; called in any thread."""
        ...

    def run_in_executor(self, executor: ThreadPoolExecutor, function: Callable[[*A], R], *args: *A) -> Awaitable[R]:
        """Have an executor call a function, and return what to wait for."""
        ...


def stack_of(thread: int) -> list[tuple[FrameType, int]]:
    """Return the frames and lines of a thread, the innermost last; none where there is no thread of this number."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way to another thread's stack
    return [] if frame is None else [*traceback.walk_stack(frame)][::-1]


class Threads:
    """Threads beside the event loop; see `kai.cluster.port.Cpu`.

    Computations that follow one another, as cycles do, run in one thread. The C library keeps the memory that a thread
    has freed for that thread: in threads that come and go, each would keep the megabytes that a cycle needs.
    """

    _loop: _Loop
    _context: Context
    """Of the task that computed last: what is posted from a thread sees what that task sees."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cycles")
        self._is_taken = False
        self._computing = 0
        """The thread that computes, by number."""
        self._told: _Timer | None = None

    async def run(self, function: Callable[[*A], R], *args: *A) -> R:
        """Return what a function returns; it is not abandoned when the caller is cancelled."""
        self._loop, self._context = cast("_Loop", current_token().native_token), copy_context()
        if self._is_taken:
            return await to_thread.run_sync(function, *args)
        await checkpoint_if_cancelled()
        context = self._context.copy()
        told = self._loop.call_later(_LONG, self._tell, _LONG)

        def compute() -> R:
            self._computing = threading.get_ident()
            try:
                return context.run(function, *args)
            except StopIteration as stop:  # no future can hold one: its waiter would wait for ever
                raise RuntimeError("the computation raised StopIteration") from stop

        self._is_taken = True
        try:
            with CancelScope(shield=True):
                found = await self._loop.run_in_executor(self._thread, compute)
        finally:
            self._is_taken = False
            (self._told or told).cancel()
            self._told = None
        return found

    def _tell(self, seconds: float) -> None:
        """Say where a computation is that lasts: what it would say at its end may never be said."""
        self._told = self._loop.call_later(seconds, self._tell, 2 * seconds)
        at = places(stack_of(self._computing))
        structlog.get_logger().warning("computing for long", seconds=round(seconds), at=at)

    def post(self, function: Callable[[*A], object], *args: *A) -> None:
        """Have the event loop call a function soon, and go on; called from within `run`, or on the loop after it."""
        # anyio has only calls from threads that wait for their end.
        self._loop.call_soon_threadsafe(function, *args, context=self._context)
