"""Where a real process computes what takes long: in threads, so that the event loop goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Protocol, TypeVar, TypeVarTuple, cast

from anyio import to_thread
from anyio.lowlevel import current_token

A = TypeVarTuple("A")
R = TypeVar("R")


class _Loop(Protocol):
    """What is needed of the event loop, which is the one that the connections run on."""

    def call_soon_threadsafe(self, callback: Callable[[*A], object], *args: *A, context: Context) -> object:
        """Have a function called soon; called in any thread."""
        ...


class Threads:
    """Threads beside the event loop; see `kai.cluster.port.Cpu`."""

    _loop: _Loop
    _context: Context
    """Of the task that computed last: what is posted from a thread sees what that task sees."""

    async def run(self, function: Callable[[*A], R], *args: *A) -> R:
        """Return what a function returns; it is not abandoned when the caller is cancelled."""
        self._loop, self._context = cast("_Loop", current_token().native_token), copy_context()
        return await to_thread.run_sync(function, *args)

    def post(self, function: Callable[[*A], object], *args: *A) -> None:
        """Have the event loop call a function soon, and go on; called from within `run`, or on the loop after it."""
        # anyio has only calls from threads that wait for their end.
        self._loop.call_soon_threadsafe(function, *args, context=self._context)
