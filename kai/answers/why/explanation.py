"""Explanations of an outcome: the reason, the evidence and the suggestions for each waiting job.

Jobs that wait for the same reason are folded into one explanation. The results are plain values; commands turn them
into tables and documents.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial

import attrs
import numpy as np

from kai.answers.offline.cluster_reaction import next_objects
from kai.answers.offline.run import TRYING, Outcome
from kai.answers.outcomes.job_lines import JobLine, Owner, job_lines
from kai.answers.outcomes.job_states import State
from kai.answers.outcomes.overview import Job, Overview, declared_in
from kai.answers.why.changes import OBJECTS, SHORT, Site
from kai.answers.why.evictions import Eviction, Evictions
from kai.answers.why.evidence import evidence
from kai.answers.why.facts import Evidence, absent_classes, asks_gpus, assumptions
from kai.answers.why.suggestions import (
    LOST,
    MOST_DECISIONS,
    Eta,
    Starts,
    Suggestions,
    allowance,
    competes,
    hopes,
    passed_again,
    suggest,
    usual,
    waiting,
    with_known_end,
)
from kai.answers.why.trials import ChangeTrials, Effort, GroupKey, OnProgress, ignore_progress
from kai.answers.why.written import written
from kai.api import names
from kai.api.cluster_objects import ClusterObjects
from kai.api.kinds import key_of
from kai.basics.wording import counted
from kai.deciding.explain.phrases import listed
from kai.deciding.explain.words import GroupReasons
from kai.facts.model.axis import GPU
from kai.facts.model.groups import PodGroup
from kai.facts.model.pod import Status
from kai.framework.verdict import Reason

_TELLS_NOTHING_MORE = frozenset({"NoRoom", "NotTried", "HeldForLeaving"})
_SAYS_THE_SAME = {
    "NoNodeLargeEnough": frozenset({"PodRefused", "TopologyHasNoRoom", "GangDoesNotFit"}),
    "GpuMemoryUnknown": frozenset({"PodRefused", "TopologyHasNoRoom", "GangDoesNotFit"}),
    "ClusterTooSmall": frozenset({"TopologyHasNoRoom", "GangDoesNotFit"}),
    "DomainTooSmall": frozenset({"TopologyHasNoRoom", "GangDoesNotFit"}),
    "NoNodeMatches": frozenset({"TopologyHasNoRoom", "GangDoesNotFit"}),
    "HeldForLeaving": frozenset({"TopologyHasNoRoom", "GangDoesNotFit"}),
    "EvictionsCapped": frozenset({"GangDoesNotFit"}),
    "VictimsProtected": frozenset({"GangDoesNotFit"}),
    "TopologyMissing": frozenset({"TopologyHasNoRoom"}),
    "TopologyLevelMissing": frozenset({"TopologyHasNoRoom"}),
}
"""By the shown reason: the reasons to omit, because they repeat it or describe the state before the evictions."""
_MOST_ALSO = 2
MOST_APART = 12


@attrs.frozen(kw_only=True)
class JobExplanation:
    """Why a job waits."""

    job: Job
    summary: str
    reason: Reason[str]
    wire_reason: str
    """The reason in the conditions of the group; "" if the conditions give none."""
    also: tuple[Reason[str], ...]
    evidence: tuple[Evidence, ...]
    suggestions: Suggestions
    waiting: str
    position: int | None = None
    """Position among the waiting jobs of its queue; None if the scheduler cannot try it."""
    since: float | None = None
    """When the wait began, in seconds since the epoch; None if unknown."""
    waited: float | None = None
    """How long the job has waited, in seconds."""
    eta: Eta | None = None
    owner: Owner | None = None
    """The workload that owns the group, as its user created it; None where that is the group itself."""
    evicted_by: tuple[str, ...] = ()
    """The jobs that took the place of its pods in this cycle, each with the action that evicted them."""


@attrs.frozen(kw_only=True)
class Fold:
    """Waiting jobs with the same reason, represented by the one that is explained."""

    explanation: JobExplanation
    alike: tuple[Job, ...] = ()


@attrs.frozen(kw_only=True)
class Explained:
    """The explanations of the last cycle of an outcome."""

    folds: tuple[Fold, ...]
    evictions: tuple[Eviction, ...] = ()
    unused: tuple[str, ...] = ()
    """Resources that evictions vacate and no job is promised."""
    assumptions: tuple[str, ...] = ()
    """Assumptions where the input is silent."""
    settled: tuple[JobLine, ...] = ()
    """Requested jobs without a waiting pod."""

    @property
    def jobs(self) -> tuple[JobExplanation, ...]:
        """The explained jobs, one for each fold."""
        return tuple(fold.explanation for fold in self.folds)


def explained(outcome: Outcome, seen: Overview, on_progress: OnProgress = ignore_progress) -> Explained:
    """Return the explanation of the last cycle; report the progress of the search for changes to ``on_progress``.

    Jobs that differ only in their names share one explanation. Beyond MOST_APART jobs, all jobs of a queue with the
    same reason code share one.
    """
    explainer = Explainer(outcome, seen, on_progress=on_progress)
    waits = seen.waiting
    evictions = Evictions(outcome.last)
    alike = explainer.twins if len(waits) <= MOST_APART else explainer.reasons
    return Explained(
        folds=tuple(explainer.folded(waits, alike)),
        evictions=evictions.all(),
        unused=tuple(evictions.unused()),
        assumptions=assumptions(outcome.case.objects),
    )


def explained_jobs(
    outcome: Outcome, explainer: "Explainer", lines: Sequence[JobLine], *, verify: bool = True
) -> Explained:
    """Return the explanations of the jobs of ``lines``; jobs that differ only in their names share one.

    Commands and the service both use this, so that they give the same answers.
    """
    waiting = [line.job for line in lines if line.waits]
    mine = {line.job.key for line in lines}
    return Explained(
        folds=tuple(explainer.folded(waiting, explainer.twins, verify=verify)) if waiting else (),
        evictions=tuple(each for each in Evictions(outcome.last).all() if each.job in mine),
        assumptions=assumptions(outcome.case.objects, {line.job.queue for line in lines}),
        settled=tuple(line for line in lines if not line.waits),
    )


class Explainer:
    """Explains the jobs of the last cycle of an outcome, one after the other.

    Cost: further cycles for each job, up to its allowance, and up to MOST_DECISIONS for all jobs together.
    """

    def __init__(
        self,
        outcome: Outcome,
        seen: Overview,
        *,
        lines: Iterable[JobLine] = (),
        most: int = MOST_DECISIONS,
        on_progress: OnProgress = ignore_progress,
    ) -> None:
        """Read an outcome and its overview; ``lines`` are its jobs, where they are computed already.

        The progress of the search for changes is reported to ``on_progress``.
        """
        cycle = outcome.last
        self._outcome = outcome
        self._seen = seen
        self._objects = _objects_before(outcome)
        settings = outcome.case.settings
        self._group_reasons = GroupReasons(
            cycle.snapshot, outcome.profile, cycle.report, declared_in(self._objects, settings)
        )
        searches = None if outcome.searches is None else TRYING
        self._effort = Effort(on_progress)
        self._trials = ChangeTrials(outcome.profile, settings, cycle, most, searches, outcome.intake, self._effort)
        self._size = 0 if searches is None else len(cycle.snapshot.pods) + len(cycle.snapshot.nodes)
        self._starts = Starts(cycle, self._objects)
        self._given = tuple(lines)
        self._rows = {(group.namespace, group.name): row for row, group in enumerate(cycle.snapshot.groups)}
        self._sources = {key_of(each): each for each in self._objects.pod_groups}
        self._pods = {key_of(pod): pod for pod in self._objects.pods}

    def explain(self, job: Job, *, verify: bool = True, among: int = 1) -> JobExplanation:
        """Return why ``job`` waits; ``among`` jobs share the budget of trials."""
        site = self.site(job)
        reason = site.reasons[0] if job.waiting_reason is None else job.waiting_reason
        # One more than the allowance, for the trial without the other jobs.
        self._trials.allow(1 + allowance(among, self._size) if verify else 0)
        alone = self._trials.alone(site) if site.waiting and hopes(reason) else None
        found = suggest(site, self._trials) if site.waiting and verify else Suggestions(all_tried=verify)
        proof = evidence(site)
        covered = _SAYS_THE_SAME.get(reason.code, frozenset()) | {reason.code}
        covered |= {"AtFairShare"} if any(each.label == "taking" for each in proof) else set()
        line = self._lines[job.key]
        since = _waits_since(line)
        younger = self._younger(site, since) if competes(reason) else ()
        until = LOST if job.evicted > job.moved and reason.code == "Moves" else waiting(site, reason, alone, found)
        until = with_known_end(until, site, reason)
        return JobExplanation(
            job=job,
            summary=summary(job, reason),
            reason=reason,
            wire_reason=next((each.reason for each in job.explanations if not each.is_detail), ""),
            also=tuple(each for each in site.reasons if each.code not in covered and _tells_more(each))[:_MOST_ALSO],
            evidence=(
                *proof,
                *absent_classes(site),
                *place_in_line(line),
                *self._passed_by(site, younger),
                *written(site.source, site.waiting),
            ),
            suggestions=found,
            waiting=passed_again(until) if younger else until,
            position=line.position,
            since=since,
            waited=None if since is None else site.cycle.snapshot.now - since,
            eta=self._starts.eta(site.group, reason.code),
            owner=line.owner,
            evicted_by=job.lost_to,
        )

    def _younger(self, site: Site, since: float | None) -> Sequence[PodGroup]:
        """Return the running GPU jobs that were created later than ``since``, when the explained job began to wait."""
        if since is None or not asks_gpus(site):
            return ()
        return [group for group in self._runners if group.created > since]

    def _passed_by(self, site: Site, younger: Sequence[PodGroup]) -> Iterator[Evidence]:
        """Yield the number of younger jobs that run, by queue, and the rules that may have let them pass."""
        if not younger:
            return
        snapshot, used = self._outcome.last.snapshot, self._outcome.last.report.queue_used
        own = snapshot.groups[site.group]
        counts = Counter(group.queue_row for group in younger).most_common()
        texts = []
        for row, count in counts[:_MOST_ALSO]:
            quota = snapshot.queues[row].quota.of(GPU)
            rules = ["above its quota"] if 0 <= quota < used[row, GPU] else []
            higher = sum(each.queue_row == row == own.queue_row and each.priority > own.priority for each in younger)
            rules += [f"{higher} of higher priority"] if higher else []
            texts.append(f"{count} of {snapshot.queues[row].name}" + (f" ({', '.join(rules)})" if rules else ""))
        left = len(counts) - len(texts)
        queues = listed(texts) + (f" and {counted(left, 'more queue')}" if left else "")
        came = "job that came later runs" if len(younger) == 1 else "jobs that came later run"
        text = f"{len(younger)} {came}: {queues}; no idle GPUs are held back for a job that waits"
        by_queue = [{"queue": snapshot.queues[row].name, "jobs": count} for row, count in counts]
        yield Evidence(label="passed by", text=text, values={"younger": len(younger), "byQueue": by_queue})

    @cached_property
    def _runners(self) -> Sequence[PodGroup]:
        """The groups that hold GPUs now."""
        groups, rows = self._outcome.last.snapshot.groups, self._rows
        found = (groups[rows[job.namespace, job.name]] for job in self._seen.jobs if job.placed and job.gpus)
        return [group for group in found if group.queue_row >= 0]

    def folded(self, jobs: Sequence[Job], key: Callable[[Job], Hashable], *, verify: bool = True) -> Iterable[Fold]:
        """Yield one fold for all jobs with the same ``key``; its first job is explained."""
        groups: dict[Hashable, list[Job]] = {}
        for job in jobs:
            groups.setdefault(key(job), []).append(job)
        self._effort.begin(len(groups), 1 + allowance(len(jobs), self._size) if verify else 0)
        if verify:
            self._trials.expect(len(groups))
        for first, *others in groups.values():
            fold = Fold(explanation=self.explain(first, verify=verify, among=len(jobs)), alike=tuple(others))
            self._effort.end_group()
            yield fold

    def in_line(self, jobs: Sequence[Job]) -> list[Job]:
        """Return ``jobs`` in the order in which the scheduler tries them; untriable ones come last."""
        last = len(jobs) + 1
        return sorted(jobs, key=lambda job: (self._lines[job.key].position or last, job.key))

    # -------------------------------------------------------------------------------- folding

    def twins(self, job: Job) -> Hashable:
        """Return a key that is equal for jobs that differ only in their names."""
        snapshot = self._outcome.last.snapshot
        group = self._rows[job.namespace, job.name]
        # The nodes of placed pods differ from job to job, and so do the nodes that stay free.
        if job.placed or job.held or job.waiting_reason is None:
            return group
        rows = np.flatnonzero(snapshot.pod_group == group)
        # Sorted, since the rows of two equal jobs may have their pods in another order.
        shapes = tuple(sorted(snapshot.pod_shape[rows].tolist()))
        facts = snapshot.groups[group]
        return (
            job.waiting_reason.code,
            job.queue,
            job.priority,
            job.preemptible,
            facts.subgroups,
            shapes,
            job.waiting_reason.text,
        )

    @staticmethod
    def reasons(job: Job) -> Hashable:
        """Return a key that is equal for jobs of one queue with the same reason code."""
        return ("" if job.waiting_reason is None else job.waiting_reason.code), job.queue

    # --------------------------------------------------------------------------- sites

    def site(self, job: Job) -> Site:
        """Return the site of ``job``: the input for its changes and evidence."""
        key = (job.namespace, job.name)
        return Site(
            objects=self._objects,
            cycle=self._outcome.last,
            group=self._rows[key],
            source=self._sources[key],
            waiting=tuple(self._pods[each] for each in self._members.get(key, ())),
            placed=job.placed + job.held,
            reasons=self._group_reasons.all(self._rows[key]),
            takeable=partial(self._group_reasons.takeable, self._rows[key]),
            fields=SHORT
            if job.namespace == names.DEFAULT_NAMESPACE and job.name in self._outcome.case.short_groups
            else OBJECTS,
        )

    @cached_property
    def _lines(self) -> Mapping[str, JobLine]:
        """The job lines, with start of the wait and position, by ``namespace/name``."""
        return {line.job.key: line for line in self._given or job_lines(self._outcome, self._seen)}

    @cached_property
    def _members(self) -> Mapping[GroupKey, list[tuple[str, str]]]:
        """Namespace and name of each waiting pod, by group."""
        snapshot, status = self._outcome.last.snapshot, self._outcome.last.report.status
        waits = ((status == Status.PENDING) | (status == Status.GATED)) & (snapshot.pod_group >= 0)
        out: dict[GroupKey, list[tuple[str, str]]] = {}
        for row in np.flatnonzero(waits).tolist():
            facts, pod = snapshot.groups[int(snapshot.pod_group[row])], snapshot.pods[row]
            out.setdefault((facts.namespace, facts.name), []).append((pod.namespace, pod.name))
        return out


def _objects_before(outcome: Outcome) -> ClusterObjects:
    """Return the objects that the last cycle decided on."""
    objects = outcome.case.objects
    for cycle in outcome.cycles[:-1]:
        objects = next_objects(objects, cycle.aftermath, outcome.case.keep_terminating)
    return objects


def unproved(line: JobLine, now: float) -> JobExplanation:
    """Return the reason of a waiting job as the cycle recorded it, without evidence and suggestions.

    Cost: constant in the size of the cluster.
    """
    job = line.job
    reason = Reason("NotTried", "") if job.waiting_reason is None else job.waiting_reason
    since = _waits_since(line)
    return JobExplanation(
        job=job,
        summary=summary(job, reason),
        reason=reason,
        wire_reason=next((each.reason for each in job.explanations if not each.is_detail), ""),
        also=(),
        evidence=(),
        suggestions=Suggestions(all_tried=False),
        waiting=LOST if job.evicted > job.moved and reason.code == "Moves" else usual(reason),
        position=line.position,
        since=since,
        waited=None if since is None else now - since,
        owner=line.owner,
        evicted_by=job.lost_to,
    )


def _waits_since(line: JobLine) -> float | None:
    job = line.job
    return None if job.placed or job.evicted or job.state is State.MOVES else line.since


def place_in_line(line: JobLine) -> Iterator[Evidence]:
    """Yield the number of jobs that are tried before this one, where some of them belong to other queues.

    The position alone counts only jobs of the same queue.
    """
    if line.position is None or not line.others_before:
        return
    own, others = line.position - 1, line.others_before
    mine = f"{own} of the queue and " if own else ""
    are = "is" if own + others == 1 else "are"
    whose = "another queue" if others == 1 else "other queues"
    text = f"{mine}{others} of {whose} {are} tried before it at present"
    yield Evidence(label="in line", text=text, values={"ofQueue": own, "ofOtherQueues": others})


def _tells_more(reason: Reason[str]) -> bool:
    """Return whether a reason adds to the dominant one: a fair share does so only if the job would exceed it."""
    facts = reason.facts
    used, asked, share = (facts.get(key) for key in ("used", "requested", "fair_share"))
    if isinstance(used, int) and isinstance(asked, int) and isinstance(share, int):
        return used + asked > share
    return reason.code not in _TELLS_NOTHING_MORE


def summary(job: Job, reason: Reason[str]) -> str:
    text = reason.text.rstrip(". ")
    if job.state is State.EVICTED:
        between = "; " if reason.code == "Moves" else ": "  # moving pods are not the reason for the evictions
        return f"{job.title} is evicted, {', '.join(job.lost_to)}{between}{text}."
    if reason.code == "HeldForLeaving" and not job.placed:
        return f"{job.title} starts later: {text}."
    if job.state is State.MOVES:
        return f"{job.title} moves: {text}."
    if job.state is State.IMPOSSIBLE:
        return f"{job.title} can never run here: {text}."
    if job.placed and reason.code == "Moves":
        return f"{job.title} runs with {job.placed} of {job.wanted} pods, {', '.join(job.lost_to)} go; {text}."
    if job.placed:
        rest = "the rest waits" if job.wanted - job.placed > 1 else "one waits"
        return f"{job.title} runs with {job.placed} of {job.wanted} pods, {rest}: {text}."
    return f"{job.title} waits: {text}."


__all__ = ["Explained", "Explainer", "Fold", "JobExplanation", "explained", "explained_jobs", "unproved"]
