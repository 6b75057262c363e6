"""An outcome for people: one line for each pod group and each queue, as values that commands print.

`declared_in` and `left_out` add what the objects of a case contain and its snapshot omits.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property

import attrs
import numpy as np

from kai.answers.offline.run import Cycle, Outcome
from kai.answers.outcomes.job_states import RUNS, State
from kai.answers.outcomes.queue_lines import QueueLine, queue_lines
from kai.answers.outcomes.states import (
    KeptPlaces,
    asked_gpus,
    counted_gpus,
    kept_places,
    memory_asked,
    wanted_by_memory,
)
from kai.api.cluster_objects import ClusterObjects
from kai.basics.wording import counted, number_text
from kai.deciding.explain import messages
from kai.deciding.explain.codes import NEVER
from kai.deciding.explain.declared import Declared, missing_queue
from kai.deciding.explain.messages import Explanation, eviction_message
from kai.deciding.explain.phrases import listed
from kai.deciding.explain.recorded import least_pods
from kai.deciding.explain.words import GroupReasons
from kai.facts.model.axis import GPU_UNIT, Int64s
from kai.facts.model.pod import ACTIVE_ALLOCATED, Status, within
from kai.framework.decisions import Evict
from kai.framework.verdict import Reason
from kai.intake import IntakeSettings, declared_queues


def declared_in(objects: ClusterObjects, settings: IntakeSettings) -> Declared:
    """Return parents of queues, queues of other schedulers, and the names of gates. Cost: one pass over the objects."""
    return attrs.evolve(
        declared_queues(objects.queues, settings),
        gates={
            f"{pod.metadata.namespace}/{pod.metadata.name}": tuple(gate.name for gate in pod.spec.scheduling_gates)
            for pod in objects.pods
            if pod.spec.scheduling_gates
        },
    )


def left_out(outcome: Outcome) -> tuple[tuple[str, Reason[str]], ...]:
    """Return the declared queues that are missing from the snapshot, by name, with the reason."""
    known = outcome.last.snapshot.queue_rows
    absent = sorted(each.metadata.name for each in outcome.case.objects.queues if each.metadata.name not in known)
    declared = declared_in(outcome.case.objects, outcome.case.settings) if absent else Declared()
    return tuple((name, missing_queue(name, declared)) for name in absent)


# Plain numbers: an enumeration member takes ten times as long to compare.
_GONE = frozenset({int(Status.SUCCEEDED), int(Status.FAILED)})
_WAITING = frozenset({int(Status.PENDING), int(Status.GATED)})
_PIPELINED = int(Status.PIPELINED)
_HERE = ACTIVE_ALLOCATED & ~(1 << Status.PIPELINED)


@attrs.frozen(kw_only=True)
class Job:
    """One pod group after the last cycle. Amounts of GPUs are thousandths of a device, MIG slices as in quota."""

    name: str
    namespace: str
    state: State
    queue: str = ""
    priority: int | None = None
    """None if unknown; likewise ``preemptible``."""
    preemptible: bool | None = None
    wanted: int = 0
    """Pods that run or want to run."""
    placed: int = 0
    minimum: int = 0
    gpus: int = 0
    nodes: tuple[str, ...] = ()
    started: int = 0
    held: int = 0
    """Pods that are promised a place, including moved pods that have not come back."""
    evicted: int = 0
    """Pods that are evicted, moved ones included."""
    moved: int = 0
    """Pods that move to another node."""
    gpu_memory: int = 0
    """MiB of GPU memory that pods request; the number of GPUs depends on the node."""
    gpus_by_memory: int = 0
    """The part of ``gpus`` for that memory, as in the demand of queues: on the pod's node, else on the smallest GPU."""
    gpus_held: int | None = None
    """GPUs of its pods as counted on their nodes, and where places are held for them, as in the usage of queues.

    None if unknown.
    """
    uid: str = ""
    title: str = ""
    """Its name; with the namespace where another job has the same name."""
    lost_to: tuple[str, ...] = ()
    """The jobs that its evicted pods made room for, with the cause; moved pods are not included."""
    refusal: tuple[str, str] = ("", "")
    """Code and text of the refusal, where a cluster would not admit it."""
    waiting_reason: Reason[str] | None = None
    """Why pods of it wait; None when none does."""
    explanations: tuple[Explanation, ...] = ()
    """All reasons in the form that conditions carry."""
    message: str = ""
    pod_messages: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def gpus_text(self) -> str:
        """The request of all its pods: GPUs, or GPU memory."""
        return self.gpus_of(self.gpus - self.gpus_by_memory, self.gpu_memory)

    @staticmethod
    def gpus_of(gpus: float, memory: int) -> str:
        """Return GPUs, in thousandths, plus requests by memory, in MiB, as tables show them."""
        shown = number_text(gpus / GPU_UNIT)
        if not memory:
            return shown
        return f"{shown}+{memory}Mi" if gpus else f"{memory}Mi"

    @property
    def reason(self) -> tuple[str, str]:
        """Code and text of why its pods wait or are evicted, empty where neither applies."""
        if self.state == "Evicted" or (self.waiting_reason is None and self.lost_to):
            return "Evicted", ", ".join(self.lost_to)
        if self.waiting_reason is not None and self.waiting_reason.code == "Moves" and self.lost_to:
            return "Evicted", f"{', '.join(self.lost_to)}; {self.waiting_reason.text}"
        if self.state is State.REFUSED:
            return self.refusal
        if self.state is State.LOST:
            return "NodeMissing", "its pods name a node that is not there"
        return (str(self.waiting_reason.code), self.waiting_reason.text) if self.waiting_reason else ("", "")

    @property
    def runs(self) -> bool:
        """Whether all its pods have a node, or have ended."""
        return self.state in RUNS


@attrs.frozen(kw_only=True, slots=False)
class Overview:
    """The jobs, queues and evictions of an outcome. Jobs are made when they are read: tables of queues need few."""

    nodes: int
    totals: tuple[int, int, int]
    """CPU, memory and GPUs of all nodes, in axis units; MIG slices count as GPUs, as they do in quota."""
    queues: tuple[QueueLine, ...]
    evictions: tuple[tuple[str, str], ...]
    """Pods that were evicted in the last cycle, with the text of the event."""
    counts: tuple[tuple[str, int], ...]
    _jobs: "_Jobs" = attrs.field(repr=False, eq=False)
    _chosen: tuple[Job, ...] | None = attrs.field(default=None, repr=False, eq=False)
    """The jobs that a reader may see; None for all."""

    @cached_property
    def jobs(self) -> tuple[Job, ...]:
        """All jobs, by queue and name. Cost: 20 us for each."""
        if self._chosen is not None:
            return self._chosen
        return tuple(sorted(map(self._jobs.of, range(len(self._jobs))), key=_in_queue))

    @cached_property
    def waiting(self) -> tuple[Job, ...]:
        """The jobs that wait, in the order of ``jobs``."""
        disturbed = self._jobs.disturbed if self._chosen is None else self._chosen
        return tuple(sorted((job for job in disturbed if job.waiting_reason is not None), key=_in_queue))

    def named(self, name: str) -> tuple[Job, ...]:
        """Return the jobs with this name or key, in the order of ``jobs``. Cost: a look at each name."""
        if self._chosen is not None:
            return tuple(job for job in self._chosen if name in {job.name, job.key})
        return tuple(sorted(map(self._jobs.of, self._jobs.called(name)), key=_in_queue))

    def among(self, jobs: Sequence[Job]) -> "Overview":
        """Return the overview with these jobs only; queues and evictions stay."""
        return attrs.evolve(self, chosen=tuple(jobs))

    @property
    def titles(self) -> dict[str, str]:
        """The titles of jobs, by ``namespace/name``."""
        return {job.key: job.title for job in self.jobs}

    def queues_below(self, name: str) -> frozenset[str]:
        """Return the names of a queue and of all queues below it."""
        found = {name}
        for queue in self.queues:  # parents come before their children
            if queue.parent in found:
                found.add(queue.name)
        return frozenset(found)


def _in_queue(job: Job) -> tuple[str, int, str, str]:
    return job.queue, -(job.priority or 0), job.name, job.namespace


def overview(outcome: Outcome) -> Overview:
    """Return the jobs by queue and name, the queues as a tree, and the evictions of the last cycle."""
    cycle = outcome.last
    snapshot, jobs = cycle.snapshot, _Jobs(outcome)
    amounts = np.array([snapshot.axis.vector(node.allocatable) for node in snapshot.nodes], np.int64)
    totals = amounts.sum(axis=0) if len(snapshot.nodes) else np.zeros(len(snapshot.axis), np.int64)
    running = Counter(snapshot.groups[group].queue for group in jobs.undisturbed)
    running.update(job.queue for job in jobs.disturbed if job.placed > 0)
    return Overview(
        nodes=len(snapshot.nodes),
        totals=(int(totals[0]), int(totals[1]), int(totals @ snapshot.axis.gpu_weights())),
        queues=queue_lines(
            cycle,
            running=running,
            waiting=Counter(job.queue for job in jobs.disturbed if job.waiting_reason is not None),
        ),
        evictions=tuple(
            (snapshot.pods[each.pod].key, eviction_message(each, snapshot)) for each in evictions_in(cycle).values()
        ),
        counts=tuple(cycle.report.counts.items()),
        jobs=jobs,
    )


class _Jobs:
    """The jobs of the last cycle of an outcome by the rows of their groups, each made when it is asked for first.

    Most jobs of a large cluster run, and the cycle changes nothing for them: columns tell these apart.
    """

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._made: dict[int, Job] = {}

    def __len__(self) -> int:
        return len(self._outcome.last.snapshot.groups)

    @cached_property
    def undisturbed(self) -> Sequence[int]:
        """The groups that have pods, all of which run and go on running where they are."""
        return np.flatnonzero((self._pods > 0) & (self._changed == 0)).tolist()

    @cached_property
    def disturbed(self) -> Sequence[Job]:
        """The jobs of all groups with pods that wait, start, leave, have ended or have no place."""
        return [self.of(group) for group in np.flatnonzero(self._changed).tolist()]

    def called(self, name: str) -> Sequence[int]:
        """Return the groups with this name or key."""
        groups = self._outcome.last.snapshot.groups
        return [row for row, group in enumerate(groups) if name in {group.name, group.key}]

    def of(self, group: int) -> Job:
        """Return the job of a group."""
        made = self._made.get(group)
        if made is None:
            cycle = self._outcome.last
            is_alone = self._names[cycle.snapshot.groups[group].name] == 1
            pods = self._members[group]
            made = _job(cycle, self._columns, group, pods, self._reasons, is_alone=is_alone)
            self._made[group] = made
        return made

    @cached_property
    def _pods(self) -> Int64s:
        """int64[G]: the number of pods of each group."""
        owners = self._outcome.last.snapshot.pod_group
        return np.bincount(owners[owners >= 0], minlength=len(self)).astype(np.int64)

    @cached_property
    def _changed(self) -> Int64s:
        """int64[G]: the number of pods of each group that do not just go on running."""
        cycle = self._outcome.last
        changed = (_HERE >> cycle.report.status & 1) == 0
        moving = (*(bind.pod for bind in cycle.aftermath.binds.values()), *evictions_in(cycle))
        changed[[*moving, *kept_places(cycle.snapshot).rows]] = True
        owners = cycle.snapshot.pod_group
        return np.bincount(owners[changed & (owners >= 0)], minlength=len(self)).astype(np.int64)

    @cached_property
    def _names(self) -> Counter[str]:
        return Counter(group.name for group in self._outcome.last.snapshot.groups)

    @cached_property
    def _members(self) -> list[list[int]]:
        return pods_by_group(self._outcome.last)

    @cached_property
    def _columns(self) -> "_Columns":
        return _Columns.of(self._outcome.last)

    @cached_property
    def _reasons(self) -> GroupReasons:
        cycle, case = self._outcome.last, self._outcome.case
        declared = declared_in(case.objects, case.settings)
        return GroupReasons(cycle.snapshot, self._outcome.profile, cycle.report, declared)


def evictions_in(cycle: Cycle) -> dict[int, Evict]:
    """Return the evictions of a cycle by the pod."""
    return {decision.pod: decision for decision in cycle.decisions if isinstance(decision, Evict)}


def pods_by_group(cycle: Cycle) -> list[list[int]]:
    """Return the pods of each group."""
    out: list[list[int]] = [[] for _ in cycle.snapshot.groups]
    for pod, group in enumerate(cycle.snapshot.pod_group.tolist()):
        if group >= 0:
            out[group].append(pod)
    return out


# ---------------------------------------------------------------------------------------------------------------- jobs


@attrs.frozen(kw_only=True)
class _Columns:
    """The figures of each pod as Python numbers: reading one from an array takes ten times as long."""

    status: Sequence[int]
    node: Sequence[int]
    gpus: Sequence[int]
    gpu_memory: Sequence[int]
    by_memory: Sequence[int]
    counted: Sequence[int]
    evicted: Mapping[int, Evict]
    bound: AbstractSet[int]
    kept: KeptPlaces

    @classmethod
    def of(cls, cycle: Cycle) -> "_Columns":
        """Return the columns of a cycle."""
        snapshot, report = cycle.snapshot, cycle.report
        by_memory = wanted_by_memory(snapshot)
        memory = [memory_asked(shape.gpu) for shape in snapshot.shapes]
        return cls(
            status=report.status.tolist(),
            node=report.node.tolist(),
            gpus=(asked_gpus(snapshot, report.details) + by_memory).tolist(),
            gpu_memory=[memory[shape] for shape in snapshot.pod_shape.tolist()],
            by_memory=by_memory.tolist(),
            counted=counted_gpus(snapshot, report.node, report.details).tolist(),
            evicted=evictions_in(cycle),
            bound={bind.pod for bind in cycle.aftermath.binds.values()},
            kept=kept_places(snapshot),
        )


@attrs.frozen(kw_only=True)
class _Members:
    """The pods of a job by their fate in the cycle."""

    alive: Sequence[int]
    placed: Sequence[int]
    held: Sequence[int] = ()
    moving: Sequence[int] = ()
    """Stand-ins for pods that were moved and have not come back."""
    waiting: Sequence[int] = ()
    started: Sequence[int] = ()
    lost: Sequence[int] = ()
    """Pods that leave their node."""
    astray: Sequence[int] = ()
    """Pods whose node does not exist."""

    @classmethod
    def of(cls, columns: _Columns, pods: Sequence[int]) -> "_Members":
        """Sort the pods of a job by their fate."""
        status, evicted, bound, kept = columns.status, columns.evicted, columns.bound, columns.kept
        moving = [pod for pod in pods if pod in kept.rows] if kept.rows else ()
        # Fast path: most jobs of a large cluster run, and the cycle changes nothing for them.
        if not moving and all(within(status[pod], _HERE) and pod not in bound and pod not in evicted for pod in pods):
            return cls(alive=pods, placed=pods, astray=[pod for pod in pods if columns.node[pod] < 0])
        alive = [pod for pod in pods if status[pod] not in _GONE and pod not in kept.left]
        placed = [pod for pod in alive if within(status[pod], _HERE) and pod not in kept.rows]
        return cls(
            alive=alive,
            placed=placed,
            held=[pod for pod in alive if status[pod] == _PIPELINED],
            moving=moving,
            waiting=[pod for pod in alive if status[pod] in _WAITING],
            started=[pod for pod in placed if pod in bound],
            lost=[pod for pod in alive if pod in evicted],
            astray=[pod for pod in placed if columns.node[pod] < 0],
        )


def _job(
    cycle: Cycle, columns: _Columns, group: int, pods: Sequence[int], group_reasons: GroupReasons, *, is_alone: bool
) -> Job:
    """Return a job; its title is the plain name where it ``is_alone`` in having it."""
    snapshot, evicted = cycle.snapshot, columns.evicted
    facts = snapshot.groups[group]
    members = _Members.of(columns, pods)
    alive, held, placed, waiting, lost = members.alive, members.held, members.placed, members.waiting, members.lost
    moving = members.moving
    reason = group_reasons.dominant(group) if waiting or held or moving else None
    record = cycle.report.records.get(group)
    moved = [pod for pod in lost if evicted[pod].moved_to >= 0]
    state = _state(pods, members)
    if moved and len(moved) == len(held) and not waiting:
        reason = _moves(cycle, [evicted[pod] for pod in moved])
        state = State.MOVES if len(moved) == len(lost) else state
    if state is State.WAITS and reason is not None and reason.code in NEVER:
        state = State.IMPOSSIBLE
    gpus, here = sum(columns.gpus[pod] for pod in alive), (*placed, *held, *moving)
    reasons = record.reasons if record and waiting else []
    return Job(
        name=facts.name,
        title=facts.name if is_alone else f"{facts.namespace}/{facts.name}",
        namespace=facts.namespace,
        queue=facts.queue,
        priority=facts.priority,
        preemptible=facts.preemptible,
        wanted=len(alive),
        placed=len(placed),
        minimum=least_pods(facts),
        gpus=gpus,
        gpu_memory=sum(columns.gpu_memory[pod] for pod in alive),
        gpus_by_memory=sum(columns.by_memory[pod] for pod in alive),
        gpus_held=sum(columns.counted[pod] for pod in here),
        nodes=tuple(sorted({snapshot.nodes[columns.node[pod]].name for pod in here if columns.node[pod] >= 0})),
        state=state,
        started=len(members.started),
        held=len(held) + len(moving),
        evicted=len(lost),
        moved=len(moved),
        uid=facts.uid,
        lost_to=_lost_to(cycle, [evicted[pod] for pod in lost if evicted[pod].moved_to < 0]) if lost else (),
        waiting_reason=reason,
        explanations=messages.explanations(reasons),
        message=messages.group_message(reasons) if reasons else "",
        pod_messages=tuple((snapshot.pods[pod].key, messages.pod_message(record, pod)) for pod in waiting),
    )


def _moves(cycle: Cycle, moves: Sequence[Evict]) -> Reason[str]:
    """Return the moves of pods as text: between which nodes, and for which group."""
    snapshot = cycle.snapshot
    nodes = [node.name for node in snapshot.nodes]
    origins = cycle.origins
    ways = [(nodes[int(origins[each.pod])], nodes[each.moved_to]) for each in moves]
    counts = [_way(origin, to, count) for (origin, to), count in Counter(ways).items()]
    gains = sorted({snapshot.groups[each.aggressor].name for each in moves if each.aggressor >= 0})
    why = f", which makes room for {listed(gains)}" if gains else ""
    facts = {
        "moves": tuple(
            {"pod": snapshot.pods[each.pod].key, "from": origin, "to": to}
            for each, (origin, to) in zip(moves, ways, strict=True)
        )
    }
    return Reason("Moves", f"{listed(counts)}{why}", facts)


def _way(origin: str, to: str, count: int) -> str:
    """Return one move as text, with its number of pods; a pod may get another place on its own node."""
    if origin == to:
        return f"{counted(count, 'pod starts', 'pods start')} again on {to}"
    return f"{counted(count, 'pod moves', 'pods move')} from {origin} to {to}"


def _lost_to(cycle: Cycle, evictions: Sequence[Evict]) -> tuple[str, ...]:
    counts: dict[tuple[str, str], int] = {}
    for each in evictions:
        gains = cycle.snapshot.groups[each.aggressor].name if each.aggressor >= 0 else ""
        counts[gains, each.cause.name] = counts.get((gains, each.cause.name), 0) + 1
    return tuple(
        f"{counted(count, 'pod')} {f'for {gains} ' if gains else ''}({cause})"
        for (gains, cause), count in counts.items()
    )


def _state(pods: Sequence[int], members: _Members) -> State:
    alive, placed, held, lost = members.alive, members.placed, members.held, members.lost
    if not alive:
        return State.FINISHED if pods else State.EMPTY
    if lost and not placed and len(lost) > len(held):
        return State.EVICTED
    if members.astray:
        return State.LOST
    if members.moving and not (lost or held or (placed and members.waiting)):
        return State.MOVES
    if len(placed) == len(alive):
        return State.STARTS if len(members.started) == len(placed) else State.RUNNING
    if placed:
        return State.PARTIAL
    if held:
        return State.HELD
    return State.WAITS if members.waiting else State.LEAVING
