"""The jobs of users who may not list the whole cluster, with the reasons that the scheduler wrote on them.

Reads the pod groups of a namespace, and its pods where the user may list them. Nothing is decided: the reason of a job
comes from its conditions, which kai and KAI-Scheduler write alike. No object of another namespace is read.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import attrs

from kai.answers.cases.live_cluster import as_known, list_some
from kai.answers.cases.origin import Origin
from kai.answers.outcomes.job_lines import JobLine, PodLine, owner_of
from kai.answers.outcomes.job_states import State
from kai.answers.outcomes.overview import Job, declared_in
from kai.answers.outcomes.owners import Above, owners_in
from kai.answers.outcomes.states import memory_asked, state_of
from kai.answers.why.explanation import JobExplanation, summary
from kai.answers.why.facts import Evidence
from kai.answers.why.suggestions import Suggestions
from kai.answers.why.written import bound_evidence, condition_reasons, newest, unready
from kai.api import values as times
from kai.api.cluster_objects import ClusterObjects, collect
from kai.api.kinds import ApiObject, key_of
from kai.api.kubernetes.meta import PriorityClass
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup as Manifest
from kai.basics.errors import UnreachableError
from kai.cluster.clock import SystemClock
from kai.cluster.port import Clock
from kai.cluster.requesting.listing import Listing
from kai.cluster.transport.access import Access
from kai.deciding.explain.codes import NEVER
from kai.deciding.explain.messages import Explanation
from kai.deciding.explain.recorded import least_pods
from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.groups import PodGroup
from kai.facts.model.pod import ACTIVE_ALLOCATED, Status, within
from kai.facts.model.units import amounts, gpus_among
from kai.facts.state.snapshot import Snapshot
from kai.framework.verdict import Reason
from kai.intake import Intake, IntakeSettings

_ENDED = (Status.SUCCEEDED, Status.FAILED)
_WAITING = (Status.PENDING, Status.GATED)


@attrs.frozen(kw_only=True)
class OwnJob:
    """One job and why it waits; the explanation is None where it does not wait."""

    line: JobLine
    explanation: JobExplanation | None


@attrs.frozen(kw_only=True)
class OwnJobs:
    """The jobs of a user, as far as the user's permissions show them."""

    jobs: tuple[OwnJob, ...]
    now: float
    origin: Origin
    refused: UnreachableError
    """Why the cluster cannot be read as a whole."""
    notes: tuple[str, ...] = ()
    owners: Mapping[str, tuple[Above, ...]] = attrs.field(factory=dict)
    """The owners of each job, by its key."""

    @property
    def lines(self) -> tuple[JobLine, ...]:
        """The jobs as lines of a job list; waiting jobs come last."""
        return tuple(each.line for each in self.jobs)

    @property
    def remark(self) -> str:
        """The caveat that is shown with these answers."""
        return f"source: own conditions only (cannot {self.refused.missing}); suggestions not verified"


def read_own(access: Access, namespace: str, refused: UnreachableError, clock: Clock | None = None) -> OwnJobs:
    """Return the jobs of one namespace, or of all, as their conditions describe them.

    Raises: UnreachableError where pod groups cannot be listed there either.
    """
    watch = SystemClock() if clock is None else clock
    chosen = access.chosen
    found = list_some(access, Manifest, namespace, watch)
    # Where pods may not be listed, the status of each group stands for them.
    pods = _allowed(access, Pod, namespace, watch)
    classes = _allowed(access, PriorityClass, "", watch)
    more = [each for each in (pods, classes) if each is not None]
    objects = as_known(collect([*found.objects, *(one for each in more for one in each.objects)]))
    now = watch.now()
    snapshot = Intake(IntakeSettings()).take(objects, now)
    reader = _Reader(objects, snapshot, refused, sees_pods=pods is not None, sees_classes=classes is not None)
    title = chosen.name or "this cluster"
    origin = Origin(
        type="conditions",
        cluster=title,
        namespace=chosen.namespace or "default",
        revision=found.revision,
        complete=False,
    )
    return OwnJobs(
        jobs=tuple(sorted(reader.jobs(), key=_place)),
        now=now,
        origin=origin,
        refused=refused,
        notes=tuple(note for each in (found, *more) for note in each.notes),
        owners=owners_in(objects.pods, objects.pod_groups),
    )


def _place(each: OwnJob) -> tuple[bool, str, str, str]:
    job = each.line.job
    return (each.line.waits, job.queue, job.name, job.namespace)


def _allowed(access: Access, cls: type[ApiObject], namespace: str, clock: Clock) -> Listing | None:
    """Return the objects of one kind; None where the user may not list them."""
    try:
        return list_some(access, cls, namespace, clock)
    except UnreachableError as error:
        # A missing right is expected here; a cluster that does not answer is an error for every kind.
        if not error.missing:
            raise
        return None


class _Reader:
    """Makes jobs from the rows of a snapshot that has neither nodes nor queues."""

    def __init__(
        self,
        objects: ClusterObjects,
        snapshot: Snapshot,
        refused: UnreachableError,
        *,
        sees_pods: bool,
        sees_classes: bool,
    ) -> None:
        self._snapshot = snapshot
        self._refused = refused
        self._sees_pods = sees_pods
        self._sees_classes = sees_classes
        self._declared = declared_in(objects, IntakeSettings())
        self._sources = {key_of(each): each for each in objects.pod_groups}
        self._nodes = {key_of(pod): pod.spec.node_name for pod in objects.pods}
        self._counts = Counter(group.name for group in snapshot.groups)
        self._asked: list[int] = (snapshot.requests @ snapshot.axis.gpu_weights()).tolist()
        """Thousandths of GPUs that a pod of each shape requests, MIG slices as they count in quota."""
        self._members: dict[int, list[int]] = {}
        for pod, group in enumerate(snapshot.pod_group.tolist()):
            self._members.setdefault(group, []).append(pod)

    def jobs(self) -> Iterator[OwnJob]:
        """Yield each pod group as a job."""
        for row, group in enumerate(self._snapshot.groups):
            source = self._sources.get((group.namespace, group.name))
            if source is not None:
                yield self._job(row, group, source)

    def _job(self, row: int, group: PodGroup, source: Manifest) -> OwnJob:
        pods = self._members.get(row, [])
        job = self._seen(group, pods) if self._sees_pods else self._unseen(group, source)
        waits = job.state in {State.WAITS, State.PARTIAL}
        reasons = self._reasons(group, source, pods) if waits else ()
        if reasons:
            job = attrs.evolve(job, waiting_reason=reasons[0], explanations=_wire(source))
        if job.state is State.WAITS and reasons[0].code in NEVER:
            job = attrs.evolve(job, state=State.IMPOSSIBLE)
        line = JobLine(
            job=job,
            uid=group.uid,
            labels=source.metadata.labels,
            owner=owner_of(source),
            since=self._since(group, pods, placed=bool(job.placed)),
            position=None,
            keys=(),
            pods=tuple(self._pod(pod) for pod in pods),
            counted=self._sees_pods,
        )
        return OwnJob(line=line, explanation=self._explanation(line, group, source, reasons) if reasons else None)

    # --------------------------------------------------------------------------- states

    def _seen(self, group: PodGroup, pods: Sequence[int]) -> Job:
        """Return a job by the phases of its pods."""
        status = {pod: int(self._snapshot.pod_status[pod]) for pod in pods}
        alive = [pod for pod in pods if status[pod] not in _ENDED]
        placed = [pod for pod in alive if within(status[pod], ACTIVE_ALLOCATED)]
        if not alive:
            state = State.FINISHED if pods else State.EMPTY
        elif placed:
            state = State.RUNNING if len(placed) == len(alive) else State.PARTIAL
        else:
            state = State.WAITS if any(each in _WAITING for each in status.values()) else State.LEAVING
        return self._described(
            group,
            state,
            wanted=len(alive),
            placed=len(placed),
            gpus=sum(self._gpus(pod) for pod in alive),
            gpu_memory=sum(self._memory(pod) for pod in alive),
            # Without nodes the memory of their GPUs is unknown, so a request by memory is no number of GPUs.
            held=None if any(self._memory(pod) for pod in placed) else sum(self._gpus(pod) for pod in placed),
            nodes=tuple(sorted({self._node(pod) for pod in placed} - {""})),
        )

    def _unseen(self, group: PodGroup, source: Manifest) -> Job:
        """Return a job by the requested and allocated resources in its status, where its pods cannot be listed."""
        status, is_reported = source.status.resources_status, newest(source) is not None
        least = max(1, least_pods(group))
        if status.allocated:
            state = State.PARTIAL if is_reported else State.RUNNING
        else:
            state = State.WAITS if is_reported or status.requested else State.EMPTY
        return self._described(
            group,
            state,
            wanted=least,
            placed=least if status.allocated else 0,
            gpus=gpus_among(amounts(tuple(status.requested.items()))),
            held=gpus_among(amounts(tuple(status.allocated.items()))),
        )

    def _described(
        self,
        group: PodGroup,
        state: State,
        *,
        wanted: int,
        placed: int,
        gpus: int,
        held: int | None,
        gpu_memory: int = 0,
        nodes: tuple[str, ...] = (),
    ) -> Job:
        # Without classes the row has the default priority, and what follows from it: neither is a fact.
        stated = self._sources[group.namespace, group.name].spec.preemptibility
        return Job(
            name=group.name,
            namespace=group.namespace,
            queue=group.queue,
            priority=group.priority if self._sees_classes else None,
            preemptible=group.preemptible if self._sees_classes or stated else None,
            wanted=wanted,
            placed=placed,
            minimum=least_pods(group),
            gpus=gpus,
            gpu_memory=gpu_memory,
            gpus_held=held,
            nodes=nodes,
            state=state,
            uid=group.uid,
            title=group.name if self._counts[group.name] == 1 else group.key,
        )

    def _since(self, group: PodGroup, pods: Sequence[int], *, placed: bool) -> float | None:
        if placed:
            return group.last_start
        born = [self._snapshot.pods[pod].created for pod in pods if self._snapshot.pod_status[pod] in _WAITING]
        # An object without a creation time has 0 here, which would count as the earliest.
        return min((instant for instant in (*born, group.created) if instant > 0), default=None)

    def _pod(self, pod: int) -> PodLine:
        state = state_of(int(self._snapshot.pod_status[pod]))
        return PodLine(
            name=self._snapshot.pods[pod].name,
            state=state,
            node=self._node(pod),
            gpus=self._gpus(pod),
            gpu_memory=self._memory(pod),
        )

    def _gpus(self, pod: int) -> int:
        return self._asked[int(self._snapshot.pod_shape[pod])]

    def _memory(self, pod: int) -> int:
        return memory_asked(self._snapshot.shapes[int(self._snapshot.pod_shape[pod])].gpu)

    def _node(self, pod: int) -> str:
        each = self._snapshot.pods[pod]
        return self._nodes.get((each.namespace, each.name), "")

    # ----------------------------------------------------------------------- reasons

    def _reasons(self, group: PodGroup, source: Manifest, pods: Sequence[int]) -> tuple[Reason[str], ...]:
        """Return why pods wait, never empty: what the group itself shows first, then the conditions."""
        # Without pods every gang would count as incomplete.
        own = unready(group, self._snapshot, pods, self._declared) if self._sees_pods else ()
        found: dict[str, Reason[str]] = {}
        # Conditions are of an earlier cycle; what the objects show is so now.
        for reason in (*own, *condition_reasons(source)):
            found.setdefault(reason.code, reason)
        return tuple(found.values()) or (Reason("NotTried", "the scheduler has not written why"),)

    def _explanation(
        self, line: JobLine, group: PodGroup, source: Manifest, reasons: Sequence[Reason[str]]
    ) -> JobExplanation:
        job = line.job
        since = None if job.placed else line.since
        return JobExplanation(
            job=job,
            summary=summary(job, reasons[0]),
            reason=reasons[0],
            wire_reason=next((each.reason for each in job.explanations), ""),
            also=tuple(reasons[1:3]),
            evidence=tuple(self._evidence(line, group, source, reasons[0])),
            suggestions=Suggestions(all_tried=False),
            waiting=f"how long, and what would help, is not known without the right to {self._refused.missing}",
            since=since,
            waited=None if since is None else max(0.0, self._snapshot.now - since),
        )

    def _evidence(self, line: JobLine, group: PodGroup, source: Manifest, reason: Reason[str]) -> Iterator[Evidence]:
        job, condition = line.job, newest(source)
        yield from bound_evidence(reason)
        text = "1 pod at a time" if job.minimum <= 1 else f"{job.minimum} pods at once"
        values = {"pods": job.wanted if line.counted else None, "minMember": job.minimum, "gpus": job.gpus / GPU_UNIT}
        yield Evidence(label="needs", text=text, values=values)
        if condition is not None and condition.last_transition_time is not None:
            reported = times.instant_text(condition.last_transition_time)
            yield Evidence(label="told", text=f"by the scheduler at {reported}", values={"time": reported})
        if group.last_eviction is not None:
            evicted = times.instant_text(group.last_eviction)
            yield Evidence(label="evicted", text=f"its pods were evicted at {evicted}", values={"time": evicted})


def _wire(source: Manifest) -> tuple[Explanation, ...]:
    """Return the reasons of the newest condition as written."""
    condition = newest(source)
    return () if condition is None else tuple(Explanation(each.reason, each.message) for each in condition.reasons)


__all__ = ["OwnJob", "OwnJobs", "read_own"]
