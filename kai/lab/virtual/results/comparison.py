"""A comparison of two results: figures, jobs with different outcomes, and the first decision that differs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

import attrs

from kai.basics.wording import counted, first_of, number_text, span_text
from kai.lab.comparing.comparison import LESS, MORE, NEITHER, Comparison, Divergence, JobChange, JobState, Metric
from kai.lab.virtual.results.metrics import goodput_text, waited

if TYPE_CHECKING:
    from kai.lab.virtual.results.result import DecisionLine, JobResult, QueueResult, SimulationResult

_DIGITS: Final = 6
_METRICS: Final[Mapping[str, tuple[str, str, str]]] = {
    "utilisation": ("utilisation", "part", MORE),
    "goodput": ("goodput", "part", MORE),
    "jain": ("fairness (Jain)", "", MORE),
    "fragmentation": ("fragmentation", "part", LESS),
    "completionMean": ("completion, mean", "s", LESS),
    "slowdownP95": ("slowdown p95", "", LESS),
    "belowFairShare": ("below fair share", "s", LESS),
    "evictedPods": ("pods evicted", "pods", LESS),
    "evictionCost": ("GPU-hours lost", "GPU-h", LESS),
    "crashCost": ("GPU-hours crashed", "GPU-h", NEITHER),
}
"""By metric: its name in comparisons, its unit, and which side is better."""


@attrs.frozen(kw_only=True)
class Compared:
    """A comparison of two runs, with notes for people."""

    comparison: Comparison
    notes: Mapping[str, str]
    """By metric: the job that it mostly concerns."""
    assumed: str
    """The definition of goodput, and how many jobs save their work."""


def compare_runs(a: SimulationResult, b: SimulationResult) -> Compared:
    """Return the changes from one run to the other."""
    found = tuple(_metrics(a, b))
    comparison = Comparison(
        a=a.policy,
        b=b.policy,
        metrics=found,
        jobs=tuple(_jobs(a, b)),
        first_divergence=_divergence(a, b),
    )
    return Compared(comparison=comparison, notes=_notes(a, b), assumed=goodput_text(a))


def top_queues(result: SimulationResult) -> list[QueueResult]:
    """Return the top-level queues that had jobs: the roots, or the children of a single root."""
    level = [queue for queue in result.queues if queue.parent is None]
    if len(level) == 1:
        level = [queue for queue in result.queues if queue.parent == level[0].name] or level
    return sorted((queue for queue in level if queue.jobs), key=lambda queue: -queue.gpu_hours)


def _metrics(a: SimulationResult, b: SimulationResult) -> Iterator[Metric]:
    of_b = {queue.name: queue for queue in b.queues}
    for queue in top_queues(a):
        other = of_b.get(queue.name)
        name = queue.name
        yield _metric(f"{name} jobs done", "jobs", MORE, queue.done, None if other is None else other.done)
        yield _metric(f"{name} jobs started", "jobs", MORE, queue.started, None if other is None else other.started)
        for end, field in (("p50", "wait_p50_seconds"), ("max", "wait_max_seconds")):
            mine, theirs = getattr(queue, field), None if other is None else getattr(other, field)
            yield _metric(f"{name} wait {end}", "s", LESS, mine, theirs)
        hours = None if other is None else other.gpu_hours
        yield _metric(f"{name} GPU-hours", "GPU-h", MORE, queue.gpu_hours, hours)
    for key, (name, unit, better) in _METRICS.items():
        yield _metric(name, unit, better, a.value(key), b.value(key))


def _metric(name: str, unit: str, better: str, a: float | None, b: float | None) -> Metric:
    change = None if a is None or b is None else round(b - a, _DIGITS)
    if a is None and b is None:
        change = 0.0
    if change is None or (better == NEITHER and change):
        side = "unclear"
    elif not change:
        side = "equal"
    else:
        side = "b" if (change > 0) is (better == MORE) else "a"
    return Metric(name=name, unit=unit, a=a, b=b, change=change, better=side)


def _jobs(a: SimulationResult, b: SimulationResult) -> Iterator[JobChange]:
    """Yield jobs that start at another time or on other nodes, or end differently."""
    of_a, of_b = ({f"{job.namespace}/{job.name}": job for job in each.jobs} for each in (a, b))
    for key in dict.fromkeys((*of_a, *of_b)):
        one, other = of_a.get(key), of_b.get(key)
        if one is None or other is None or _fate(one) != _fate(other):
            yield JobChange(job=key, a=_state(one, other), b=_state(other, one))


def _fate(job: JobResult) -> tuple[object, ...]:
    return job.state, job.start_seconds, job.end_seconds, job.nodes, job.evictions


def _state(job: JobResult | None, other: JobResult | None) -> JobState | None:
    """Return the state of a job, with the details in which it differs from the other run."""
    if job is None:
        return None
    times = (None, None) if other is None else (other.start_seconds, other.end_seconds)
    start = "never started" if job.start_seconds is None else f"started T+{_instant(job.start_seconds, times[0])}"
    end = "" if job.end_seconds is None else f", ended T+{_instant(job.end_seconds, times[1])}"
    placed = job.pods if job.start_seconds is not None else 0
    return JobState(
        state=job.state,
        nodes=job.nodes,
        queue=job.queue,
        reason=f"{start}{end}{_besides(job, other)}",
        placed=placed,
        wanted=job.pods,
    )


def _instant(seconds: float, other: float | None) -> str:
    """Return an instant as text, precise enough to differ from the other run's."""
    text = span_text(seconds)
    if other is None or other == seconds or span_text(other) != text:
        return text
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours:.0f}h{minutes:.0f}m{number_text(left)}s"


def _besides(job: JobResult, other: JobResult | None) -> str:
    """Return further differences as text: the evictions if their number differs, else the nodes if only these do."""
    if other is None:
        return ""
    if job.evictions != other.evictions:
        return f", {counted(job.evictions, 'eviction')}"
    is_alike = _fate(job)[:3] == _fate(other)[:3]
    return f", on {first_of(job.nodes, 2) or 'no node'}" if is_alike else ""


def _divergence(a: SimulationResult, b: SimulationResult) -> Divergence | None:
    """Return the first decision that differs; None if there is none among the decisions that both results list."""
    for one, other in zip_longest(a.decisions, b.decisions):
        if one is None or other is None or (one.time_seconds, one.text) != (other.time_seconds, other.text):
            first = min((each for each in (one, other) if each is not None), key=lambda each: each.time_seconds)
            return Divergence(cycle=first.cycle, decision_a=_decision(one), decision_b=_decision(other))
    return None


def _decision(line: DecisionLine | None) -> dict[str, object] | None:
    return None if line is None else {"timeSeconds": line.time_seconds, "text": line.text}


def _notes(a: SimulationResult, b: SimulationResult) -> dict[str, str]:
    """Return, for each top-level queue, the job with the longest wait in either run."""
    found: dict[str, str] = {}
    for queue in top_queues(a):
        longest: list[tuple[float, str]] = []
        for result in (a, b):
            below = result.queues_below(queue.name)
            waits = [(waited(job, result.horizon_seconds), job.name) for job in result.jobs if job.queue in below]
            longest.append(max(waits, default=(0.0, "")))
        found[f"{queue.name} wait max"] = max(longest)[1]
    return found
