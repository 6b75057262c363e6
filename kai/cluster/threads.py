"""Where a real process computes what takes long: in threads, so that the event loop goes on meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, copy_context
from typing import Protocol, TypeVar, TypeVarTuple, cast

from anyio import CancelScope, to_thread
from anyio.lowlevel import checkpoint_if_cancelled, current_token

A = TypeVarTuple("A")
R = TypeVar("R")


class _Loop(Protocol):
    """What is needed of the event loop, which is the one that the connections run on."""

    def call_soon_threadsafe(self, callback: Callable[[*A], object], *args: *A, context: Context) -> object:
        """Have a function called soon; called in any thread."""
        ...

    def run_in_executor(self, executor: ThreadPoolExecutor, function: Callable[[*A], R], *args: *A) -> Awaitable[R]:
        """Have an executor call a function, and return what to wait for."""
        ...


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

    async def run(self, function: Callable[[*A], R], *args: *A) -> R:
        """Return what a function returns; it is not abandoned when the caller is cancelled."""
        self._loop, self._context = cast("_Loop", current_token().native_token), copy_context()
        if self._is_taken:
            return await to_thread.run_sync(function, *args)
        await checkpoint_if_cancelled()
        context = self._context.copy()

        def compute() -> R:
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
        return found

    def post(self, function: Callable[[*A], object], *args: *A) -> None:
        """Have the event loop call a function soon, and go on; called from within `run`, or on the loop after it."""
        # anyio has only calls from threads that wait for their end.
        self._loop.call_soon_threadsafe(function, *args, context=self._context)
