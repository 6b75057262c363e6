"""Measure one cycle over one workload.

Objects are loaded and the kernels are warmed before the clock starts; snapshot and cycle are inside. Memory that lives
on is moved out of the collector's sight before, as the service does after its start.
"""

import gc
import resource
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol, TypeVar

from benchmarks.clock import Stopwatch, calibrate
from benchmarks.manifests import Manifest, manifests
from benchmarks.outcome import Decisions, problems
from benchmarks.results import Sample
from benchmarks.workload import Expected, Nodes, Pending, QueueShape, Workload

_WARM_UP = Workload(
    id="warm-up",
    title="the least that goes through every step",
    nodes=Nodes(2),
    queues=(QueueShape("top"), QueueShape("leaf", "top")),
    pending=Pending(2, ("leaf",), pods=2),
    expected=Expected(placed=4),
)


Objects = TypeVar("Objects")


class Engine(Protocol[Objects]):
    """What is measured: ``benchmarks.engine``, or a stand-in of a test."""

    def warm(self) -> None:
        """Do what need be done only once in a process."""

    def load(self, manifests: Iterable[Manifest], /) -> Objects:
        """Read manifests into the engine's own objects."""

    def decide(self, objects: Objects, watch: Stopwatch, /) -> Decisions:
        """Decide once, telling ``watch`` the phases, of which one may be called ``snapshot``."""


def measure(workload: Workload, engine: Engine[Objects]) -> Sample:
    """Let ``engine`` decide once about ``workload`` and say what that took."""
    engine.warm()
    engine.decide(engine.load(manifests(_WARM_UP)), Stopwatch())

    start = time.perf_counter()
    objects = engine.load(manifests(workload))
    load_seconds = time.perf_counter() - start
    calibration_ms = calibrate()
    gc.collect()
    gc.freeze()
    rss_before_mb = _rss_mb()

    watch, cpu_start = Stopwatch(), time.process_time()
    with watch.phase("total"):
        decisions = engine.decide(objects, watch)
    cpu_seconds = time.process_time() - cpu_start
    cycle_ms = watch.phases_ms.pop("total")
    snapshot_ms = watch.phases_ms.pop("snapshot", 0.0)
    return Sample(
        workload=workload.id,
        cycle_ms=cycle_ms,
        snapshot_ms=snapshot_ms,
        phases_ms=watch.phases_ms,
        calibration_ms=min(calibration_ms, calibrate()),
        cpu_seconds=cpu_seconds,
        load_seconds=load_seconds,
        rss_before_mb=rss_before_mb,
        peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        placed=len(decisions.bound),
        pipelined=len(decisions.pipelined),
        evicted=len(decisions.evicted),
        problems=tuple(problems(workload, decisions)),
    )


def _rss_mb() -> float:
    """Read how much memory of this process is resident now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / 2**20
