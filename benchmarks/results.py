"""Say what a benchmark run reports; README.md documents the JSON that these classes become."""

import statistics
from collections.abc import Iterable, Mapping

from attrs import Factory, frozen

SCHEMA = "kai.benchmarks/v1"


@frozen
class Sample:
    """One cycle in one fresh process."""

    workload: str
    cycle_ms: float
    snapshot_ms: float
    phases_ms: Mapping[str, float]
    calibration_ms: float
    cpu_seconds: float
    load_seconds: float
    rss_before_mb: float
    peak_rss_mb: float
    placed: int
    pipelined: int
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
class Range:
    """What a workload may take: where we want to be, what is enforced, and what was seen."""

    target_ms: float | None = None
    target_from: str = ""
    budget_ratio: float | None = None
    observed: "Observed | None" = None


@frozen
class Observed:
    """A measurement that was recorded, with what is needed to judge it."""

    median_ms: float
    ratio: float
    date: str
    machine: str
    commit: str


@frozen
class Summary:
    """All samples of one workload, summed up and judged."""

    workload: str
    title: str
    pods_pending: int
    pods_running: int
    cycle_ms: Spread
    snapshot_ms: Spread
    phases_ms: Mapping[str, Spread]
    ratio: Spread
    calibration_ms: Spread
    cpu_seconds: Spread
    pods_per_second: float
    peak_rss_mb: float
    rss_before_mb: float
    placed: int
    pipelined: int
    evicted: int
    outcome: str
    problems: tuple[str, ...]
    range: Range
    within_target: bool | None
    within_budget: bool | None
    peer_cycle_ms: tuple[float, float] | None
    times_faster: float | None
    samples: tuple[Sample, ...]


@frozen
class Report:
    """Everything one call of ``run`` found out."""

    machine: Mapping[str, str]
    runs: int
    results: tuple[Summary, ...]
    schema: str = SCHEMA
    failures: Mapping[str, str] = Factory(dict)
