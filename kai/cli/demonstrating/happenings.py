"""Events of a run as lines: arrivals, starts, evictions with beneficiary and reason, and completions.

Each step is compared with the previous state. Many similar events become one line with a count.
"""

from __future__ import annotations

from math import isnan
from typing import TYPE_CHECKING, Final

import attrs

from kai.answers.outcomes.states import counted_on
from kai.basics.wording import counted, first_of, span_text
from kai.facts.model.axis import GPU_UNIT
from kai.framework.decisions import Bind, Decision, Evict, Nominate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kai.answers.offline.run import Cycle
    from kai.answers.outcomes.overview import Job, Overview
    from kai.lab.virtual.running.records import JobRecord
    from kai.lab.virtual.running.simulation import Simulation

ARRIVES, STARTS, HELD, EVICTED, DONE, BROKEN, WAITS = "+", ">", "~", "-", ".", "!", " "
_FEW: Final = 3
"""Up to this many similar events get a line each."""
_NODES: Final = 4


@attrs.frozen(kw_only=True)
class Line:
    """One event of a run.

    Units: seconds of virtual time.
    """

    at: float
    subject: str
    sign: str
    text: str
    watch: str = ""
    """Why to slow down for it; "" for no reason."""


@attrs.define
class Happenings:
    """The state of a run as it was after the last step, to find new events against."""

    _open: dict[int, None] = attrs.field(factory=dict)
    """The numbers of unfinished jobs."""
    _seen: int = 0
    """How many jobs have arrived."""
    _cycle: int = 0
    _codes: dict[str, str] = attrs.field(factory=dict)
    """The last reported reason code of each waiting job, by key."""
    _nodes: tuple[str, ...] | None = None

    def since(self, run: Simulation, overview: Overview | None) -> list[Line]:
        """Return the events since the last call; ``overview`` is that of the last cycle."""
        now, cycle = run.now, run.last
        found = [*self._of_nodes(run, now), *self._ended(run, now), *self._arrived(run, now)]
        if cycle is not None and cycle.number != self._cycle:
            self._cycle = cycle.number
            found += _decided(cycle, run)
            if overview is not None:
                found += self._waiting(overview, now)
        return found

    def _of_nodes(self, run: Simulation, now: float) -> Iterator[Line]:
        # Compared by name from step to step, as a failed node leaves no record.
        before, self._nodes = self._nodes, run.cluster.nodes
        if before is None:
            return
        for name in [each for each in before if each not in self._nodes]:
            yield Line(at=now, subject=name, sign=BROKEN, text="the node is gone, with its pods", watch="a node failed")
        for name in [each for each in self._nodes if each not in before]:
            yield Line(at=now, subject=name, sign=ARRIVES, text="the node is there")

    def _arrived(self, run: Simulation, now: float) -> Iterator[Line]:
        jobs = run.records.jobs
        fresh = range(self._seen, len(jobs))
        self._open.update(dict.fromkeys(fresh))
        self._seen = len(jobs)
        for queue, come in _by_queue(jobs[number] for number in fresh).items():
            if len(come) > _FEW:
                gpus = counted(round(sum(each.gpus for each in come), 3), "GPU")
                yield Line(at=now, subject=queue, sign=ARRIVES, text=f"{counted(len(come), 'job')} arrive, {gpus}")
                continue
            for each in come:
                size = f"{counted(each.pods, 'pod')}, {counted(each.gpus, 'GPU')}"
                yield Line(at=now, subject=each.name, sign=ARRIVES, text=f"arrives in queue {queue}, {size}")

    def _ended(self, run: Simulation, now: float) -> Iterator[Line]:
        over = [number for number in self._open if run.records.jobs[number].ending is not None]
        for number in over:
            del self._open[number]
        for queue, ended in _by_queue(run.records.jobs[number] for number in over).items():
            if len(ended) > _FEW:
                yield Line(at=now, subject=queue, sign=DONE, text=f"{counted(len(ended), 'job')} ended")
                continue
            for each in ended:
                yield Line(at=now, subject=each.name, sign=DONE, text=f"{each.ending}, after {_life(each)}")

    def _waiting(self, overview: Overview, now: float) -> Iterator[Line]:
        """Yield the waiting jobs whose reason changed."""
        # By code, not by text: the figures in a text change each cycle, and the log would repeat every job.
        codes = {
            job.key: job.waiting_reason.code
            for job in overview.jobs
            if job.waiting_reason is not None and job.state != "Held"
        }
        changed = [job for job in overview.jobs if job.key in codes and codes[job.key] != self._codes.get(job.key)]
        self._codes = codes
        by_reason: dict[tuple[str, str], list[Job]] = {}
        for job in changed:
            by_reason.setdefault((job.queue, codes[job.key]), []).append(job)
        for (queue, code), jobs in by_reason.items():
            if len(jobs) > _FEW:
                yield Line(at=now, subject=queue, sign=WAITS, text=f"{counted(len(jobs), 'job')} wait: {code}")
                continue
            for job in jobs:
                text = "" if job.waiting_reason is None else job.waiting_reason.text
                yield Line(at=now, subject=job.name, sign=WAITS, text=f"waits: {text}")


def _by_queue(jobs: Iterable[JobRecord]) -> dict[str, list[JobRecord]]:
    found: dict[str, list[JobRecord]] = {}
    for each in jobs:
        found.setdefault(each.queue, []).append(each)
    return found


def _life(job: JobRecord) -> str:
    return span_text(job.end - (job.arrival if isnan(job.start) else job.start))


# --- Decisions -----------------------------------------------------------------------------------------------------


def _decided(cycle: Cycle, run: Simulation) -> Iterator[Line]:
    evicts = [each for each in cycle.decisions if isinstance(each, Evict)]
    yield from _evicted(cycle, evicts, run.now)
    held = _by_group(cycle, [each for each in cycle.decisions if isinstance(each, Nominate)])
    for group, pods in held.items():
        # Without evictions a promise follows from pods that leave by themselves, which the line of their end tells.
        if evicts:
            text = f"held on {_nodes(cycle, pods)} until others have left"
            yield Line(at=run.now, subject=cycle.snapshot.groups[group].name, sign=HELD, text=text)
    yield from _started(cycle, run)


def _evicted(cycle: Cycle, evicts: Sequence[Evict], now: float) -> Iterator[Line]:
    from kai.answers.why.evictions import Evictions

    snapshot = cycle.snapshot
    because = Evictions(cycle)
    parts: dict[tuple[int, str, str], list[Evict]] = {}
    for each in evicts:
        queue = snapshot.groups[int(snapshot.pod_group[each.pod])].queue
        # One line for what one job takes from one queue: a reclaim may evict dozens of pods.
        parts.setdefault((each.aggressor, str(each.cause), queue), []).append(each)
    for (gains, cause, queue), pods in parts.items():
        groups = sorted({snapshot.groups[int(snapshot.pod_group[each.pod])].name for each in pods})
        whom = f" for {snapshot.groups[gains].name}" if gains >= 0 else ""
        jobs = f" of {counted(len(groups), 'job')}" if len(groups) > 1 else ""
        verb = "moved" if all(each.moved_to >= 0 for each in pods) else "evicted"
        where = f"from {_nodes(cycle, pods)} ({_gpus(cycle, pods)}, {cause})"
        text = f"{counted(len(pods), 'pod')}{jobs} {verb}{whom} {where}"
        subject = queue if len(groups) > 1 else groups[0]
        yield Line(at=now, subject=subject, sign=EVICTED, text=text, watch=cause)
        why = "; ".join(because.because(pods[0])) or pods[0].rule
        if why:
            yield Line(at=now, subject="", sign=WAITS, text=why)


def _started(cycle: Cycle, run: Simulation) -> Iterator[Line]:
    snapshot = cycle.snapshot
    started = _by_group(cycle, [each for each in cycle.decisions if isinstance(each, Bind)])
    by_queue: dict[str, list[int]] = {}
    for group in started:
        by_queue.setdefault(snapshot.groups[group].queue, []).append(group)
    waits = _waits(run)
    for queue, groups in by_queue.items():
        if len(groups) > _FEW:
            pods = [each for group in groups for each in started[group]]
            text = f"{counted(len(groups), 'job')} started, {_gpus(cycle, pods)} on {_nodes(cycle, pods)}"
            yield Line(at=run.now, subject=queue, sign=STARTS, text=text)
            continue
        for group in groups:
            facts, pods = snapshot.groups[group], started[group]
            waited = waits.get((facts.namespace, facts.name), 0.0)
            after = f", waited {span_text(waited)}" if waited >= 1 else ""
            text = f"started on {_nodes(cycle, pods)}, {_gpus(cycle, pods)}{after}"
            yield Line(at=run.now, subject=facts.name, sign=STARTS, text=text)


def _waits(run: Simulation) -> Mapping[tuple[str, str], float]:
    """Return how long jobs waited before their last start, by namespace and name of their groups."""
    jobs = run.records.jobs
    return {key: jobs[job.number].waits[-1] for key, job in run.workloads.jobs.items() if jobs[job.number].waits}


def _by_group(cycle: Cycle, decisions: Sequence[Decision]) -> dict[int, list[Decision]]:
    found: dict[int, list[Decision]] = {}
    for each in decisions:
        group = int(cycle.snapshot.pod_group[each.pod])
        if group >= 0:
            found.setdefault(group, []).append(each)
    return found


def _nodes(cycle: Cycle, decisions: Sequence[Decision]) -> str:
    rows = [_node(cycle, each) for each in decisions]
    names = sorted({cycle.snapshot.nodes[row].name for row in rows if row >= 0})
    return first_of(names, _NODES, " ")


def _node(cycle: Cycle, decision: Decision) -> int:
    """Return the row of the node that a pod gets, or leaves."""
    # An eviction names no node: the snapshot has the one that the pod leaves.
    return int(cycle.snapshot.pod_node[decision.pod]) if isinstance(decision, Evict) else decision.node


def _gpus(cycle: Cycle, decisions: Sequence[Decision]) -> str:
    snapshot, details = cycle.snapshot, cycle.report.details
    total = sum(counted_on(snapshot, each.pod, _node(cycle, each), details) for each in decisions)
    return counted(total / GPU_UNIT, "GPU")
