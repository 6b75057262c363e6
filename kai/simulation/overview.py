"""An outcome for people: one line for each pod group and each queue, as values that the command prints."""

from collections.abc import Sequence

import attrs
import numpy as np

from kai.explain import messages
from kai.explain.messages import Explanation
from kai.explain.phrases import Words
from kai.explain.words import Teller, least_pods
from kai.framework.decisions import Evict
from kai.model.axis import GPU
from kai.model.status import ACTIVE_ALLOCATED, Status, within
from kai.simulation.run import Cycle, Outcome

RUNNING, STARTS, HELD, PARTIAL, WAITS = "Running", "Starts", "Held", "Partial", "Waits"
EVICTED, MOVES, LEAVING, FINISHED, IMPOSSIBLE, EMPTY = "Evicted", "Moves", "Leaving", "Finished", "Impossible", "Empty"
_NEVER = frozenset({"ClusterTooSmall", "NoNodeLargeEnough", "DomainTooSmall", "NoNodes", "PodGroupRefused"})
_GONE = (Status.SUCCEEDED, Status.FAILED)


@attrs.frozen(kw_only=True)
class Job:
    """One pod group after the last cycle. Amounts of GPUs are thousandths of a device."""

    name: str
    namespace: str
    queue: str
    priority: int
    preemptible: bool
    wanted: int
    """Pods that run or want to run."""
    placed: int
    minimum: int
    gpus: int
    nodes: tuple[str, ...]
    state: str
    started: int
    held: int
    evicted: int
    lost_to: tuple[str, ...] = ()
    """For whom its pods had to go, and why."""
    words: Words | None = None
    """Why pods of it wait; None when none does."""
    explanations: tuple[Explanation, ...] = ()
    """The same as conditions carry it, each reason."""
    message: str = ""
    pod_messages: tuple[tuple[str, str], ...] = ()


@attrs.frozen(kw_only=True)
class Share:
    """One resource of a queue in axis units; None is unlimited."""

    quota: float | None
    limit: float | None
    fair_share: float
    used: float
    used_non_preemptible: float
    wanted: float


@attrs.frozen(kw_only=True)
class QueueLine:
    """One queue after the last cycle, in tree order. ``last`` says, from the top down, where it is the last child."""

    name: str
    parent: str
    leaf: bool
    priority: int
    depth: int
    last: tuple[bool, ...]
    running: int
    waiting: int
    shares: tuple[Share, Share, Share]
    """CPU, memory, GPU."""


@attrs.frozen(kw_only=True)
class Overview:
    """What there is to say about an outcome."""

    nodes: int
    totals: tuple[int, int, int]
    """CPU, memory and GPUs of all nodes, in axis units."""
    jobs: tuple[Job, ...]
    queues: tuple[QueueLine, ...]
    evictions: tuple[tuple[str, str], ...]
    """Pods that were evicted in the last cycle, with the text of the event."""
    counts: tuple[tuple[str, int], ...]


def overview(outcome: Outcome) -> Overview:
    """Return jobs in the order of their names by queue, queues as a tree, and the last cycle's evictions."""
    cycle = outcome.last
    snapshot = cycle.snapshot
    teller = Teller(snapshot, outcome.profile, cycle.report)
    pods = _pods_by_group(cycle)
    evicted = {decision.pod: decision for decision in cycle.decisions if isinstance(decision, Evict)}
    bound = {bind.pod for bind in cycle.aftermath.binds.values()}
    jobs = [_job(cycle, group, pods[group], evicted, bound, teller) for group in range(len(snapshot.groups))]
    amounts = np.array([snapshot.axis.vector(node.allocatable) for node in snapshot.nodes], np.int64)
    totals = amounts.sum(axis=0) if len(snapshot.nodes) else np.zeros(3, np.int64)
    return Overview(
        nodes=len(snapshot.nodes),
        totals=(int(totals[0]), int(totals[1]), int(totals[GPU])),
        jobs=tuple(sorted(jobs, key=lambda job: (job.queue, -job.priority, job.name, job.namespace))),
        queues=_queues(cycle, jobs),
        evictions=tuple(
            (snapshot.pods[pod].key, messages.eviction_message(decision, snapshot)) for pod, decision in evicted.items()
        ),
        counts=tuple(cycle.report.counts.items()),
    )


def _pods_by_group(cycle: Cycle) -> list[list[int]]:
    out: list[list[int]] = [[] for _ in cycle.snapshot.groups]
    for pod, group in enumerate(cycle.snapshot.pod_group):
        if group >= 0:
            out[group].append(pod)
    return out


# ---------------------------------------------------------------------------------------------------------------- jobs


def _job(
    cycle: Cycle, group: int, pods: Sequence[int], evicted: dict[int, Evict], bound: set[int], teller: Teller
) -> Job:
    snapshot, report = cycle.snapshot, cycle.report
    facts = snapshot.groups[group]
    alive = [pod for pod in pods if report.status[pod] not in _GONE]
    held = [pod for pod in alive if report.status[pod] == Status.PIPELINED]
    placed = [pod for pod in alive if within(int(report.status[pod]), ACTIVE_ALLOCATED & ~(1 << Status.PIPELINED))]
    waiting = [pod for pod in alive if report.status[pod] in (Status.PENDING, Status.GATED)]
    words = teller.tell(group) if waiting or held else None
    record = report.records.get(group)
    started = [pod for pod in placed if pod in bound]
    lost = [pod for pod in alive if pod in evicted]
    state = _state(pods, alive=alive, placed=placed, held=held, started=started, lost=lost, waiting=waiting)
    if state == WAITS and words is not None and words.code in _NEVER:
        state = IMPOSSIBLE
    gpus = sum(int(snapshot.requests[int(snapshot.pod_shape[pod]), GPU]) for pod in alive)
    reasons = record.reasons if record and waiting else []
    return Job(
        name=facts.name,
        namespace=facts.namespace,
        queue=facts.queue,
        priority=facts.priority,
        preemptible=facts.preemptible,
        wanted=len(alive),
        placed=len(placed),
        minimum=least_pods(facts),
        gpus=gpus,
        nodes=tuple(
            sorted({snapshot.nodes[int(report.node[pod])].name for pod in (*placed, *held) if report.node[pod] >= 0})
        ),
        state=state,
        started=len(started),
        held=len(held),
        evicted=len(lost),
        lost_to=_lost_to(cycle, [evicted[pod] for pod in lost]),
        words=words,
        explanations=messages.explanations(reasons),
        message=messages.group_message(reasons) if reasons else "",
        pod_messages=tuple((snapshot.pods[pod].key, messages.pod_message(record, pod)) for pod in waiting),
    )


def _lost_to(cycle: Cycle, evictions: Sequence[Evict]) -> tuple[str, ...]:
    counts: dict[tuple[str, str], int] = {}
    for each in evictions:
        gains = cycle.snapshot.groups[each.aggressor].name if each.aggressor >= 0 else ""
        counts[gains, each.cause.value] = counts.get((gains, each.cause.value), 0) + 1
    return tuple(
        f"{count} {'pod' if count == 1 else 'pods'} {f'for {gains} ' if gains else ''}({cause})"
        for (gains, cause), count in counts.items()
    )


def _state(
    pods: Sequence[int],
    *,
    alive: Sequence[int],
    placed: Sequence[int],
    held: Sequence[int],
    started: Sequence[int],
    lost: Sequence[int],
    waiting: Sequence[int],
) -> str:
    if not alive:
        return FINISHED if pods else EMPTY
    if lost and not placed:
        return MOVES if len(held) == len(lost) else EVICTED
    if len(placed) == len(alive):
        return STARTS if len(started) == len(placed) else RUNNING
    if placed:
        return PARTIAL
    if held:
        return HELD
    return WAITS if waiting else LEAVING


# -------------------------------------------------------------------------------------------------------------- queues


def _queues(cycle: Cycle, jobs: Sequence[Job]) -> tuple[QueueLine, ...]:
    queues = cycle.snapshot.queues
    children: dict[int, list[int]] = {}
    for row, queue in enumerate(queues):
        children.setdefault(queue.parent, []).append(row)
    out: list[QueueLine] = []

    waiting: list[tuple[int, tuple[bool, ...]]] = [(top, ()) for top in reversed(children.get(-1, []))]
    while waiting:
        row, last = waiting.pop()
        below = children.get(row, [])
        leaves = {queues[leaf].name for leaf in _below(row, children)}
        mine = [job for job in jobs if job.queue in leaves]
        queue = queues[row]
        out.append(
            QueueLine(
                name=queue.name,
                parent=queues[queue.parent].name if queue.parent >= 0 else "",
                leaf=not below,
                priority=queue.priority,
                depth=len(last),
                last=last,
                running=sum(job.placed > 0 for job in mine),
                waiting=sum(job.words is not None for job in mine),
                shares=_shares(cycle, row),
            )
        )
        waiting += [(child, (*last, child == below[-1])) for child in reversed(below)]
    return tuple(out)


def _below(row: int, children: dict[int, list[int]]) -> list[int]:
    out, at = [row], 0
    while at < len(out):
        out += children.get(out[at], [])
        at += 1
    return out


def _shares(cycle: Cycle, row: int) -> tuple[Share, Share, Share]:
    queue, report = cycle.snapshot.queues[row], cycle.report
    quota = (queue.quota.cpu, queue.quota.memory, queue.quota.gpu)
    limit = (queue.limit.cpu, queue.limit.memory, queue.limit.gpu)
    cpu, memory, gpu = (
        Share(
            quota=None if quota[at] < 0 else quota[at],
            limit=None if limit[at] < 0 else limit[at],
            fair_share=float(report.fair_share[row, at]),
            used=float(report.queue_used[row, at]),
            used_non_preemptible=float(report.queue_fixed[row, at]),
            wanted=float(report.queue_requested[row, at]),
        )
        for at in range(3)
    )
    return cpu, memory, gpu
