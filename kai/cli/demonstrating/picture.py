"""A moment of a run as values: queues with their shares, nodes with their GPUs, jobs with the reasons for waiting.

Pods leave and jobs end between cycles. So amounts come from the run, reasons from its last cycle.
"""

from __future__ import annotations

from collections import Counter
from math import inf
from typing import TYPE_CHECKING, Final

import attrs

from kai.api import names
from kai.api.conventions.gpu_sharing import gpu_groups
from kai.basics.trees import descendants
from kai.basics.wording import span_text
from kai.facts.model.axis import GPU, GPU_UNIT
from kai.framework.decisions import Nominate
from kai.lab.virtual.running.live_jobs import Life, LiveJob, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kai.answers.offline.run import Cycle
    from kai.answers.outcomes.overview import Overview
    from kai.api.scheduling.queue import Queue
    from kai.lab.virtual.running.simulation import Simulation

IDLE, PROMISED, GOING = "idle", "promised", "going"
_TINY: Final = 1e-6


@attrs.frozen(kw_only=True)
class QueueShown:
    """A queue, including the queues below it. Units: GPUs."""

    name: str
    depth: int
    leaf: bool
    quota: float | None
    """None is unlimited."""
    limit: float | None
    fair: float
    used: float
    wanted: float
    """Usage and waiting demand together."""
    waits: int
    """Number of waiting pods."""


@attrs.frozen
class Gpu:
    """One GPU: the queue that has it, and its state."""

    queue: str = ""
    state: str = IDLE
    """A state of this module; "" while its pods run."""
    is_shared: bool = False


@attrs.frozen(kw_only=True)
class NodeShown:
    """A node with its GPUs."""

    name: str
    cells: tuple[Gpu, ...]
    is_closed: bool = False
    """Whether no pod may come."""


@attrs.frozen(kw_only=True)
class JobShown:
    """A job in the cluster."""

    key: str
    name: str
    queue: str
    gpus: float
    pods: int
    running: int
    text: str
    """When it ends, or why it waits."""

    @property
    def waits(self) -> bool:
        """Whether any of its pods waits."""
        return self.running < self.pods


@attrs.frozen(kw_only=True)
class Picture:
    """All values that are drawn of one moment.

    Units: seconds of virtual time, GPUs.
    """

    at: float
    cycle: int
    capacity: float
    used: float
    queues: tuple[QueueShown, ...]
    nodes: tuple[NodeShown, ...]
    jobs: tuple[JobShown, ...]
    """Waiting jobs first, the largest first among them."""
    upcoming: str
    """The next event, as far as it is known."""
    to_come: int = 0
    """Jobs that will arrive."""


def picture_of(run: Simulation, overview: Overview | None, at: float) -> Picture:
    """Return the picture of a run at an instant."""
    lives = list(run.workloads.lives.values())
    meters = run.records.meters
    jobs = sorted(_jobs(run, overview, at), key=lambda job: (not job.waits, -job.gpus, job.name))
    return Picture(
        at=at,
        cycle=0 if run.last is None else run.last.number,
        capacity=meters.capacity,
        used=float(meters.used.sum()),
        queues=tuple(_queues(run, lives)),
        nodes=tuple(_nodes(run, lives)),
        jobs=tuple(jobs),
        upcoming=_upcoming(run, at),
        to_come=run.to_come,
    )


# --- Queues --------------------------------------------------------------------------------------------------------


def _queues(run: Simulation, lives: Sequence[Life]) -> Iterator[QueueShown]:
    meters = run.records.meters
    columns = (meters.used, meters.wanted, meters.fair)
    own = {name: tuple(float(each[row]) for each in columns) for row, name in enumerate(meters.queues)}
    waits = Counter(life.slot.task.job.plan.queue for life in lives if life.state is State.WAITING)
    children: dict[str, list[Queue]] = {}
    for queue in sorted(run.cluster.rest.queues, key=lambda each: each.metadata.name):
        children.setdefault(queue.spec.parent_queue, []).append(queue)
    waiting: list[tuple[Queue, int]] = [(queue, 0) for queue in reversed(children.get("", []))]
    while waiting:
        queue, depth = waiting.pop()
        name = queue.metadata.name
        below = descendants(name, lambda at: [each.metadata.name for each in children.get(at, ())])
        sums = [sum(own.get(each, (0.0, 0.0, 0.0))[at] for each in below) for at in range(3)]
        gpu = None if queue.spec.resources is None else queue.spec.resources.gpu
        yield QueueShown(
            name=name,
            depth=depth,
            leaf=name not in children,
            quota=_bound(0.0 if gpu is None else gpu.quota),
            limit=_bound(0.0 if gpu is None else gpu.limit),
            used=sums[0],
            wanted=sums[0] + sums[1],
            fair=sums[2],
            waits=sum(waits[each] for each in below),
        )
        waiting += [(each, depth + 1) for each in reversed(children.get(name, []))]


def _bound(amount: float) -> float | None:
    return None if amount < 0 else float(amount)


# --- Nodes ---------------------------------------------------------------------------------------------------------


def _nodes(run: Simulation, lives: Sequence[Life]) -> Iterator[NodeShown]:
    placed: dict[str, list[Life]] = {}
    for life in lives:
        if life.node and life.gpus > _TINY:
            placed.setdefault(life.node, []).append(life)
    promised = _promised(run)
    for name in sorted(run.cluster.nodes):
        node = run.cluster.node(name)
        if node is None:
            continue
        count = int(node.status.allocatable.get(names.NVIDIA_GPU, "0"))
        cells = list(_cells(placed.get(name, [])))
        cells += [Gpu() for _ in range(count - len(cells))]
        yield NodeShown(
            name=name, cells=tuple(_with_promises(cells, promised.get(name, []))), is_closed=node.spec.unschedulable
        )


def _cells(lives: Sequence[Life]) -> Iterator[Gpu]:
    """Yield the GPUs of a node that its pods hold: whole ones in the order of their jobs, then shared ones."""
    shared: dict[str, list[Life]] = {}
    for life in sorted(lives, key=lambda each: (each.slot.task.job.plan.queue, each.key)):
        devices = gpu_groups(life.pod.metadata.labels)
        for device in devices:
            shared.setdefault(device, []).append(life)
        if not devices:
            state = GOING if life.state is State.LEAVING else ""
            for _ in range(round(life.gpus)):
                yield Gpu(life.slot.task.job.plan.queue, state)
    for users in shared.values():
        largest = max(users, key=lambda each: (each.state is State.RUNNING, each.gpus))
        state = GOING if all(each.state is State.LEAVING for each in users) else ""
        yield Gpu(largest.slot.task.job.plan.queue, state, is_shared=True)


def _promised(run: Simulation) -> dict[str, list[str]]:
    """Return the queues that GPUs of each node are promised to, one entry for each GPU."""
    cycle: Cycle | None = run.last
    found: dict[str, list[str]] = {}
    if cycle is None:
        return found
    snapshot = cycle.snapshot
    for each in cycle.decisions:
        pod = snapshot.pods[each.pod]
        life = run.workloads.lives.get((pod.namespace, pod.name))
        if not isinstance(each, Nominate) or life is None or life.state is not State.WAITING:
            continue
        gpus = int(snapshot.requests[int(snapshot.pod_shape[each.pod]), GPU]) // GPU_UNIT
        found.setdefault(snapshot.nodes[each.node].name, []).extend([life.slot.task.job.plan.queue] * gpus)
    return found


def _with_promises(cells: Sequence[Gpu], promised: Sequence[str]) -> Iterator[Gpu]:
    left = list(promised)
    for cell in cells:
        yield Gpu(left.pop(), PROMISED) if cell.state == IDLE and left else cell


# --- Jobs ----------------------------------------------------------------------------------------------------------


def _jobs(run: Simulation, overview: Overview | None, at: float) -> Iterator[JobShown]:
    by_key = {} if overview is None else {job.key: job for job in overview.jobs}
    for job in dict.fromkeys(run.workloads.jobs.values()):
        lives = [slot.life for task in job.tasks for slot in task.slots if slot.life is not None]
        if not lives:
            continue
        running = sum(life.state is State.RUNNING for life in lives)
        keys = [f"{life.group.metadata.namespace}/{life.group.metadata.name}" for life in lives]
        reason = next(
            (by_key[key].waiting_reason for key in keys if key in by_key and by_key[key].waiting_reason is not None),
            None,
        )
        text = _ends(job, at) if running == len(lives) else "" if reason is None else reason.text
        yield JobShown(
            key=keys[0],
            name=job.plan.name,
            queue=job.plan.queue,
            gpus=round(sum(life.slot.plan.gpus for life in lives), 3),
            pods=len(lives),
            running=running,
            text=text,
        )


def _ends(job: LiveJob, at: float) -> str:
    """Return when a running job ends, as text."""
    end = max((_end(job, task.since, task.progress) for task in job.tasks if task.runs), default=inf)
    return f"ends in {span_text(max(0.0, end - at))}" if end < inf else ""


def _end(job: LiveJob, since: float, progress: float) -> float:
    behaviour = job.plan.behaviour
    return inf if behaviour.duration is None else since + behaviour.startup + behaviour.duration - progress


def _upcoming(run: Simulation, at: float) -> str:
    """Return the next completion or arrival, as text."""
    coming = run.arriving
    if coming is not None and run.next <= coming.arrival and not run.workloads.jobs:
        return f"{coming.name} arrives {_in(coming.arrival - at)}"
    ends = [
        (_end(job, task.since, task.progress), job.plan.name)
        for job in dict.fromkeys(run.workloads.jobs.values())
        for task in job.tasks
        if task.runs
    ]
    end, name = min(ends, default=(inf, ""))
    return f"{name} ends in {span_text(max(0.0, end - at))}" if end < inf else ""


def _in(seconds: float) -> str:
    return f"in {span_text(seconds)}" if seconds >= 1 else "now"
