"""What is worth knowing about a result, as sentences: how starts were bought, who waited, who paid, what went wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kai.api.kubernetes.pod import GRACE_SECONDS
from kai.virtual.results.metrics import waited
from kai.virtual.results.result import JobResult, SimulationResult
from kai.wording import counted, first_of, span_text

_FEW: Final = 2
_LONG: Final = 60.0
"""Seconds; shorter waits are not worth a sentence."""


def remarks(result: SimulationResult) -> tuple[str, ...]:
    """Return the sentences, the most telling first."""
    return (
        *_bought(result),
        *_waited(result),
        *_never(result),
        *_paid(result),
        *_failed(result),
        *_dropped(result),
        *result.notes,
    )


_NOUNS: Final = {"preempt": "preemption"}
"""Of causes whose word is a verb."""


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
    texts = [f"{job.name} {span_text(seconds)}" for job, seconds in said if seconds > _LONG]
    if texts:
        yield f"Longest waits before a start: {' and '.join(texts)}."


def _never(result: SimulationResult) -> Iterator[str]:
    never = [job for job in result.jobs if job.start_seconds is None and job.state == "waiting"]
    if never:
        names = first_of([job.name for job in sorted(never, key=_order)], 4)
        yield f"{counted(len(never), 'job')} never started: {names}."


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
    nodes = result.value("nodeFailures")
    if nodes:
        yield f"Nodes failed {counted(nodes, 'time')}."


def _dropped(result: SimulationResult) -> Iterator[str]:
    for reason, count in result.dropped.items():
        yield f"{counted(count, 'row')} left out: {reason}."
