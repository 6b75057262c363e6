"""The effect of a workload that arrives now: whether it starts, where, and at whose cost.

Decisions that the scheduler would make without it are kept apart, because the workload does not cause them.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final

import attrs

from kai.answers.cases.case import RefusedWorkload
from kai.answers.cases.plan_document import Departure
from kai.answers.offline.run import Outcome
from kai.answers.outcomes.job_lines import refused_jobs
from kai.answers.outcomes.job_states import State
from kai.answers.outcomes.overview import Job, Overview
from kai.answers.outcomes.plan import Plan, plan_of
from kai.answers.outcomes.queue_lines import QueueLine
from kai.api.kubernetes.pod import GRACE_SECONDS
from kai.basics.trees import ancestry

STARTS, AFTER_EVICTIONS, WAITS, NEVER, REFUSED = "starts", "starts-after-evictions", "waits", "impossible", "refused"
_ORDER: Final = (STARTS, AFTER_EVICTIONS, WAITS, NEVER, REFUSED)


@attrs.frozen
class Part:
    """Pods of a job with the same GPU request: those of one sub-group, where the job has any."""

    name: str
    """Name of the sub-group; "" where the job has none."""
    pods: int
    gpus: int
    """GPUs of each pod, in thousandths."""


@attrs.frozen(kw_only=True)
class Arrival:
    """The effect of a workload."""

    answer: str
    """The answer for the job that fares worst."""
    jobs: tuple[Job, ...]
    plan: Plan
    """The decisions that it causes."""
    besides: Plan
    """The decisions for others in the same cycle."""
    queues: tuple[QueueLine, ...]
    """The queues of its jobs and their ancestors, with their usage afterwards."""
    parts: Mapping[str, tuple[Part, ...]] = attrs.field(factory=dict)
    """The parts of each job, by ``namespace/name``."""

    @property
    def eta_seconds(self) -> float | None:
        """Return the seconds until it starts; None if it waits, because no end time is known."""
        return {STARTS: 0.0, AFTER_EVICTIONS: GRACE_SECONDS}.get(self.answer)

    @property
    def over_quota(self) -> tuple[QueueLine, ...]:
        """Return the queues that use more GPUs than their quota afterwards."""
        return tuple(
            queue
            for queue in self.queues
            if queue.shares[2].quota is not None and queue.shares[2].used > queue.shares[2].quota
        )


def arrival(
    outcome: Outcome, seen: Overview, added: frozenset[str], refused: Iterable[RefusedWorkload] = ()
) -> Arrival:
    """Return the effect of the jobs in ``added`` in the first cycle that saw them, and of those ``refused``."""
    all_jobs = tuple(job for job in seen.jobs if job.key in added)
    jobs = (*(tuple(job for job in all_jobs if job.wanted) or all_jobs), *refused_jobs(refused))
    plan = plan_of(outcome)
    own = _part(plan, added, is_own=True)
    answers = [answer_of(job) for job in jobs]
    return Arrival(
        answer=max(answers, key=_ORDER.index, default=WAITS),
        jobs=jobs,
        plan=own,
        besides=_part(plan, added, is_own=False),
        queues=tuple(_branch(seen, {job.queue for job in jobs})),
        parts=_parts(outcome, {job.key for job in jobs}),
    )


def _parts(outcome: Outcome, keys: Collection[str]) -> dict[str, tuple[Part, ...]]:
    """Return the parts of each job, in the order of its pods."""
    snapshot = outcome.last.snapshot
    asked = snapshot.requests @ snapshot.axis.gpu_weights()
    found: dict[str, Counter[tuple[str, int]]] = {}
    for row, group in enumerate(snapshot.pod_group.tolist()):
        key = snapshot.groups[group].key if group >= 0 else ""
        if key in keys:
            leaf = int(snapshot.pod_subgroup[row])
            name = snapshot.groups[group].subgroups[leaf].name if leaf >= 0 else ""
            found.setdefault(key, Counter())[name, int(asked[snapshot.pod_shape[row]])] += 1
    # The smallest first: a head before its workers.
    return {
        key: tuple(Part(name, count, gpus) for (name, gpus), count in sorted(each.items(), key=lambda item: item[0][1]))
        for key, each in found.items()
    }


def answer_of(job: Job) -> str:
    """Return the answer for one job: it starts if its minimum does."""
    if job.state is State.REFUSED:
        return REFUSED
    least = min(max(job.minimum, 1), job.wanted)
    if job.wanted and job.placed >= least:
        return STARTS
    if job.wanted and job.placed + job.held >= least:
        return AFTER_EVICTIONS
    return NEVER if job.state is State.IMPOSSIBLE else WAITS


def _part(plan: Plan, added: frozenset[str], *, is_own: bool) -> Plan:
    def mine(departures: Iterable[Departure]) -> tuple[Departure, ...]:
        return tuple(each for each in departures if ((each.aggressor or "") in added) is is_own)

    return Plan(
        place=tuple(each for each in plan.place if (each.job in added) is is_own),
        hold=tuple(each for each in plan.hold if (each.job in added) is is_own),
        evict=mine(plan.evict),
        move=mine(plan.move),
    )


def _branch(seen: Overview, names: set[str]) -> Iterable[QueueLine]:
    parents = {queue.name: queue.parent for queue in seen.queues}
    wanted = {each for name in names for each in ancestry(name, parents)}
    return [queue for queue in seen.queues if queue.name in wanted]
