"""Comparisons of two outcomes, and of kai with the scheduler of a cluster.

A `Comparison` has the figures of both sides, the jobs with different states, and the first decision that differs. A
`Side` comes from an outcome, or from the document of an earlier result. The classes define the documents, and their
docstrings become the descriptions there.

An `Agreement` compares the scheduler of a cluster with the decision of kai on the same state, job by job, each with its
rule. A snapshot is taken after a cycle of that scheduler. The groups that it left waiting have the reason in their
conditions, which kai and KAI-Scheduler write alike, and pods that it keeps still exist. Its current binds count as
given, because bind requests are part of the state. Groups that it has written nothing about yet are not counted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from kai.answers.cases.plan_document import KINDS, Departure, comparable_slots
from kai.answers.offline.run import Outcome
from kai.answers.outcomes.overview import Job, Overview
from kai.answers.outcomes.plan import plan_of
from kai.answers.why.written import condition_reasons
from kai.api.kinds import key_of
from kai.basics.parsing import mappings_of
from kai.basics.wording import counted, first_of
from kai.facts.model.axis import GPU, GPU_UNIT
from kai.framework.verdict import Reason


@attrs.frozen(kw_only=True)
class JobState:
    """How a job ends on one side."""

    state: str
    nodes: tuple[str, ...]
    queue: str
    reason: str
    placed: int
    wanted: int


@attrs.frozen(kw_only=True)
class Metric:
    """One figure on both sides.

    None where a side lacks the figure.
    """

    name: str
    unit: str
    a: float | None
    b: float | None
    change: float | None
    better: str
    """``a``, ``b``, ``equal`` or ``unclear``."""


@attrs.frozen(kw_only=True)
class JobChange:
    """A job that ends otherwise.

    None on a side that does not have it.
    """

    job: str
    a: JobState | None
    b: JobState | None


@attrs.frozen(kw_only=True)
class Divergence:
    """The first decision that differs.

    None on a side that does not make it.
    """

    cycle: int
    decision_a: Mapping[str, Any] | None
    decision_b: Mapping[str, Any] | None


@attrs.frozen(kw_only=True, slots=False)  # documents inherit from it and a second base; only one may have slots
class Comparison:
    """What changes from one side to the other."""

    a: str
    b: str
    metrics: tuple[Metric, ...]
    jobs: tuple[JobChange, ...]
    first_divergence: Divergence | None

    @property
    def is_equal(self) -> bool:
        """Whether nothing changes."""
        return not self.jobs and self.first_divergence is None and all(each.change == 0.0 for each in self.metrics)


@attrs.frozen(kw_only=True)
class Dissent:
    """A job about which the scheduler of the cluster decided otherwise."""

    job: str
    """``namespace/name``."""
    queue: str
    theirs: str
    ours: str
    rule: str
    """The rule that allows or forbids it here."""
    their_rule: str | None
    """The code in the condition; None where that scheduler keeps the pods."""


@attrs.frozen(kw_only=True)
class Agreement:
    """What the scheduler of the cluster wrote about its jobs, beside what is decided here."""

    decided: int
    undecided: int
    """Waiting jobs without a condition yet."""
    equal: int
    differences: tuple[Dissent, ...]

    @property
    def summary(self) -> str:
        """The count in one sentence."""
        more = f"; {counted(self.undecided, 'job')} not decided there yet" if self.undecided else ""
        return f"{self.equal} of {counted(self.decided, 'decision')} as the cluster's scheduler has it{more}"


MORE, LESS, NEITHER = "more", "less", ""


@attrs.frozen(kw_only=True)
class Side:
    """One of the two sides of a comparison."""

    title: str
    jobs: Mapping[str, JobState]
    figures: Mapping[str, float]
    """By name of the metric."""
    decisions: tuple[Mapping[str, Any], ...] | None = None
    """In the order of cycles; None where a result has none."""


_METRICS: Mapping[str, tuple[str, str]] = {
    "jobs running": ("jobs", MORE),
    "jobs waiting": ("jobs", LESS),
    "pods started": ("pods", MORE),
    "pods held": ("pods", NEITHER),
    "pods evicted": ("pods", LESS),
    "pods moved": ("pods", LESS),
    "GPUs allocated": ("GPUs", MORE),
    "utilisation": ("%", MORE),
    "fairness (Jain)": ("", MORE),
}
"""By name: the unit, and which side is better. For queues it is unclear: one may gain what another loses."""


def side_of(title: str, outcome: Outcome, seen: Overview) -> Side:
    """Return an outcome as a side."""
    plan = plan_of(outcome).document()
    jobs = {
        f"{job.namespace}/{job.name}": JobState(
            state=str(job.state),
            nodes=job.nodes,
            queue=job.queue,
            reason=str(job.waiting_reason.code) if job.waiting_reason is not None else "",
            placed=job.placed,
            wanted=job.wanted,
        )
        for job in seen.jobs
    }
    queues = [
        {
            "name": queue.name,
            "leaf": queue.leaf,
            "used": queue.shares[GPU].used / GPU_UNIT,
            "fairShare": queue.shares[GPU].fair_share / GPU_UNIT,
            "requested": queue.shares[GPU].wanted / GPU_UNIT,
        }
        for queue in seen.queues
    ]
    total = seen.totals[GPU] / GPU_UNIT
    figures = {**_of_plan(plan), **_of_jobs(jobs), **_of_queues(queues, total)}
    return Side(title=title, jobs=jobs, figures=figures, decisions=_decisions(plan))


def side_of_document(title: str, document: Mapping[str, Any]) -> Side:
    """Return the document of an earlier result (`SimulationResult`, `JobList`, `Plan`) as a side."""
    jobs = {_key(each): _state(each) for each in mappings_of(document, "jobs")}
    figures: dict[str, float] = dict(_of_jobs(jobs)) if jobs else {}
    queues = [
        {"name": each.get("name"), "leaf": each.get("leaf"), **(each.get("gpus") or {})}
        for each in mappings_of(document, "queues")
    ]
    figures |= _of_queues(queues, 0.0)
    decisions = None
    if "place" in document:
        decisions = _decisions(document)
        figures |= _of_plan(document)
    return Side(title=title, jobs=jobs, figures=figures, decisions=decisions)


def compare_sides(a: Side, b: Side) -> Comparison:
    """Return the changes from one side to the other."""
    names = (*_METRICS, *sorted({*a.figures, *b.figures} - _METRICS.keys()))
    known = [name for name in names if name in a.figures or name in b.figures]
    return Comparison(
        a=a.title,
        b=b.title,
        metrics=tuple(_metric(name, a.figures.get(name), b.figures.get(name)) for name in known),
        jobs=tuple(
            JobChange(job=job, a=a.jobs.get(job), b=b.jobs.get(job))
            for job in sorted(a.jobs.keys() | b.jobs.keys())
            if a.jobs.get(job) != b.jobs.get(job)  # including queue and reason: another reason for waiting is a change
        ),
        first_divergence=_divergence(a.decisions, b.decisions),
    )


# --- Figures -------------------------------------------------------------------------------------------------------


def _metric(name: str, a: float | None, b: float | None) -> Metric:
    unit, wanted = _METRICS.get(name, ("GPUs", NEITHER))
    if a is None or b is None:
        return Metric(name=name, unit=unit, a=a, b=b, change=None, better="unclear")
    # Rounded before it is judged: sums of fractions in another order differ in the last bits, and that is no change.
    change = round(b - a, 3)
    better = "equal" if not change else "unclear"
    if change and wanted:
        better = "b" if (change > 0) == (wanted == MORE) else "a"
    return Metric(name=name, unit=unit, a=round(a, 3), b=round(b, 3), change=change, better=better)


def _of_plan(plan: Mapping[str, Any]) -> Mapping[str, float]:
    names = {"place": "pods started", "hold": "pods held", "evict": "pods evicted", "move": "pods moved"}
    return {name: float(len(plan.get(kind) or ())) for kind, name in names.items()}


def _of_jobs(jobs: Mapping[str, JobState]) -> Mapping[str, float]:
    return {
        "jobs running": float(sum(each.placed > 0 for each in jobs.values())),
        "jobs waiting": float(sum(bool(each.reason) for each in jobs.values())),
    }


def _of_queues(queues: Sequence[Mapping[str, Any]], total: float) -> Mapping[str, float]:
    leaves = [each for each in queues if each.get("leaf")]
    if not leaves:
        return {}
    used = sum(float(each.get("used") or 0) for each in leaves)
    # Only queues that want something and have a share; idle ones would make any division look uneven.
    ratios = [
        float(each["used"]) / float(each["fairShare"])
        for each in leaves
        if float(each.get("requested") or 0) > 0 and float(each.get("fairShare") or 0) > 0
    ]
    figures = {"GPUs allocated": used, "fairness (Jain)": jain(ratios)}
    if total:
        figures["utilisation"] = 100.0 * used / total
    return {**figures, **{f"queue {each['name']}": float(each.get("used") or 0) for each in leaves}}


def jain(values: Sequence[float]) -> float:
    """Return Jain's index of fairness: 1 where all values are the same, 1/n where one has all."""
    squares = sum(value * value for value in values)
    return 1.0 if not squares else sum(values) ** 2 / (len(values) * squares)


# --- Jobs and decisions --------------------------------------------------------------------------------------------


def _key(job: Mapping[str, Any]) -> str:
    return f"{job.get('namespace', '')}/{job.get('name', '')}"


def _state(job: Mapping[str, Any]) -> JobState:
    reason, pods = job.get("reason"), job.get("pods")
    counts = pods if isinstance(pods, Mapping) else {}
    placed = counts.get("placed", counts.get("running", 0))
    return JobState(
        state=str(job.get("state", "")),
        nodes=tuple(map(str, job.get("nodes") or ())),
        queue=str(job.get("queue", "")),
        reason=str(reason.get("code", "")) if isinstance(reason, Mapping) else "",
        placed=int(placed or 0),
        wanted=int(counts.get("wanted") or 0),
    )


def _decisions(plan: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    items = [{**each, "kind": kind} for kind in KINDS for each in plan.get(kind) or ()]
    return tuple(sorted(items, key=lambda each: int(each.get("cycle", 1))))


def _divergence(a: Sequence[Mapping[str, Any]] | None, b: Sequence[Mapping[str, Any]] | None) -> Divergence | None:
    """Return the first decision, by cycle and pod, that only one side makes, or that both make differently."""
    if a is None or b is None:
        return None
    mine, theirs = _by_identity(a), _by_identity(b)
    first: tuple[int, str, str] | None = None
    # By identity and not by position: one decision more at the beginning must not make all others differ.
    for key in mine.keys() | theirs.keys():
        if _compared_values(mine.get(key)) != _compared_values(theirs.get(key)) and (first is None or key < first):
            first = key
    if first is None:
        return None
    pod = (first[0], first[1])
    return Divergence(
        cycle=first[0],
        decision_a=mine.get(first) or _about(pod, a),
        decision_b=theirs.get(first) or _about(pod, b),
    )


def _by_identity(items: Iterable[Mapping[str, Any]]) -> dict[tuple[int, str, str], Mapping[str, Any]]:
    return {(int(each.get("cycle", 1)), str(each.get("pod")), str(each["kind"])): each for each in items}


def _about(pod: tuple[int, str], items: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return any decision of a side about a pod in a cycle."""
    return next((each for each in items if (int(each.get("cycle", 1)), str(each.get("pod"))) == pod), None)


def _compared_values(item: Mapping[str, Any] | None) -> object:
    if item is None:
        return None
    # Devices without the names that a run gives to those it opens: these differ between equal decisions.
    return (comparable_slots(item), *(item.get(key) for key in ("node", "aggressor", "to", "cause", "rule", "share")))


_FEW = 4


def agreement(outcome: Outcome, seen: Overview) -> Agreement | None:
    """Compare with the conditions of groups; None where there are none."""
    recorded = {
        key_of(each): condition_reasons(each)
        for each in outcome.case.objects.pod_groups
        if each.status.scheduling_conditions
    }
    if not any(recorded.values()):
        return None
    departures: dict[str, list[Departure]] = {}
    for each in plan_of(outcome).evict:
        departures.setdefault(each.job, []).append(each)
    found: list[Dissent] = []
    decided = undecided = 0
    for job in seen.jobs:
        gone = departures.get(job.key, [])
        waited = job.waiting_reason is not None or bool(job.started or job.held)
        reasons = recorded.get((job.namespace, job.name), ())
        if not waited and not gone:
            continue
        # A job that came after the last cycle of that scheduler was never
        # decided on there; it is neither equal nor different.
        if waited and not reasons and not gone:
            undecided += 1
            continue
        decided += 1
        found += _dissents(job, reasons, gone)
    return Agreement(decided=decided, undecided=undecided, equal=decided - len(found), differences=tuple(found))


def _dissents(job: Job, reasons: tuple[Reason[str], ...], gone: list[Departure]) -> Iterator[Dissent]:
    # That scheduler's pods still exist in its own snapshot, so it has not evicted them.
    if gone:
        gains = sorted({each.aggressor for each in gone if each.aggressor})
        whom = f" for {first_of(gains)}" if gains else ""
        rules = sorted({f"{each.cause}: {each.rule}" for each in gone})
        pods = counted(len(gone), "pod")
        yield Dissent(
            job=job.key,
            queue=job.queue,
            theirs=f"keeps {pods}",
            ours=f"{pods} evicted{whom}",
            rule=first_of(rules),
            their_rule=None,
        )
    elif reasons and (job.started or job.held):
        nodes = first_of(job.nodes, _FEW, " ")
        ours = f"starts on {nodes}" if job.started else f"starts on {nodes} when others have left"
        rule = "it fits, within the share of its queue" if job.started else "pods are evicted for it"
        theirs = f"waits: {reasons[0].text}" if reasons[0].text else "waits"
        yield Dissent(
            job=job.key, queue=job.queue, theirs=theirs, ours=ours, rule=rule, their_rule=reasons[0].code or None
        )
