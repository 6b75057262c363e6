"""Threads of a real process, and long batches in pieces.

`Threads` runs long computations in threads, so that they do not block the event loop.

`pieces` splits long batches, so that other tasks run in between. The first batch of a subscription holds all existing
objects. A role that handled tens of thousands of them at once would block the loop for a second as its term begins,
just when a new leader has to decide.
"""

from __future__ import annotations

import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, TypeVarTuple, cast

import structlog
from anyio import CancelScope, to_thread
from anyio.lowlevel import checkpoint, checkpoint_if_cancelled, current_token

from kai.basics.errors import places

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
    from types import FrameType


T = TypeVar("T")

AT_ONCE: Final = 256
"""Count of items, at about ten microseconds each, that are handled before other tasks may run."""


async def pieces(batch: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """Yield a batch in pieces, in order; other tasks run in between."""
    for first in range(0, len(batch), AT_ONCE):
        if first:
            await checkpoint()
        yield batch[first : first + AT_ONCE]


async def pieces_of(batches: AsyncIterable[Sequence[T]]) -> AsyncIterator[Sequence[T]]:
    """Yield batches in pieces as they arrive, in order; other tasks run between the pieces."""
    async for batch in batches:
        async for piece in pieces(batch):
            yield piece


_LONG: Final = 60.0
"""Duration after which a running computation is logged; again after twice that time, and so on.

Units: seconds.
"""
A = TypeVarTuple("A")
R = TypeVar("R")


class _Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call."""
        ...


class _Loop(Protocol):
    """The part of asyncio's event loop that is used here."""

    def call_later(self, delay: float, callback: Callable[[*A], object], *args: *A) -> _Timer:
        """Call a function after ``delay`` seconds."""
        ...

    def call_soon_threadsafe(self, callback: Callable[[*A], object], *args: *A, context: Context) -> object:
        """Schedule a call; callable in any thread."""
        ...

    def run_in_executor(self, executor: ThreadPoolExecutor, function: Callable[[*A], R], *args: *A) -> Awaitable[R]:
        """Run a function in an executor, and return its future."""
        ...


def stack_of(thread: int) -> list[tuple[FrameType, int]]:
    """Return the frames and line numbers of a thread, innermost last; empty if the thread does not exist."""
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way to another thread's stack
    return [] if frame is None else [*traceback.walk_stack(frame)][::-1]


class Threads:
    """Threads beside the event loop; see `kai.cluster.port.Cpu`.

    Successive computations, such as cycles, run in the same thread. The C library keeps freed memory for the thread
    that freed it: with changing threads, each would keep the megabytes that a cycle needs.
    """

    _loop: _Loop
    _context: Context
    """Context of the task that computed last: calls posted from the thread run in it."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="cycles")
        self._is_taken = False
        self._computing = 0
        """Identifier of the computing thread."""
        self._next_warning: _Timer | None = None

    async def run(self, function: Callable[[*A], R], *args: *A) -> R:
        """Return the result of a function; the function runs to its end even if the caller is cancelled."""
        self._loop, self._context = cast("_Loop", current_token().native_token), copy_context()
        if self._is_taken:
            return await to_thread.run_sync(function, *args)
        await checkpoint_if_cancelled()
        context = self._context.copy()
        first_warning = self._loop.call_later(_LONG, self._warn, _LONG)

        def compute() -> R:
            self._computing = threading.get_ident()
            try:
                return context.run(function, *args)
            except StopIteration as stop:  # a future cannot hold it: the caller would wait for ever
                raise RuntimeError("the computation raised StopIteration") from stop

        self._is_taken = True
        try:
            with CancelScope(shield=True):
                found = await self._loop.run_in_executor(self._thread, compute)
        finally:
            self._is_taken = False
            (self._next_warning or first_warning).cancel()
            self._next_warning = None
        return found

    def _warn(self, seconds: float) -> None:
        """Log the stack of a computation that takes long: it may never end and report itself."""
        self._next_warning = self._loop.call_later(seconds, self._warn, 2 * seconds)
        at = places(stack_of(self._computing))
        structlog.get_logger().warning("computing for long", seconds=round(seconds), at=at)

    def post(self, function: Callable[[*A], object], *args: *A) -> None:
        """Schedule a call on the event loop without waiting; called from within `run`, or on the loop after it."""
        # anyio only offers calls from threads that wait for the result.
        self._loop.call_soon_threadsafe(function, *args, context=self._context)
