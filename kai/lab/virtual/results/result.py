"""The result of a run as plain values: the same for the command, the report, a comparison and other programs.

Everything but ``computing_seconds`` follows from the inputs alone, bit for bit.

`figure` and `headline` format metrics: a value in its unit. `HEADLINES` lists the main metrics, in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from kai.basics.wording import span_text


@attrs.frozen(kw_only=True)
class InputItem:
    """What a run was made of, with SHA-256 of each, so that it can be repeated."""

    workload: str
    workload_sha256: str | None
    cluster: str | None
    cluster_sha256: str | None
    policy: str
    policy_sha256: str | None
    seed: int
    changes: tuple[str, ...] = ()
    """Overrides of the policy: PATH=VALUE, as with --sweep."""
    since: float | None = None
    """The instant at which a trace begins, in seconds since the epoch; null for its first arrival."""
    skips_bad_rows: bool = False


@attrs.frozen(kw_only=True)
class MetricItem:
    """One figure with its unit and how it is defined; null where there is nothing to count."""

    value: float | None
    unit: str
    definition: str


@attrs.frozen(kw_only=True)
class QueueResult:
    """What one queue got, with the queues below it."""

    name: str
    parent: str | None
    leaf: bool
    quota_gpus: float | None
    """Null is unlimited."""
    gpu_hours: float
    of_quota: float | None
    """GPU-hours against those of its quota."""
    jobs: int
    started: int
    done: int
    wait_p50_seconds: float | None
    wait_p95_seconds: float | None
    wait_max_seconds: float | None
    evicted_pods: int
    lost_gpu_hours: float
    below_fair_share_seconds: float


@attrs.frozen(kw_only=True)
class JobResult:
    """What became of one job. Seconds count from the start of the run; null: it did not happen."""

    name: str
    namespace: str
    queue: str
    kind: str
    owner: str
    user: str
    pods: int
    gpus: float
    state: str
    """waiting, running, done, failed, time limit or taken back."""
    arrival_seconds: float
    first_place_seconds: float | None
    """When a pod of it first had a place, or the promise of one."""
    start_seconds: float | None
    end_seconds: float | None
    waits_seconds: tuple[float, ...]
    """The wait before each start; the last one may be open."""
    evictions: int
    lost_gpu_seconds: float
    crashed_gpu_seconds: float
    nodes: tuple[str, ...]
    reason: str | None = None
    """Why it never started, as a code; null if it started, or ended before the run."""
    reason_text: str | None = None
    """The same reason as a sentence."""


@attrs.frozen(kw_only=True)
class EvictionResult:
    """One eviction: of whom, for whom and by which rule."""

    time_seconds: float
    job: str
    pod: str
    node: str
    gpus: float
    cause: str
    rule: str
    aggressor: str | None


@attrs.frozen(kw_only=True)
class StayResult:
    """A pod on a node."""

    job: int
    """Its index among the jobs."""
    node: str
    start_seconds: float
    end_seconds: float
    gpus: float


@attrs.frozen(kw_only=True)
class SeriesResult:
    """Columns over time: each value is the mean of its column over a bucket.

    ``used/QUEUE``, ``waiting/QUEUE`` and ``fair/QUEUE`` are GPUs of leaf queues; ``idle/1`` to ``idle/8`` are whole
    idle GPUs on nodes that could hold a gang of that many; ``capacity`` is all GPUs.
    """

    bucket_seconds: float
    start_seconds: tuple[float, ...]
    columns: Mapping[str, tuple[float, ...]]


@attrs.frozen(kw_only=True)
class DecisionLine:
    """One decision of the run."""

    time_seconds: float
    cycle: int
    text: str


@attrs.frozen(kw_only=True, slots=False)  # documents inherit from it and a second base; only one may have slots
class SimulationResult:
    """What became of a workload over virtual time."""

    title: str
    policy: str
    """The name of the policy."""
    inputs: InputItem
    horizon_seconds: float
    counts: Mapping[str, float]
    """Counts of cluster and workload: nodes and GPUs at the start, GPU-hours, leaf queues, jobs, kinds."""
    metrics: Mapping[str, MetricItem]
    queues: tuple[QueueResult, ...]
    jobs: tuple[JobResult, ...]
    evictions: tuple[EvictionResult, ...]
    stays: tuple[StayResult, ...]
    series: SeriesResult
    decisions: tuple[DecisionLine, ...]
    """The first decisions, so that a comparison finds where two runs diverge."""
    decision_hash: str
    """Hash of all decisions with their instants."""
    assumptions: tuple[str, ...]
    dropped: Mapping[str, int]
    """Skipped rows of a trace, counted by reason."""
    unkept: int
    """Stays and evictions that are not listed, because there are too many."""
    notes: tuple[str, ...]
    starts_at: str | None = None
    """The start of the run as a calendar time, where its inputs have calendar times; else null."""

    def value(self, metric: str) -> float | None:
        """Return the value of a metric; None where there is nothing to count, or another version did not write it."""
        found = self.metrics.get(metric)
        return None if found is None else found.value

    @property
    def most_gpus(self) -> float:
        """The most GPUs at any time: nodes come and go."""
        return max([self.counts["gpus"], *self.series.columns.get("capacity", ())])

    def queues_below(self, name: str) -> set[str]:
        """Return the names of a queue and of all queues below it."""
        below = {name}
        while more := {each.name for each in self.queues if each.parent in below} - below:
            below |= more
        return below

    def trace(self) -> list[dict[str, Any]]:
        """Return the stays of pods as Chrome trace events, one row for each node; Perfetto opens them.

        Units: microseconds, as that format requires.
        """
        rows = {name: row for row, name in enumerate(dict.fromkeys(each.node for each in self.stays), start=1)}
        events: list[dict[str, Any]] = [
            {"ph": "M", "name": "process_name", "pid": row, "args": {"name": name}} for name, row in rows.items()
        ]
        for each in self.stays:
            job = self.jobs[each.job]
            events.append(
                {
                    "ph": "X",
                    "name": f"{job.namespace}/{job.name}",
                    "cat": job.queue,
                    "pid": rows[each.node],
                    "tid": each.job,
                    "ts": round(each.start_seconds * 1e6),
                    "dur": round((each.end_seconds - each.start_seconds) * 1e6),
                    "args": {"gpus": each.gpus},
                }
            )
        return events


HEADLINES: Final = (
    ("utilisation", "utilisation", "%"),
    ("goodput", "goodput", "%"),
    ("fairness (Jain)", "jain", ""),
    ("fragmentation", "fragmentation", "%"),
    ("jobs started", "started", "n"),
    ("jobs done", "done", "n"),
    ("wait p50", "queueingDelayP50", "s"),
    ("wait p95", "queueingDelayP95", "s"),
    ("wait max", "queueingDelayMax", "s"),
    ("completion, mean", "completionMean", "s"),
    ("pods evicted", "evictedPods", "n"),
    ("GPU-hours lost", "evictionCost", "GPU-h"),
)
"""Each metric: its label, its name in a result, and its unit."""
BETTER_HIGH: Final = frozenset({"utilisation", "goodput", "jain", "started", "done"})
"""The metrics for which more is better; for all others less is."""


def figure(value: float | None, unit: str) -> str:
    """Return a value in its unit; percentages are given as fractions, and ``n`` is a plain count."""
    if value is None:
        return "-"
    if unit == "%":
        return f"{value:.1%}"
    if unit == "s":
        return span_text(value)
    if unit == "n":
        return f"{value:,.0f}"
    return f"{value:,.1f}" if unit else f"{value:.3f}"


def headline(result: SimulationResult, name: str) -> str:
    """Return the text of one of the metrics above; a hyphen where there is nothing to count."""
    unit = next(unit for _, known, unit in HEADLINES if known == name)
    return figure(result.value(name), unit)
