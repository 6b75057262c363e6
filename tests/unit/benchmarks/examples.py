"""Findings as ``run``, ``scale`` and ``profile`` would have found them."""

from benchmarks.campaign import summarize
from benchmarks.catalogue import find_workload
from benchmarks.growth import Curve, Growth, Point
from benchmarks.results import Arrivals, Cycle, Range, Report, Sample, Spread, Summary, Timing
from benchmarks.sampling import Profile, Stack

MACHINE = {"cpu": "any", "cores": "2", "load": "0.1", "date": "2026-01-02 03:04 UTC", "commit": "abc1234"}


def sample(*warm_ms: float, placed: int = 800, peak_rss_mb: float = 120.0, problems: tuple[str, ...] = ()) -> Sample:
    return Sample(
        workload="w0",
        cold=Cycle(wall_ms=200.0, cpu_ms=190.0, phases_ms={"snapshot": 150.0}),
        warm=tuple(Cycle(wall_ms=each, cpu_ms=each, phases_ms={"allocate": each - 1.0}) for each in warm_ms),
        listed=Arrivals(1000, 20.0),
        arrived=(Arrivals(100, 1.0), Arrivals(100, 3.0), Arrivals(0, 0.0)),
        calibration_ms=10.0,
        rss_mb=100.0,
        peak_rss_mb=peak_rss_mb,
        placed=placed,
        pipelined=0,
        moved=0,
        evicted=0,
        problems=problems,
    )


def summary(id_: str, warm_ms: float, limits: Range | None = None, **parts) -> Summary:
    return summarize(find_workload(id_), [sample(warm_ms, **parts)], limits or Range())


def report(*summaries: Summary, **failures: str) -> Report:
    return Report(MACHINE, 1, 1, summaries, failures=failures)


def timing(wall_ms: float, **phases_ms: float) -> Timing:
    spread = Spread(wall_ms, wall_ms, wall_ms)
    return Timing(spread, spread, spread, phases_ms)


def growth() -> Growth:
    points = tuple(
        Point(size, timing(size / 100, allocate=size / 200, open=4.0), timing(size / 10), 200.0)
        for size in (500, 1000, 2000)
    )
    return Growth(MACHINE, 1, 1, (Curve("nodes", "4,000 pods are placed", "nodes", points),))


def profile() -> Profile:
    stacks = (
        Stack(("kai.intake.snapshot:Intake.take",), 30.0),
        Stack(("kai.intake.snapshot:Intake.take", "kai.intake.pods:PodReader.read"), 50.0),
        Stack(("kai.deciding.engine.cycle:run_cycle",), 20.0),
    )
    return Profile("w1", "a title", cycles=2, samples=100, stacks=stacks, machine=MACHINE)
