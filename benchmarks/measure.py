"""Measure the cycles of one workload in this process: the first, and then several of a scheduler that lives on.

The cluster is listed, those that wait included, and the first cycle is the cold one. Then, round by round, those that
wait leave, a cycle passes, they come back as new objects, and the next cycle is measured: the warm one, which knows
nodes and running pods and has to learn of those that wait. Where they stay, or nothing waits, a warm cycle is one
without news, or one after some running pods were updated.
"""

import gc
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

from benchmarks.clock import Stopwatch, calibrate
from benchmarks.events import Batch, arriving, leaving, listed, updating
from benchmarks.manifests import NOW
from benchmarks.outcome import Decisions, problems
from benchmarks.results import Arrivals, Cycle, Sample
from benchmarks.workload import Expected, Nodes, Pending, QueueShape, Workload

ROUNDS = 3

_WARM_UP = Workload(
    id="warm-up",
    title="the least that goes through every step",
    nodes=Nodes(2),
    queues=(QueueShape("top"), QueueShape("leaf", "top")),
    pending=Pending(2, ("leaf",), pods=2),
    expected=Expected(placed=4),
)

Outcome = TypeVar("Outcome")


class Scheduler(Protocol[Outcome]):
    """What is measured: ``benchmarks.engine.Live``, or a stand-in of a test."""

    def take(self, batch: Batch, /) -> None:
        """Take news of the cluster: decode them and remember them."""

    def settle(self) -> None:
        """Do what a service does once after its first cycle."""

    def cycle(self, now: float, watch: Stopwatch, /) -> Outcome:
        """Decide once and encode what is to be written, telling ``watch`` the phases."""

    def read(self, outcome: Outcome, /) -> Decisions:
        """Name what was decided; not measured."""


def measure(
    workload: Workload, begin: Callable[[], Scheduler[Outcome]], warm: Callable[[], None], rounds: int = ROUNDS
) -> Sample:
    """Measure the first cycle of a scheduler on ``workload``, and ``rounds`` later ones."""
    warm()
    rehearse(begin())
    calibration_ms = calibrate()
    meter = _Meter(workload, begin())
    arrivals = [_timed(meter.scheduler, listed(workload))]
    cold = meter.cycle()
    meter.scheduler.settle()
    cycles = []
    for round_ in range(rounds):
        if not workload.stays:
            _timed(meter.scheduler, leaving(workload, round_))
        meter.quiet_cycle()
        arrivals.append(_timed(meter.scheduler, _news(workload, round_ + 1)))
        # Rubbish of the making of events is not the scheduler's; what it makes itself, it pays for.
        gc.collect()
        cycles.append(meter.cycle())
    return Sample(
        workload=workload.id,
        cold=cold,
        warm=tuple(cycles),
        listed=arrivals[0],
        arrived=tuple(arrivals[1:]),
        calibration_ms=min(calibration_ms, calibrate()),
        rss_mb=memory_mb("VmRSS"),
        peak_rss_mb=memory_mb("VmHWM"),
        placed=len(meter.last.bound),
        pipelined=len(meter.last.pipelined),
        moved=len(meter.last.moved),
        evicted=len(meter.last.evicted),
        problems=tuple(dict.fromkeys(meter.problems)),
    )


def _news(workload: Workload, round_: int) -> Iterator[Batch]:
    """Return what happens before a warm cycle."""
    if not workload.stays:
        yield from arriving(workload, round_)
    yield from updating(workload, round_)


class _Meter:
    """Times cycles of one scheduler, a second apart, and checks each of them."""

    def __init__(self, workload: Workload, scheduler: "Scheduler[Outcome]") -> None:
        self.scheduler = scheduler
        self.problems: list[str] = []
        self.last = Decisions({}, {}, {}, frozenset())
        self._workload = workload
        self._now = NOW.timestamp()

    def cycle(self) -> Cycle:
        """Time one cycle and check what it decided."""
        watch, start = Stopwatch(), time.perf_counter()
        with watch.phase("total"):
            outcome = self.scheduler.cycle(self._now, watch)
        wall_ms = (time.perf_counter() - start) * 1000
        self._now += 1.0
        self.last = self.scheduler.read(outcome)
        self.problems += problems(self._workload, self.last)
        return Cycle(wall_ms=wall_ms, cpu_ms=watch.phases_ms.pop("total"), phases_ms=watch.phases_ms)

    def quiet_cycle(self) -> None:
        """Let a cycle pass untimed."""
        self.scheduler.cycle(self._now, Stopwatch())
        self._now += 1.0


def rehearse(scheduler: Scheduler[Outcome]) -> None:
    """Take every step once on a small cluster, so that nothing is imported or compiled while a clock runs."""
    for batch in (*listed(_WARM_UP), *leaving(_WARM_UP, 0), *arriving(_WARM_UP, 1)):
        scheduler.take(batch)
        scheduler.cycle(NOW.timestamp(), Stopwatch())


def _timed(scheduler: Scheduler[Outcome], batches: Iterable[Batch]) -> Arrivals:
    """Give ``scheduler`` the batches, timing it and not their making."""
    objects, seconds = 0, 0.0
    for batch in batches:
        start = time.process_time()
        scheduler.take(batch)
        seconds += time.process_time() - start
        objects += len(batch.bodies)
    return Arrivals(objects, seconds * 1000)


def memory_mb(line: str) -> float:
    """Read what the kernel says about this process' memory: ``VmRSS`` is now, ``VmHWM`` the most there ever was."""
    for each in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        name, _, value = each.partition(":")
        if name == line:
            return float(value.split()[0]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
