"""Where a real process computes what takes long: in threads, so that the event loop goes on meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

from anyio import from_thread, to_thread

A = TypeVarTuple("A")
R = TypeVar("R")


class Threads:
    """Threads beside the event loop; see `kai.cluster.port.Cpu`."""

    async def run(self, function: Callable[[*A], R], *args: *A) -> R:
        """Return what a function returns; it is not abandoned when the caller is cancelled."""
        return await to_thread.run_sync(function, *args)

    def call(self, function: Callable[[*A], R], *args: *A) -> R:
        """Return what a function on the event loop returns; called from within `run`."""
        return from_thread.run_sync(function, *args)
