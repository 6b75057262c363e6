"""The jobs of an outcome in scheduling order, with the start of their run or wait, and their position in the queue.

``refused_jobs`` shows workloads that a cluster would refuse in the same form, without a decision.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import attrs

from kai.answers.cases.case import RefusedWorkload
from kai.answers.offline.run import Outcome
from kai.answers.outcomes.job_states import State
from kai.answers.outcomes.overview import Job, Overview, pods_by_group
from kai.answers.outcomes.states import (
    asked_gpus,
    counted_gpus,
    kept_places,
    memory_asked,
    pod_states,
    wanted_by_memory,
)
from kai.api.conventions.runtime_limits import Force, bound, has_end, queue_chain
from kai.api.kinds import key_of
from kai.api.scheduling.pod_group import PodGroup as Manifest
from kai.api.scheduling.queue import Queue
from kai.deciding.engine.cycle import WaitingOrder, explained_order
from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.groups import PodGroup
from kai.facts.model.pod import STAND_IN, Status

_WAITING = frozenset({int(Status.PENDING), int(Status.GATED)})
_PLACED = frozenset({int(Status.RUNNING), int(Status.BOUND), int(Status.BINDING)})


@attrs.frozen
class Owner:
    """The object that owns a group, as its user submitted it."""

    kind: str
    name: str
    uid: str


@attrs.frozen
class OrderKey:
    """One number that orders a job within its queue; the smaller goes first."""

    name: str
    value: float


@attrs.frozen
class PodLine:
    """One pod of a job."""

    name: str
    state: str
    node: str
    gpus: int
    """In thousandths of a device."""
    gpu_memory: int = 0
    """MiB of GPU memory that it requests, in place of whole devices or a fraction."""
    gpus_held: int | None = None
    """GPUs as counted on its node, or where a place is held for it; None if unknown."""

    @property
    def gpus_text(self) -> str:
        """Its request: GPUs, or GPU memory."""
        return Job.gpus_of(0 if self.gpu_memory else self.gpus, self.gpu_memory)


@attrs.frozen(kw_only=True)
class JobLine:
    """A job with the columns of a job list that the decision does not provide."""

    job: Job
    uid: str
    labels: Mapping[str, str]
    owner: Owner | None
    since: float | None
    """Start of the run, or of the wait if no pod runs; in seconds since the epoch, None if unknown."""
    position: int | None
    """Its position among the waiting jobs of its queue; None for others."""
    others_before: int | None = None
    """Number of jobs of other queues that are tried before it; None if unknown.

    Each placement changes whose turn it is, so the number is known only after a cycle without decisions.
    """
    keys: tuple[OrderKey, ...]
    pods: tuple[PodLine, ...]
    ends_in: float | None = None
    """Seconds until it ends at the latest; None for a job that does not run, or that nothing limits."""
    counted: bool = True
    """Whether its pods could be listed; otherwise the minimum of the group stands for their number."""

    @property
    def waits(self) -> bool:
        """Whether some pod of it waits."""
        return self.job.waiting_reason is not None


def job_lines(outcome: Outcome, seen: Overview, jobs: Sequence[Job] | None = None) -> tuple[JobLine, ...]:
    """Return all jobs, or these; the waiting ones come last, in the order of their queues.

    Cost: where a job waits, one session beyond the decision itself.
    """
    snapshot = outcome.last.snapshot
    order = explained_order(snapshot, outcome.profile) if seen.waiting else WaitingOrder()
    rows = {(group.namespace, group.name): row for row, group in enumerate(snapshot.groups)}
    manifests = {key_of(each): each for each in outcome.case.objects.pod_groups}
    places = _positions(order.groups, rows, seen.waiting)
    members, left = pods_by_group(outcome.last), kept_places(snapshot).left
    columns = _Columns.of(outcome)
    queues = {each.metadata.name: each for each in outcome.case.objects.queues}
    lines = []
    for job in seen.jobs if jobs is None else jobs:
        key = (job.namespace, job.name)
        row = rows[key]
        group = snapshot.groups[row]
        pods = members[row]
        values = zip(order.names, order.keys[row], strict=True) if job.waiting_reason is not None else ()
        lines.append(
            JobLine(
                job=job,
                uid=group.uid,
                labels=_labels(manifests.get(key), group),
                owner=owner_of(manifests.get(key)),
                since=_since(outcome, columns, group, pods),
                position=places[row].own if row in places else None,
                others_before=places[row].others if row in places and not outcome.last.decisions else None,
                keys=tuple(OrderKey(name, float(value)) for name, value in values),
                pods=tuple(_pod(outcome, columns, pod) for pod in pods if pod not in left),
                ends_in=_ends_in(manifests.get(key), group, queues, snapshot.now) if job.placed else None,
            )
        )
    return tuple(sorted(lines, key=_place))


@attrs.frozen(kw_only=True)
class RunLimit:
    """The limit at which a job ends first, or would if it ran.

    Units: seconds.
    """

    seconds: float
    source: str
    """The object and the field that say so."""
    queue: str
    """The queue that says so; "" for the job itself."""
    is_ours: bool
    """Whether kai ends it there; otherwise its own controller, or Kueue."""
    policy: str
    """What kai does then; "" at a limit that others hold it to."""
    consumed: float
    """How long it ran before its present run."""
    end: float | None
    """When it ends at the latest, since the epoch; None for a job that does not run."""
    more: int
    """Number of longer limits."""


def run_limit(outcome: Outcome, line: JobLine) -> RunLimit | None:
    """Return how long a job may run; None where nothing limits it. Cost: a look at each pod group."""
    objects, key = outcome.case.objects, (line.job.namespace, line.job.name)
    manifest = next((each for each in objects.pod_groups if key_of(each) == key), None)
    if manifest is None:
        return None
    chain = queue_chain(manifest.spec.queue, {each.metadata.name: each for each in objects.queues}.get)
    limits = bound(manifest, chain)
    snapshot = outcome.last.snapshot
    group = next(each for each in snapshot.groups if (each.namespace, each.name) == key)
    since = (manifest.status.running_since or group.last_start) if line.job.placed else None
    consumed = manifest.status.consumed_runtime or 0.0
    end = None if since is None else limits.end(since, consumed)
    first = limits.least if end is None else end.limit
    if first is None:
        return None
    named = first.source.removeprefix("queue ").partition(":")[0] if first.source.startswith("queue ") else ""
    return RunLimit(
        seconds=first.seconds,
        source=first.source,
        queue=named if named in {each.metadata.name for each in chain} else "",
        is_ours=first.force is Force.KAI,
        policy=str(limits.policy) if first.force is Force.KAI else "",
        consumed=consumed,
        end=None if end is None else end.at,
        more=sum(each.force is not Force.NOTHING for each in limits.limits) - 1,
    )


def _ends_in(manifest: Manifest | None, group: PodGroup, queues: Mapping[str, Queue], now: float) -> float | None:
    """Return in how many seconds a group that runs ends at the latest; None if nothing limits it."""
    if manifest is None:
        return None
    chain = queue_chain(manifest.spec.queue, queues.get)
    since = manifest.status.running_since or group.last_start
    if since is None or not has_end(manifest, chain):
        return None
    end = bound(manifest, chain).end(since, manifest.status.consumed_runtime or 0.0)
    return None if end is None else max(0.0, end.at - now)


def lines_named(name: str, lines: Sequence[JobLine]) -> tuple[JobLine, ...]:
    """Return those of ``lines`` with this job name, else with this owner name, else with a pod of this name."""
    found = [line for line in lines if name in {line.job.name, line.job.key}]
    found = found or [line for line in lines if line.owner is not None and line.owner.name == name]
    return tuple(found or [line for line in lines if any(pod.name == name for pod in line.pods)])


def _place(line: JobLine) -> tuple[bool, str, int, int, str, str]:
    job = line.job
    return (line.waits, job.queue, line.position or 0, -(job.priority or 0), job.name, job.namespace)


@attrs.frozen
class _Place:
    """The position of a waiting job."""

    own: int
    """Position among the jobs of its queue, counted from 1."""
    others: int
    """Number of jobs of other queues before it."""


def _positions(order: Sequence[int], rows: Mapping[tuple[str, str], int], jobs: Sequence[Job]) -> dict[int, _Place]:
    """Return the position of each of ``jobs``, which wait."""
    waiting = {rows[job.namespace, job.name]: job.queue for job in jobs}
    counts: Counter[str] = Counter()
    places: dict[int, _Place] = {}
    for row in order:
        if row in waiting:
            counts[waiting[row]] += 1
            own = counts[waiting[row]]
            places[row] = _Place(own, len(places) + 1 - own)
    return places


@attrs.frozen(kw_only=True)
class _Columns:
    """The figures of each pod as Python numbers: reading one from an array takes ten times as long."""

    before: Sequence[int]
    """Its status before the cycle."""
    states: Sequence[State]
    node: Sequence[int]
    gpus: Sequence[int]
    held: Sequence[int]

    @classmethod
    def of(cls, outcome: Outcome) -> "_Columns":
        """Return the columns of the last cycle."""
        snapshot, places, details = outcome.last.snapshot, outcome.last.places, outcome.last.report.details
        return cls(
            before=snapshot.pod_status.tolist(),
            states=pod_states(outcome.last),
            node=places.tolist(),
            gpus=(asked_gpus(snapshot, details) + wanted_by_memory(snapshot)).tolist(),
            held=counted_gpus(snapshot, places, details).tolist(),
        )


def _since(outcome: Outcome, columns: _Columns, group: PodGroup, pods: Sequence[int]) -> float | None:
    """Return since when a job runs, or else waits; None for what starts in this cycle."""
    snapshot, status = outcome.last.snapshot, columns.before
    if any(status[pod] in _PLACED for pod in pods):
        return group.last_start
    born = [snapshot.pods[pod].created for pod in pods if status[pod] in _WAITING]
    return min([instant for instant in (*born, group.created) if instant > 0], default=None)


def _pod(outcome: Outcome, columns: _Columns, pod: int) -> PodLine:
    snapshot, node = outcome.last.snapshot, columns.node[pod]
    return PodLine(
        name=snapshot.pods[pod].name.removesuffix(STAND_IN),
        state=columns.states[pod],
        node=snapshot.nodes[node].name if node >= 0 else "",
        gpus=columns.gpus[pod],
        gpu_memory=memory_asked(snapshot.shapes[int(snapshot.pod_shape[pod])].gpu),
        gpus_held=columns.held[pod] if node >= 0 else 0,
    )


def _labels(manifest: Manifest | None, group: PodGroup) -> Mapping[str, str]:
    return group.labels if manifest is None else manifest.metadata.labels


def owner_of(manifest: Manifest | None) -> Owner | None:
    """Return the owner of a group: its controller, else the first owner reference."""
    references = () if manifest is None else manifest.metadata.owner_references
    chosen = next((each for each in references if each.controller), None) or next(iter(references), None)
    return None if chosen is None else Owner(chosen.kind, chosen.name, chosen.uid)


def refused_jobs(workloads: Iterable[RefusedWorkload]) -> tuple[Job, ...]:
    """Return a job for each workload; none of its pods is placed or waits."""
    return tuple(
        Job(
            name=each.name,
            namespace=each.namespace,
            title=each.name,
            state=State.REFUSED,
            queue=each.queue,
            wanted=each.pods,
            gpus=round(each.gpus * GPU_UNIT),
            refusal=(each.findings[0].code, each.text),
        )
        for each in workloads
    )


def refused_lines(workloads: Iterable[RefusedWorkload]) -> tuple[JobLine, ...]:
    """Return the same jobs as lines of a job list; their creation times are unknown."""
    return tuple(
        JobLine(job=job, uid="", labels={}, owner=None, since=None, position=None, keys=(), pods=())
        for job in refused_jobs(workloads)
    )
