"""The documents about jobs: `JobList`, with one item for each pod group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kai.answers.documents.document import ABSENT, Document, read_json
from kai.answers.outcomes.job_lines import JobLine, OrderKey, Owner, PodLine
from kai.answers.outcomes.job_states import State
from kai.answers.outcomes.overview import Job
from kai.answers.outcomes.owners import Above
from kai.api.values import instant, instant_text
from kai.facts.model.axis import GPU_UNIT
from kai.framework.verdict import Reason

_MIB = 2**20


@attrs.frozen(kw_only=True)
class ReasonOfJob:
    """Why pods of a job wait."""

    code: str
    text: str


@attrs.frozen(kw_only=True)
class PodCounts:
    """How many pods a job wants, and how many of them run and wait; null where they cannot be seen."""

    wanted: int | None
    running: int | None
    waiting: int | None


@attrs.frozen(kw_only=True)
class KeyOfJob:
    """One key by which jobs are ordered."""

    name: str
    value: float


@attrs.frozen(kw_only=True)
class PodItem:
    """One pod of a job."""

    name: str
    state: str
    node: str | None
    gpus: float
    gpus_held: float | None
    gpu_memory_bytes: int

    @classmethod
    def of(cls, pod: PodLine) -> PodItem:
        """Return the item of a pod."""
        return cls(
            name=pod.name,
            state=pod.state,
            node=pod.node or None,
            gpus=pod.gpus / GPU_UNIT,
            gpus_held=_devices(pod.gpus_held),
            gpu_memory_bytes=pod.gpu_memory * _MIB,
        )

    def line(self) -> PodLine:
        """Return the pod of this item."""
        return PodLine(
            name=self.name,
            state=self.state,
            node=self.node or "",
            gpus=round(self.gpus * GPU_UNIT),
            gpu_memory=self.gpu_memory_bytes // _MIB,
            gpus_held=_thousandths(self.gpus_held),
        )


@attrs.frozen(kw_only=True)
class JobItem:
    """One job."""

    name: str
    namespace: str
    uid: str | None
    owner: Mapping[str, Any] | None
    queue: str
    priority: int | None
    preemptible: bool | None
    min_member: int
    pods: PodCounts
    gpus: float
    """What all pods ask for. Memory counts as a part of the GPU it is on, or else of the smallest, as queues count."""
    gpus_held: float | None
    """What they count for on their nodes, as in what queues use; null where that cannot be seen."""
    gpu_memory_bytes: int
    """What pods ask for by memory of GPUs; how many GPUs that is depends on the node."""
    gpus_by_memory: float
    """What that counts for among ``gpus``."""
    nodes: tuple[str, ...]
    state: str
    since: str | None
    position: int | None
    order_keys: tuple[KeyOfJob, ...]
    reason: ReasonOfJob | None
    ends_in_seconds: float | None = None
    labels: Mapping[str, str] = attrs.field(factory=dict)
    """Of the pod group."""
    pod_list: tuple[PodItem, ...] = ABSENT
    """With ``--pods``."""
    owners: tuple[Mapping[str, str], ...] = ABSENT
    """All that the job belongs to, the nearest first: of a service that is asked for pods."""

    @classmethod
    def of(cls, line: JobLine, *, with_pods: bool = False, owners: Sequence[Above] | None = None) -> JobItem:
        """Return the item of a job, with its pods only if ``with_pods``.

        ``owners``, the nearest first, are all owners of the job; None if they were not looked up.
        """
        job = line.job
        code, text = line.job.reason
        counts = PodCounts(wanted=None, running=None, waiting=None)
        if line.counted:
            # Pods that this cycle evicts do not wait yet: their owner has to create new ones first.
            waiting = job.wanted - job.placed - (job.evicted - job.moved)
            counts = PodCounts(wanted=job.wanted, running=job.placed, waiting=waiting)
        return cls(
            name=job.name,
            namespace=job.namespace,
            uid=line.uid or None,
            owner=None if line.owner is None else {"kind": line.owner.kind, "name": line.owner.name},
            queue=job.queue,
            priority=job.priority,
            preemptible=job.preemptible,
            min_member=job.minimum,
            pods=counts,
            gpus=job.gpus / GPU_UNIT,
            gpus_held=_devices(job.gpus_held),
            gpu_memory_bytes=job.gpu_memory * _MIB,
            gpus_by_memory=job.gpus_by_memory / GPU_UNIT,
            nodes=job.nodes,
            state=job.state,
            since=None if line.since is None else instant_text(line.since),
            position=line.position,
            order_keys=tuple(KeyOfJob(name=key.name, value=key.value) for key in line.keys),
            reason=ReasonOfJob(code=code, text=text) if code else None,
            ends_in_seconds=line.ends_in,
            labels=line.labels,
            pod_list=tuple(map(PodItem.of, line.pods)) if with_pods else ABSENT,
            owners=ABSENT if owners is None else tuple({"kind": each.kind, "name": each.name} for each in owners),
        )

    def line(self) -> JobLine:
        """Return the job of this item.

        Raises: BadValue for a time that is none.
        """
        reason, pods = self.reason, self.pods
        waits = reason is not None and reason.code != "Evicted"
        is_counted = pods.wanted is not None
        job = Job(
            name=self.name,
            title=self.name,
            namespace=self.namespace,
            uid=self.uid or "",
            state=_state(self.state),
            queue=self.queue,
            priority=self.priority,
            preemptible=self.preemptible,
            wanted=self.min_member if pods.wanted is None else pods.wanted,
            placed=pods.running or 0,
            minimum=self.min_member,
            gpus=round(self.gpus * GPU_UNIT),
            gpu_memory=self.gpu_memory_bytes // _MIB,
            gpus_by_memory=round(self.gpus_by_memory * GPU_UNIT),
            gpus_held=_thousandths(self.gpus_held),
            nodes=self.nodes,
            waiting_reason=Reason(reason.code, reason.text) if reason is not None and waits else None,
            lost_to=() if reason is None or waits else (reason.text,),
        )
        return JobLine(
            job=job,
            uid=job.uid,
            labels=self.labels or {},
            owner=None if self.owner is None else Owner(self.owner["kind"], self.owner["name"], ""),
            since=None if self.since is None else instant(self.since),
            position=self.position,
            keys=tuple(OrderKey(key.name, float(key.value)) for key in self.order_keys),
            pods=tuple(each.line() for each in self.pod_list or ()),
            ends_in=self.ends_in_seconds,
            counted=is_counted,
        )


@attrs.frozen(kw_only=True)
class JobList(Document):
    """What runs, what waits, why and in which order (``kai jobs``)."""

    items: tuple[JobItem, ...]
    continue_: str | None = ABSENT
    """Where the next page begins, null on the last one: of a service that is asked for pages."""


def job_lines(document: Mapping[str, Any]) -> tuple[JobLine, ...]:
    """Return the jobs of a JobList."""
    return tuple(each.line() for each in read_json(JobList, document).items)


def owners_of_jobs(document: Mapping[str, Any]) -> dict[str, tuple[Above, ...]]:
    """Return the owners of jobs in a JobList, by key of the job; empty where an older service omits them."""
    return {
        f"{item.namespace}/{item.name}": tuple(Above(each["kind"], each["name"]) for each in item.owners)
        for item in read_json(JobList, document).items
        if item.owners is not ABSENT
    }


def _devices(thousandths: int | None) -> float | None:
    return None if thousandths is None else thousandths / GPU_UNIT


def _thousandths(gpus: float | None) -> int | None:
    return None if gpus is None else round(gpus * GPU_UNIT)


def _state(text: str) -> State:
    """Return a state; an unknown one of a later version counts as waiting."""
    known = {str(state): state for state in State}
    return known.get(text, State.WAITS)
