"""Say what a benchmark run reports; README.md documents the JSON that these classes become."""

import statistics
from collections.abc import Iterable, Mapping

from attrs import Factory, frozen

SCHEMA = "kai.benchmarks/v2"


@frozen
class Cycle:
    """One timed cycle; phases are processor time, and ``cpu_ms`` is a little more than their sum."""

    wall_ms: float
    cpu_ms: float
    phases_ms: Mapping[str, float]


@frozen
class Arrivals:
    """The processor time of decoding and storing objects, which is done as they come, not in a cycle."""

    objects: int
    cpu_ms: float


@frozen
class Sample:
    """What one fresh process measured: the first cycle, several of a scheduler that lives on, and what came in."""

    workload: str
    cold: Cycle
    warm: tuple[Cycle, ...]
    listed: Arrivals
    arrived: tuple[Arrivals, ...]
    calibration_ms: float
    rss_mb: float
    peak_rss_mb: float
    placed: int
    pipelined: int
    moved: int
    evicted: int
    problems: tuple[str, ...] = ()


@frozen
class Spread:
    """Least, middle and greatest of a figure over the samples."""

    min: float
    median: float
    max: float

    @classmethod
    def over(cls, values: Iterable[float]) -> "Spread":
        """Sum up ``values``, of which there must be one at least."""
        ordered = sorted(values)
        return cls(ordered[0], statistics.median(ordered), ordered[-1])


@frozen
class Observed:
    """A measurement that was recorded, with what is needed to judge it."""

    median_ms: float
    min_ms: float
    wall_ms: float
    cold_ms: float
    ratio: float
    peak_rss_mb: float
    date: str
    machine: str
    load: str
    commit: str


@frozen
class Range:
    """What a workload may take: where we want to be, what is enforced, and what was seen."""

    target_ms: float | None = None
    target_from: str = ""
    target_rss_mb: float | None = None
    budget_ratio: float | None = None
    budget_from: str = ""
    observed: Observed | None = None


@frozen
class Timing:
    """One kind of cycle over all its samples; phases and processor time as the middle of each."""

    wall_ms: Spread
    cpu_ms: Spread
    ratio: Spread
    phases_ms: Mapping[str, float]


@frozen
class Summary:
    """All samples of one workload, summed up and judged by the warm cycle."""

    workload: str
    title: str
    nodes: int
    pods_pending: int
    pods_running: int
    warm: Timing
    cold: Timing
    calibration_ms: Spread
    listing_us: float
    arriving_us: float | None
    pods_per_second: float
    rss_mb: float
    peak_rss_mb: float
    placed: int
    pipelined: int
    moved: int
    evicted: int
    outcome: str
    problems: tuple[str, ...]
    range: Range
    within_target: bool | None
    within_memory: bool | None
    within_budget: bool | None
    peer_cycle_ms: tuple[float, float] | None
    peer_note: str
    times_faster: float | None
    samples: tuple[Sample, ...]


@frozen
class Report:
    """Everything one call of ``run`` found out."""

    machine: Mapping[str, str]
    runs: int
    rounds: int
    results: tuple[Summary, ...]
    schema: str = SCHEMA
    failures: Mapping[str, str] = Factory(dict)
