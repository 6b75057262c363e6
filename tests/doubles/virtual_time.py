"""An event loop whose time passes only when nothing is left to do: hours of patience in milliseconds."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

R = TypeVar("R")


class _Selector(selectors.DefaultSelector):
    """Jumps over every wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("every task waits for something that will never happen")
        self.now += max(0.0, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time."""

    def __init__(self) -> None:
        self._virtual = _Selector()
        super().__init__(self._virtual)

    def time(self) -> float:
        # A little above what was asked for, so that a timer that is due is never a rounding error away from it.
        return self._virtual.now + 1e-9


class VirtualClock:
    """The clock of a virtual loop; the wall clock can be set apart from it."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000.0

    def monotonic(self) -> float:
        return anyio.current_time()

    def now(self) -> float:
        return self.wall + anyio.current_time()

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(max(0.0, seconds))


def run(function: Callable[[], Awaitable[R]]) -> R:
    """Run an async function in virtual time, and return its result."""
    return anyio.run(function, backend="asyncio", backend_options={"loop_factory": VirtualLoop})
