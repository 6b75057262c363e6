"""An event loop in virtual time that a seed drives: which callback runs next, of those that could, is drawn.

Time moves only when nothing is left to do. Callbacks belong to processes, by a variable of their context; those of a
process that is frozen wait until it is thawed, as those of a process that was stopped do. Tasks and cancel scopes hash
by number instead of by address, so that sets of them are in the same order in every run of a seed.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import itertools
from asyncio.base_events import BaseEventLoop
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVarTuple, Unpack

from anyio._backends import _asyncio as backend

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Iterator

A = TypeVarTuple("A")
PROCESS: Final[contextvars.ContextVar[str]] = contextvars.ContextVar("process", default="")
_MOST_AT_ONCE: Final = 200_000
_START: Final = 1000.0


class StuckError(RuntimeError):
    """Nothing is left to do, or callbacks follow each other without time moving on."""


class _Task(asyncio.Task[Any]):
    """A task that hashes by its number."""

    def __init__(self, number: int, coroutine: Coroutine[Any, Any, Any], **options: Any) -> None:
        self.number = number
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self.number


class SeededLoop(BaseEventLoop):
    """The loop of one schedule.

    `shuffle` is the probability with which the next callback is drawn among all that are ready; otherwise the oldest
    one runs, as asyncio does it.
    """

    # What BaseEventLoop has, and its published types do not name.
    _ready: deque[Any]

    def __init__(self, draw: random.Random, shuffle: float = 0.0) -> None:
        super().__init__()
        self._draw = draw
        self._shuffle = shuffle
        self._now = _START
        self._since = 0
        self._held: dict[str, deque[Any]] = {}
        self.thawed: dict[str, float] = {}
        """When each process that stood still went on last."""
        self.callbacks = 0
        """How many callbacks were run."""
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._numbers = itertools.count(1)
        self._tasks = itertools.count(1)
        self.set_task_factory(
            lambda loop, coroutine, **options: _Task(next(self._tasks), coroutine, loop=loop, **options)
        )

    def time(self) -> float:
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[A]], object],
        *args: *A,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """Keep a timer by its time and its number: tuples compare without a call, and timers of one moment in order."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._numbers), timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Leave it: it goes when its time comes."""

    def freeze(self, process: str) -> None:
        """Let nothing of a process run."""
        self._held.setdefault(process, deque())

    @property
    def is_any_frozen(self) -> bool:
        """Whether a process stands still."""
        return bool(self._held)

    def thaw(self, process: str) -> None:
        """Let a process go on with all that came to it meanwhile."""
        if process in self._held:
            self.thawed[process] = self._now
        self._ready.extend(self._held.pop(process, ()))

    def _run_once(self) -> None:
        self._take_due()
        ready = self._ready
        if not ready:
            self._advance()
            return
        index = 0
        if self._shuffle and len(ready) > 1 and self._draw.random() < self._shuffle:
            index = int(self._draw.random() * len(ready))
        handle = ready[index]
        del ready[index]
        if handle._cancelled:
            return
        if self._held:
            process = handle._context.get(PROCESS, "")
            if process in self._held:
                self._held[process].append(handle)
                return
        self.callbacks += 1
        self._since += 1
        if self._since > _MOST_AT_ONCE:
            raise StuckError(f"{self._since} callbacks at {self._now - _START:.3f} s, the last one {handle!r}")
        handle._run()

    def _take_due(self) -> None:
        timers = self._timers
        while timers and (timers[0][0] <= self._now or timers[0][2].cancelled()):
            handle = heapq.heappop(timers)[2]
            if not handle.cancelled():
                self._ready.append(handle)

    def _advance(self) -> None:
        if not self._timers:
            raise StuckError("every task waits for something that will never happen")
        self._now = max(self._now, self._timers[0][0])
        self._since = 0

    def _write_to_self(self) -> None:
        raise StuckError("a thread calls the loop: everything here runs in one")

    # What BaseEventLoop leaves to loops with sockets.
    def _process_events(self, event_list: Any) -> None:
        raise NotImplementedError

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]  # it never returns
        raise StuckError(f"{func!r} wants a thread: the port `Cpu` runs what takes long")


class _Scope(backend.CancelScope):
    """A cancel scope that hashes by its number, since the order of a set of scopes follows from their hashes."""

    numbers: ClassVar[Iterator[int]]

    def __init__(self, **options: Any) -> None:
        self.number = next(self.numbers)
        super().__init__(**options)

    def __hash__(self) -> int:
        return self.number


@contextmanager
def numbered_scopes() -> Iterator[None]:
    """Let cancel scopes hash by number, from one again, so that each run in a process finds the same hashes."""
    module: Any = backend
    before = module.CancelScope
    _Scope.numbers = itertools.count(1)
    module.CancelScope = _Scope
    try:
        yield
    finally:
        module.CancelScope = before
