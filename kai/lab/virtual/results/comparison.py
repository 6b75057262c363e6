"""A comparison of two results: figures, jobs with different outcomes, and the first decision that differs.

Also remarks on one result as sentences: evictions for starts, long waits, the queues that lost pods, and failures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from math import inf
from typing import TYPE_CHECKING, Final

import attrs

from kai.api.kubernetes.pod import GRACE_SECONDS
from kai.basics.wording import counted, first_of, number_text, span_text
from kai.lab.comparing.comparison import LESS, MORE, NEITHER, Comparison, Divergence, JobChange, JobState, Metric
from kai.lab.virtual.results.metrics import goodput_text, longest_wait, waited

if TYPE_CHECKING:
    from collections.abc import Iterator

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


_FEW: Final = 2
_LONG: Final = 60.0
"""Seconds; shorter waits are not worth a sentence."""
_LONGS: Final = ((86400.0, "a day"), (3600.0, "an hour"))
"""Thresholds of a long wait: the first one that the run is more than twice as long as applies."""
_MOST_REASONS: Final = 3
"""Most reasons of jobs that never started to show."""
_MANY: Final = 10
"""Number of younger jobs passing a job from which a sentence is worthwhile: some always pass."""
_MOST_LATE: Final = 50
"""Number of jobs, those with the longest waits, for which passing jobs are counted."""


def remarks(result: SimulationResult) -> tuple[str, ...]:
    """Return the sentences, the most important first."""
    return (
        *_bought(result),
        *_waited(result),
        *_long(result),
        *_never(result),
        *_passed(result),
        *_paid(result),
        *_failed(result),
        *_dropped(result),
        *result.notes,
    )


_NOUNS: Final = {"preempt": "preemption"}
"""Nouns for causes whose name is a verb."""


def _bought(result: SimulationResult) -> Iterator[str]:
    by_cause: dict[str, dict[str, None]] = {}
    for each in result.evictions:
        if each.aggressor is not None:
            by_cause.setdefault(each.cause, {})[each.aggressor] = None
    for cause, jobs in by_cause.items():
        grace = span_text(GRACE_SECONDS)
        who = "it" if len(jobs) == 1 else "each"
        noun = _NOUNS.get(cause, cause)
        yield f"{counted(len(jobs), 'job')} got GPUs by {noun}; {who} waited {grace} for pods to terminate."


def _waited(result: SimulationResult) -> Iterator[str]:
    started = [job for job in result.jobs if job.start_seconds is not None]
    longest = sorted(started, key=lambda job: -waited(job, result.horizon_seconds))[:_FEW]
    said = [(job, waited(job, result.horizon_seconds)) for job in longest]
    texts = [f"{job.name} ({span_text(seconds)})" for job, seconds in said if seconds > _LONG]
    if texts:
        yield f"Longest waits before a start: {' and '.join(texts)}."


def long_enough(result: SimulationResult) -> tuple[float, str]:
    """Return the threshold of a long wait in this run, and its name."""
    return next((each for each in _LONGS if result.horizon_seconds > 2 * each[0]), _LONGS[-1])


def _long(result: SimulationResult) -> Iterator[str]:
    seconds, name = long_enough(result)
    late = [job for job in result.jobs if longest_wait(job, result.horizon_seconds) > seconds]
    spread = sum(needs_several(job, result) for job in late)
    if late and spread == len(late):
        yield f"{counted(len(late), 'job')} over several nodes waited over {name}."
    elif late:
        several = f", {spread:,} of them over several nodes" if spread else ""
        yield f"{counted(len(late), 'job')} waited over {name}{several}."


def needs_several(job: JobResult, result: SimulationResult) -> bool:
    """Return whether a job requests more GPUs than a node has."""
    return job.gpus > result.counts.get("largestNode", inf)


def _never(result: SimulationResult) -> Iterator[str]:
    """Yield the number of jobs that never started, and for each reason what the first of its jobs waits for."""
    never = sorted((job for job in result.jobs if job.start_seconds is None and job.state == "waiting"), key=_order)
    if not never:
        return
    yield f"{counted(len(never), 'job')} never started: {first_of([job.name for job in never], 4)}."
    by_reason: dict[str, list[JobResult]] = {}
    for job in never:
        by_reason.setdefault(job.reason or "", []).append(job)
    by_count = sorted(((code, jobs) for code, jobs in by_reason.items() if code), key=lambda each: -len(each[1]))
    for code, jobs in by_count[:_MOST_REASONS]:
        others = f" So it is with {counted(len(jobs) - 1, 'more job')} ({code})." if len(jobs) > 1 else ""
        yield f"At the end {jobs[0].reason_text}{others}"
    if len(by_count) > _MOST_REASONS:
        yield f"The result has {counted(len(by_count) - _MOST_REASONS, 'more reason')}."


# --- Passed jobs ---------------------------------------------------------------------------------------------------


def passers(job: JobResult, result: SimulationResult) -> list[JobResult]:
    """Return the GPU jobs that arrived after a job and started before it, or that started at all if it never did."""
    until = inf if job.start_seconds is None else job.start_seconds
    return [
        each
        for each in result.jobs
        if each.gpus and each.arrival_seconds > job.arrival_seconds and each.start_seconds is not None
        if each.start_seconds < until
    ]


def passed_text(job: JobResult, result: SimulationResult) -> str:
    """Return how many younger jobs started before a job, by which rule, and what would prevent it; "" if few did."""
    younger = passers(job, result)
    if len(younger) < _MANY:
        return ""
    by_queue = Counter(each.queue for each in younger)
    whose = ", ".join(f"{count:,} in {queue}" for queue, count in by_queue.most_common(_FEW))
    smaller = "All of them are smaller: " if all(each.gpus < job.gpus for each in younger) else ""
    queue = next((each for each in result.queues if each.name == job.queue), None)
    quota = None if queue is None else queue.quota_gpus
    gpus = f"{job.gpus:,.12g}"
    if quota is not None and quota < job.gpus:
        ends = (
            f"Queue {job.queue} is sure of its quota of {quota:,.12g} only: with a quota of {gpus} the job could take "
            f"them back from other queues."
        )
    elif by_queue[job.queue] > len(younger) / 2:
        ends = "In its own queue only a higher priority makes room for it."
    else:
        ends = "It starts when as many GPUs are idle at once, or when its queue may take them back."
    return (
        f"{len(younger):,} jobs that came after {job.name} ({gpus} GPUs) started before it ({whose}). {smaller}kai "
        f"holds no idle GPUs back for a job that waits. {ends}"
    )


def _passed(result: SimulationResult) -> Iterator[str]:
    """Yield a sentence on the job that most others passed, among those with long waits."""
    seconds, _ = long_enough(result)
    waits = [(longest_wait(job, result.horizon_seconds), job) for job in result.jobs if job.gpus]
    late = sorted((each for each in waits if each[0] > seconds), key=lambda each: -each[0])[:_MOST_LATE]
    most = max((job for _, job in late), key=lambda job: len(passers(job, result)), default=None)
    text = "" if most is None else passed_text(most, result)
    if text:
        yield text


def _order(job: JobResult) -> tuple[float, str]:
    return -job.gpus, job.name


def _paid(result: SimulationResult) -> Iterator[str]:
    by_job = {f"{job.namespace}/{job.name}": job for job in result.jobs}
    evicted: Counter[str] = Counter(by_job[each.job].queue for each in result.evictions)
    if not evicted:
        return
    queue, pods = evicted.most_common(1)[0]
    gpus = sum(each.gpus for each in result.evictions if by_job[each.job].queue == queue)
    total = sum(evicted.values())
    share = "all" if pods == total else f"{pods} of {total}"
    yield f"Queue {queue} bears the cost: {share} evictions, {counted(round(gpus, 3), 'GPU')}."


def _failed(result: SimulationResult) -> Iterator[str]:
    failed = [job.name for job in result.jobs if job.state == "failed"]
    if failed:
        yield f"{counted(len(failed), 'job')} crashed more often than retried: {first_of(failed, 4)}."
    limited = [job.name for job in result.jobs if job.state == "time limit"]
    if limited:
        yield f"{counted(len(limited), 'job')} ended at the limit of the run time: {first_of(limited, 4)}."
    nodes = result.value("nodeFailures")
    if nodes:
        yield f"Nodes failed {counted(nodes, 'time')}."


def _dropped(result: SimulationResult) -> Iterator[str]:
    for reason, count in result.dropped.items():
        yield f"{counted(count, 'row')} left out: {reason}."
