"""The explanation of an outcome: for every job that waits why, what proves it and what would help; who was evicted why.

Values only; the command makes tables and documents of them.
"""

from collections.abc import Mapping

import attrs

from kai.api.objects import ClusterObjects
from kai.explain.phrases import Words
from kai.explain.words import Teller
from kai.framework.decisions import Evict
from kai.model.axis import GPU
from kai.model.status import Status
from kai.simulation.between import next_objects
from kai.simulation.changes import Site
from kai.simulation.evidence import Evidence, because_of, evidence, waiting
from kai.simulation.overview import HELD, IMPOSSIBLE, Job, Overview
from kai.simulation.run import Outcome
from kai.simulation.suggestions import MOST_DECISIONS, Suggestions, allowance, suggest
from kai.simulation.trials import GroupKey, Trials

_TELLS_NOTHING_MORE = frozenset({"NoRoom", "NotTried"})
_MOST_ALSO = 2


@attrs.frozen(kw_only=True)
class JobExplanation:
    """Why a job waits."""

    job: Job
    state: str
    """``waiting``, ``starting`` (its place is being vacated), ``running`` (only some pods wait) or ``impossible``."""
    summary: str
    reason: Words
    wire_reason: str
    """The reason under which conditions carry it; "" if they say nothing."""
    also: tuple[Words, ...]
    evidence: tuple[Evidence, ...]
    suggestions: Suggestions
    waiting: str


@attrs.frozen(kw_only=True)
class Eviction:
    """Why one pod has to go."""

    pod: str
    job: str
    queue: str
    gpus: int
    """In thousandths."""
    cause: str
    rule: str
    beneficiary: str
    """The job that gains; "" if none does."""
    moved_to: str
    """The node that it was promised in exchange; "" for none."""
    because: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Explained:
    """Everything that the last cycle of an outcome leaves to be explained."""

    jobs: tuple[JobExplanation, ...]
    evictions: tuple[Eviction, ...]


def explained(outcome: Outcome, seen: Overview) -> Explained:
    """Return the explanation of the last cycle. Cost: up to MOST_DECISIONS more cycles."""
    cycle = outcome.last
    teller = Teller(cycle.snapshot, outcome.profile, cycle.report)
    trials = Trials(outcome.profile, outcome.case.settings, cycle, MOST_DECISIONS)
    objects = _objects_before(outcome)
    rows = {(group.namespace, group.name): row for row, group in enumerate(cycle.snapshot.groups)}
    sources = {(group.metadata.namespace, group.metadata.name): group for group in objects.pod_groups}
    pods = {(pod.metadata.namespace, pod.metadata.name): pod for pod in objects.pods}
    members = _waiting_pods(outcome)
    jobs: list[JobExplanation] = []
    waits = [job for job in seen.jobs if job.words is not None]
    for job in waits:
        key = (job.namespace, job.name)
        site = Site(
            objects=objects,
            cycle=cycle,
            group=rows[key],
            source=sources[key],
            waiting=tuple(pods[each] for each in members.get(key, ())),
            placed=job.placed + job.held,
            reasons=teller.tell_all(rows[key]),
        )
        trials.allow(allowance(len(waits)))
        jobs.append(_explanation(job, site, suggest(site, trials) if site.waiting else Suggestions()))
    return Explained(jobs=tuple(jobs), evictions=_evictions(outcome))


def _objects_before(outcome: Outcome) -> ClusterObjects:
    """Return the objects that the last cycle decided on."""
    objects = outcome.case.objects
    for cycle in outcome.cycles[:-1]:
        objects = next_objects(objects, cycle.aftermath, outcome.case.keep_terminating)
    return objects


def _waiting_pods(outcome: Outcome) -> Mapping[GroupKey, list[tuple[str, str]]]:
    """Return namespace and name of each pod that waits, by group."""
    snapshot, report = outcome.last.snapshot, outcome.last.report
    out: dict[GroupKey, list[tuple[str, str]]] = {}
    for row, group in enumerate(snapshot.pod_group):
        if group >= 0 and report.status[row] in (Status.PENDING, Status.GATED):
            facts, pod = snapshot.groups[group], snapshot.pods[row]
            out.setdefault((facts.namespace, facts.name), []).append((pod.namespace, pod.name))
    return out


def _explanation(job: Job, site: Site, suggestions: Suggestions) -> JobExplanation:
    reason = site.reasons[0]
    state = {HELD: "starting", IMPOSSIBLE: "impossible"}.get(job.state, "running" if job.placed else "waiting")
    if reason.code == "HeldForLeaving":
        state = "starting"
    proof = evidence(site)
    told = {"AtFairShare"} if any(each.label == "taking" for each in proof) else set()
    return JobExplanation(
        job=job,
        state=state,
        summary=_summary(job, state, reason.text.rstrip(". ")),
        reason=reason,
        wire_reason=next((each.reason for each in job.explanations if not each.is_detail), ""),
        also=tuple(each for each in site.reasons[1:] if each.code not in told and _tells_more(each))[:_MOST_ALSO],
        evidence=proof,
        suggestions=suggestions,
        waiting=waiting(site),
    )


def _tells_more(reason: Words) -> bool:
    """Say whether a reason adds to the dominant one: a fair share does that only if the job would pass it."""
    facts = reason.facts
    used, asked, share = (facts.get(key) for key in ("used", "requested", "fair_share"))
    if isinstance(used, int) and isinstance(asked, int) and isinstance(share, int):
        return used + asked > share
    return reason.code not in _TELLS_NOTHING_MORE


def _summary(job: Job, state: str, text: str) -> str:
    match state:
        case "starting":
            return f"{job.name} starts later: {text}."
        case "impossible":
            return f"{job.name} can never run here: {text}."
        case "running":
            return f"{job.name} runs with {job.placed} of {job.wanted} pods, the rest waits: {text}."
        case _:
            return f"{job.name} waits: {text}."


def _evictions(outcome: Outcome) -> tuple[Eviction, ...]:
    cycle = outcome.last
    snapshot = cycle.snapshot
    found: list[Eviction] = []
    for each in cycle.decisions:
        if not isinstance(each, Evict):
            continue
        group = int(snapshot.pod_group[each.pod])
        found.append(
            Eviction(
                pod=snapshot.pods[each.pod].key,
                job=snapshot.groups[group].name,
                queue=snapshot.groups[group].queue,
                gpus=int(snapshot.requests[int(snapshot.pod_shape[each.pod]), GPU]),
                cause=str(each.cause),
                rule=each.rule,
                beneficiary=snapshot.groups[each.aggressor].name if each.aggressor >= 0 else "",
                moved_to=snapshot.nodes[each.moved_to].name if each.moved_to >= 0 else "",
                because=tuple(because_of(cycle, each)),
            )
        )
    return tuple(found)
