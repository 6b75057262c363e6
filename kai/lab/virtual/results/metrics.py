"""The figures of a run, each with its definition. Start reading at ``result_of``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, isnan
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import attrs

from kai.api.conventions.quota_windows import in_force
from kai.api.values import instant_text
from kai.basics.trees import descendants
from kai.lab.virtual.results.result import (
    DecisionLine,
    EvictionResult,
    InputItem,
    JobResult,
    MetricItem,
    QueueResult,
    SeriesResult,
    SimulationResult,
    StayResult,
)
from kai.lab.virtual.running.live_jobs import State
from kai.lab.virtual.running.meters import PIECES, Meters
from kai.lab.virtual.running.records import Ending, JobRecord, Loss, Records
from kai.lab.virtual.scenes.later_pods import missed_notes

if TYPE_CHECKING:
    from kai.api.scheduling.queue import Queue, QueueSpec
    from kai.lab.virtual.running.simulation import Run

HOUR: Final = 3600.0
MOST_LINES: Final = 20_000
"""Most decisions in a result."""
_DIGITS: Final = 6
ASSUMPTIONS: Final = (
    "Pods run as soon as they are bound: images, volumes and network take no time.",
    "A pod that is evicted works no more, and holds its devices until its grace period of 30s is over.",
    "Jobs and Deployments make evicted pods again at once, all other owners when the old pod is gone.",
    "An eviction is no failure that an owner counts.",
    "Jobs make pods that crashed again after 10s, doubled each time up to 6m.",
    "A job works while as many of its pods run as must start together, and no faster with more.",
    "Work is saved at checkpoints only; a job without checkpoints begins anew after each interruption.",
    "Cycles are decided when something changed, at most ten times a second.",
    "Searches for victims are not limited in time.",
    "Past usage of queues counts if usageDBConfig names clientType sqlite or postgresql, and is that of the run.",
)


@attrs.frozen(kw_only=True)
class PolicyInput:
    """The policy of a run as its result names it."""

    name: str = "default"
    path: str = "default"
    sha256: str | None = None
    changes: tuple[str, ...] = ()
    """Overrides of the policy: PATH=VALUE."""


Reasons = Mapping[tuple[str, str], tuple[str, str]]
"""Why jobs wait, by namespace and name: a code and a sentence."""


def result_of(
    run: Run,
    policy: PolicyInput | None = None,
    computing_seconds: float | None = None,
    reasons: Reasons = MappingProxyType({}),
) -> SimulationResult:
    """Return a run as plain values; ``reasons`` explain why jobs wait at its end."""
    policy = PolicyInput() if policy is None else policy
    scene, records = run.scene, run.records
    inputs = scene.inputs
    jobs = tuple(_job(record, reasons) for record in records.jobs)
    return SimulationResult(
        title=scene.title,
        policy=policy.name,
        inputs=InputItem(
            workload=inputs.workload,
            workload_sha256=inputs.workload_sha256,
            cluster=inputs.cluster,
            cluster_sha256=inputs.cluster_sha256,
            policy=policy.path,
            policy_sha256=policy.sha256,
            seed=scene.seed,
            changes=policy.changes,
            since=inputs.since,
            skips_bad_rows=inputs.skips_bad_rows,
        ),
        horizon_seconds=run.horizon,
        counts=_counts(run),
        metrics=_metrics(run, jobs, computing_seconds),
        queues=_queues(run, jobs),
        jobs=jobs,
        evictions=_evictions(records, jobs),
        stays=_stays(run),
        series=_series(records.meters),
        decisions=tuple(
            DecisionLine(time_seconds=at, cycle=cycle, text=text) for at, cycle, text in run.first[:MOST_LINES]
        ),
        decision_hash=run.digest,
        assumptions=(*ASSUMPTIONS, *scene.assumptions),
        dropped=dict(scene.dropped),
        unkept=records.unkept,
        notes=(*scene.notes, *missed_notes(records.put_off, records.missed), *records.later_notes()),
        starts_at=None if scene.starts is None else instant_text(scene.starts),
    )


def percentile(values: Sequence[float], part: float) -> float | None:
    """Return the smallest value that at least ``part`` of all values do not exceed; None without values."""
    if not values:
        return None
    # The nearest rank: a wait that a job had, and no value between two. The small term keeps 0.07 * 100, which is above
    # 7 as a float, from becoming 8.
    return sorted(values)[max(0, ceil(part * len(values) - 1e-9) - 1)]


def waited(job: JobResult, horizon: float) -> float:
    """Return the wait of a job for its first start; without a start, the wait lasts until its end, or the run's."""
    until = job.start_seconds
    if until is None:
        # Jobs that never start count with their whole wait. Without them a
        # policy that starves the large ones would look best.
        until = horizon if job.end_seconds is None else job.end_seconds
    return round(until - job.arrival_seconds, _DIGITS)


def longest_wait(job: JobResult, horizon: float) -> float:
    """Return the longest wait of a job for a start, the first or a later one."""
    return max([waited(job, horizon), *job.waits_seconds])


def _job(record: JobRecord, reasons: Reasons) -> JobResult:
    started = not isnan(record.start)
    state = str(record.ending) if record.ending is not None else (State.RUNNING if started else State.WAITING).value
    never = record.ending is None and not started
    code, said = reasons.get((record.namespace, record.name), (None, None)) if never else (None, None)
    return JobResult(
        name=record.name,
        namespace=record.namespace,
        queue=record.queue,
        kind=record.kind,
        owner=record.owner,
        user=record.user,
        pods=record.pods,
        gpus=record.gpus,
        state=state,
        arrival_seconds=record.arrival,
        first_place_seconds=_or_none(record.possible),
        start_seconds=_or_none(record.start),
        end_seconds=_or_none(record.end),
        waits_seconds=record.waits,
        evictions=record.evictions,
        lost_gpu_seconds=round(record.lost, _DIGITS),
        crashed_gpu_seconds=round(record.crashed, _DIGITS),
        nodes=record.nodes,
        reason=code,
        reason_text=said,
    )


def _or_none(value: float) -> float | None:
    return None if isnan(value) else value


def _counts(run: Run) -> dict[str, float]:
    scene, meters = run.scene, run.records.meters
    parents = {queue.spec.parent_queue for queue in scene.objects.queues}
    leaves = sum(1 for queue in scene.objects.queues if queue.metadata.name not in parents)
    gpus = {"nodes": float(len(scene.objects.nodes)), "gpus": run.gpus, "leafQueues": float(leaves)}
    gpus["largestNode"] = meters.largest
    gpus["savingJobs"] = float(run.records.saving)
    gpus["gpuHours"] = round(meters.capacity_sum / HOUR, _DIGITS)
    return {**gpus, "jobs": float(len(run.records.jobs)), **{key: float(n) for key, n in scene.counts.items()}}


# --- Metrics -------------------------------------------------------------------------------------------------------


def _metrics(run: Run, jobs: Sequence[JobResult], computing_seconds: float | None) -> dict[str, MetricItem]:
    records = run.records
    found = {
        "utilisation": _item(
            _part(float(records.meters.used_sum.sum()), records.meters.capacity_sum),
            "",
            "Allocated GPU-seconds against allocatable ones. Allocation is not activity: an allocated GPU may be idle.",
        ),
        "goodput": _goodput(records),
        **_of_waiting(run, jobs),
        **_of_completion(run, jobs),
        **_of_sharing(run),
        **_of_evictions(records),
        "nodeFailures": _item(float(run.node_failures), "failures", "Nodes that failed."),
        "decisions": _item(float(run.decisions), "decisions", "Bindings, evictions and promises of all cycles."),
        "cycles": _item(float(run.cycles), "cycles", "Cycles that were decided; none while nothing changes."),
    }
    if computing_seconds is not None:
        text = "Seconds of processor that the run took on this machine; the only figure that does not repeat."
        found["computing"] = _item(computing_seconds, "s", text)
    return found


def _goodput(records: Records) -> MetricItem:
    """Return utilisation less lost work; its text includes the assumption on checkpoints, which determine the loss."""
    kept = float(records.meters.used_sum.sum()) - sum(records.losses.values())
    text = "Allocated GPU-seconds less those whose work evictions, failed nodes and crashes made worthless, against"
    assumed = saving_text(records.saving, len(records.jobs))
    return _item(_part(max(0.0, kept), records.meters.capacity_sum), "", f"{text} allocatable ones. {assumed}")


def saving_text(saving: float, jobs: int) -> str:
    """Return a sentence on how many jobs save their work, which determines what is lost."""
    if not saving:
        return "No job saves its work at checkpoints: after an interruption it begins anew."
    if saving >= jobs:
        return "Each job saves its work at checkpoints."
    save = "saves its" if saving == 1 else "save their"
    others = "other begins" if jobs - saving == 1 else "others begin"
    return f"{saving:,.0f} of {jobs:,} jobs {save} work at checkpoints; after an interruption the {others} anew."


def goodput_text(result: SimulationResult) -> str:
    """Return the definition of goodput, with the number of jobs in a result that save their work."""
    return f"goodput: allocated less lost work. {saving_text(result.counts.get('savingJobs', 0.0), len(result.jobs))}"


def _of_waiting(run: Run, jobs: Sequence[JobResult]) -> dict[str, MetricItem]:
    delays = [waited(job, run.horizon) for job in jobs]
    delay = "From the arrival of a job until enough of its pods first run together; who never starts waits to the end."
    gangs = [
        round((run.horizon if job.start_seconds is None else job.start_seconds) - job.first_place_seconds, _DIGITS)
        for job in jobs
        if job.first_place_seconds is not None
    ]
    gang = "From the first place, or promise of one, for a pod of a job until enough of its pods run together."
    return {
        **_spread("queueingDelay", delays, delay),
        **_spread("gangWait", gangs, gang),
        "started": _item(
            float(sum(job.start_seconds is not None for job in jobs)), "jobs", "Jobs that started at least once."
        ),
    }


def _of_completion(run: Run, jobs: Sequence[JobResult]) -> dict[str, MetricItem]:
    times: list[float] = []
    slow: list[float] = []
    for record, job in zip(run.records.jobs, jobs, strict=True):
        if record.ending is Ending.DONE and record.alone is not None and job.end_seconds is not None:
            times.append(round(job.end_seconds - job.arrival_seconds, _DIGITS))
            # A job without duration has no slowdown; it would divide by 0.
            if record.alone:
                slow.append(round(times[-1] / record.alone, _DIGITS))
    completion = "From the arrival of a job to its end, of jobs that ended with their work done."
    slowdown = "That time against start-up and duration alone, as if the job had had the cluster for itself."
    return {
        "done": _item(float(len(times)), "jobs", "Jobs that ended with their work done."),
        "completionMean": _item(_mean(times), "s", completion),
        **_spread("completion", times, completion),
        "slowdownMean": _item(_mean(slow), "", slowdown),
        **_spread("slowdown", slow, slowdown, unit=""),
    }


def _of_sharing(run: Run) -> dict[str, MetricItem]:
    meters = run.records.meters
    return {
        "jain": _item(
            _part(meters.even_sum, meters.even_seconds),
            "",
            "Jain's index of used GPUs / fair share over leaf queues that have or want some, averaged over time: 1 is "
            "even.",
        ),
        "fragmentation": _item(
            _part(meters.unusable_sum, meters.idle_sum),
            "",
            "Idle GPUs that the largest waiting pod cannot use on their nodes, against all idle GPUs, while pods wait.",
        ),
        "belowFairShare": _item(
            round(float(meters.below_sum.sum()), _DIGITS),
            "s",
            "Time for which leaf queues wanted GPUs and had fewer than their fair share, summed over queues.",
        ),
    }


def _of_evictions(records: Records) -> dict[str, MetricItem]:
    lost = (records.losses[Loss.EVICTION] + records.losses[Loss.NODE]) / HOUR
    return {
        "evictedPods": _item(float(records.evicted_pods), "pods", "Pods that the scheduler evicted."),
        "evictedGpus": _item(round(records.evicted_gpus, _DIGITS), "GPUs", "GPUs that those pods held."),
        "evictionCost": _item(
            round(lost, _DIGITS),
            "GPU-h",
            "Work since the last checkpoint and warm-up that evictions and failed nodes made worthless.",
        ),
        "crashCost": _item(round(records.losses[Loss.CRASH] / HOUR, _DIGITS), "GPU-h", "The same, by crashes."),
        "evictedPerGained": _item(
            _part(records.evicted_gpus, records.gained_gpus),
            "",
            "GPUs that were evicted for each GPU of the jobs for which that was done.",
        ),
    }


def _spread(name: str, values: Sequence[float], text: str, unit: str = "s") -> dict[str, MetricItem]:
    parts = {"P50": 0.5, "P95": 0.95, "P99": 0.99, "Max": 1.0}
    ordered = sorted(values)
    return {f"{name}{end}": _item(percentile(ordered, part), unit, text) for end, part in parts.items()}


def _item(value: float | None, unit: str, text: str) -> MetricItem:
    return MetricItem(value=value, unit=unit, definition=text)


def _part(of: float, whole: float) -> float | None:
    return round(of / whole, _DIGITS) if whole else None


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), _DIGITS) if values else None


# --- Queues, evictions, series -------------------------------------------------------------------------------------


def _queues(run: Run, jobs: Sequence[JobResult]) -> tuple[QueueResult, ...]:
    queues = {queue.metadata.name: queue for queue in run.scene.objects.queues}
    children: dict[str, list[str]] = {}
    for name, queue in queues.items():
        children.setdefault(queue.spec.parent_queue, []).append(name)
    of_queue: dict[str, list[JobResult]] = {}
    for job in jobs:
        of_queue.setdefault(job.queue, []).append(job)
    below = {name: descendants(name, lambda at: children.get(at, ())) for name in sorted(queues)}
    return tuple(_queue(run, queues[name], each, of_queue) for name, each in below.items())


def _queue(run: Run, queue: Queue, below: Sequence[str], jobs: dict[str, list[JobResult]]) -> QueueResult:
    meters = run.records.meters
    rows = [row for row, name in enumerate(meters.queues) if name in below]
    mine = [job for name in below for job in jobs.get(name, ())]
    waits = sorted(waited(job, run.horizon) for job in mine)
    quota = queue.spec.resources.gpu.quota if queue.spec.resources is not None else 0.0
    hours = round(float(sum(meters.used_sum[row] for row in rows)) / HOUR, _DIGITS)
    had = _quota_seconds(queue.spec, run.scene.began, run.scene.began + run.horizon)
    return QueueResult(
        name=queue.metadata.name,
        parent=queue.spec.parent_queue or None,
        leaf=len(below) == 1,
        quota_gpus=None if quota < 0 else quota,
        gpu_hours=hours,
        # Against the quota of the whole run, not of the time in which the queue
        # had work: it shows what was reserved in vain.
        of_quota=None if had is None else _part(hours, had / HOUR),
        jobs=len(mine),
        started=sum(job.start_seconds is not None for job in mine),
        done=sum(job.state == str(Ending.DONE) for job in mine),
        wait_p50_seconds=percentile(waits, 0.5),
        wait_p95_seconds=percentile(waits, 0.95),
        wait_max_seconds=percentile(waits, 1.0),
        evicted_pods=sum(job.evictions for job in mine),
        lost_gpu_hours=round(sum(job.lost_gpu_seconds for job in mine) / HOUR, _DIGITS),
        below_fair_share_seconds=round(float(sum(meters.below_sum[row] for row in rows)), _DIGITS),
    )


def _quota_seconds(spec: QueueSpec, since: float, until: float) -> float | None:
    """Return the quota of GPUs times its time, with that of open windows; None if it is unlimited at any time.

    Units: GPU-seconds; instants in seconds since the epoch.
    """
    found, at = 0.0, since
    while at < until:
        now = in_force(spec, at)
        end, quota = min(now.until, until), 0.0 if now.resources is None else now.resources.gpu.quota
        if quota < 0:
            return None
        found += quota * (end - at)
        at = end
    return found


def _evictions(records: Records, jobs: Sequence[JobResult]) -> tuple[EvictionResult, ...]:
    return tuple(
        EvictionResult(
            time_seconds=each.time,
            job=_title(jobs[each.job]),
            pod=each.pod,
            node=each.node,
            gpus=each.gpus,
            cause=each.cause,
            rule=each.rule,
            aggressor=_title(jobs[each.aggressor]) if each.aggressor >= 0 else None,
        )
        for each in records.evictions
    )


def _title(job: JobResult) -> str:
    return f"{job.namespace}/{job.name}"


def _stays(run: Run) -> tuple[StayResult, ...]:
    """Return the stays that ended, and the ones still open at the horizon."""
    return tuple(
        StayResult(job=each.job, node=each.node, start_seconds=each.start, end_seconds=each.end, gpus=each.gpus)
        for each in (*run.records.stays, *run.staying)
    )


def _series(meters: Meters) -> SeriesResult:
    starts, means = meters.series.means()
    heads: Iterable[str] = (
        *(f"{kind}/{name or '?'}" for kind in ("used", "waiting", "fair") for name in meters.queues),
        *(f"idle/{size:g}" for size in PIECES),
        "capacity",
    )
    columns = {head: tuple(column) for head, column in zip(heads, means.T.tolist(), strict=True)}
    # The nameless queue has pods without a group; most runs have none, and its zeros would be a line in each chart.
    shown = {head: column for head, column in columns.items() if not head.endswith("/?") or any(column)}
    return SeriesResult(bucket_seconds=meters.series.width, start_seconds=tuple(starts.tolist()), columns=shown)
