"""A profile of warm cycles: which functions are on the stack while processor time passes.

A timer interrupts the cycle; Python takes the interrupt at its next instruction, so a kernel is not cut up: all of its
time is found at once and belongs to the line that called it. Each sample weighs the processor time since the one
before, which makes a busy machine harmless.
"""

import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType

from attrs import Factory, define, frozen

from benchmarks.clock import Stopwatch
from benchmarks.events import arriving, leaving, listed
from benchmarks.manifests import NOW
from benchmarks.measure import Outcome, Scheduler
from benchmarks.workload import Workload

SCHEMA = "kai.benchmarks.profile/v1"
_EVERY_SECONDS = 0.0005
_ENOUGH_MS = 1500.0
_MOST_CYCLES = 40
_DEEPEST = 60


@frozen
class Stack:
    """Functions from the outermost to the innermost, and the processor time that was found in the last of them."""

    frames: tuple[str, ...]
    cpu_ms: float


@frozen
class Profile:
    """All samples of the warm cycles of one workload."""

    workload: str
    title: str
    cycles: int
    samples: int
    stacks: tuple[Stack, ...]
    machine: Mapping[str, str] = Factory(dict)
    schema: str = SCHEMA


@define
class Sampler:
    """Collects stacks while ``running``; frames outside of it are left out."""

    samples: int = 0
    found: Counter[tuple[str, ...]] = Factory(Counter)
    """Processor time by stack, in nanoseconds."""
    _since: int = 0
    _outside: FrameType | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Take samples of what runs inside."""
        before = signal.signal(signal.SIGALRM, self._take)
        # This generator, then the context manager, and then the caller that wrote `with`.
        self._outside = sys._getframe(2)  # noqa: SLF001 - there is no public way to the caller that is as cheap
        self._since = time.process_time_ns()
        signal.setitimer(signal.ITIMER_REAL, _EVERY_SECONDS, _EVERY_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            self._outside = None

    def _take(self, _: int, frame: FrameType | None) -> None:
        now = time.process_time_ns()
        if frame is not None and frame.f_code is Sampler._take.__code__:
            frame = frame.f_back  # a machine that is late: the next interrupt came while the last was being answered
        names = []
        while frame is not None and frame is not self._outside:
            names.append(_name(frame))
            frame = frame.f_back
        self.samples += 1
        self.found[tuple(reversed(names))[:_DEEPEST]] += now - self._since
        self._since = time.process_time_ns()

    def stacks(self) -> tuple[Stack, ...]:
        """Return what was found, in the order of the stacks."""
        return tuple(Stack(frames, spent / 1e6) for frames, spent in sorted(self.found.items()) if frames)


def profile(workload: Workload, scheduler: Scheduler[Outcome]) -> Profile:
    """Let ``scheduler`` decide about ``workload`` again and again, until there are samples enough."""
    for batch in listed(workload):
        scheduler.take(batch)
    now = NOW.timestamp()
    scheduler.cycle(now, Stopwatch())
    scheduler.settle()
    sampler, cycles, spent = Sampler(), 0, 0.0
    while cycles < _MOST_CYCLES and spent < _ENOUGH_MS:
        for batch in leaving(workload, cycles):
            scheduler.take(batch)
        scheduler.cycle(now + 1, Stopwatch())
        for batch in arriving(workload, cycles + 1):
            scheduler.take(batch)
        now, watch, start = now + 2, Stopwatch(), time.process_time()
        with sampler.running():
            scheduler.cycle(now, watch)
        spent += (time.process_time() - start) * 1000
        cycles += 1
    return Profile(workload.id, workload.title, cycles, sampler.samples, sampler.stacks())


def _name(frame: FrameType) -> str:
    """Return ``module:function`` of a frame."""
    return f"{frame.f_globals.get('__name__', '?')}:{frame.f_code.co_qualname}"
