"""What the scheduler of a cluster did, beside what is decided here on the same state: job by job, each with its rule.

A snapshot is taken after a cycle of that scheduler. Which groups it left waiting, and why, stands in their conditions,
which kai and KAI-Scheduler write alike; pods that it keeps are still there. What it binds at the moment is taken as it
is: bind requests are a part of the state. A group about which it has written nothing yet is not counted.
"""

from collections.abc import Iterator

from kai.api.kinds import key_of
from kai.explain.phrases import Words
from kai.simulation.cases.plan_document import Departure
from kai.simulation.comparing.documents import Agreement, Dissent
from kai.simulation.deciding.run import Outcome
from kai.simulation.explaining.condition_reasons import reasons_told
from kai.simulation.outcomes.overview import Job, Overview
from kai.simulation.outcomes.plan import plan_of
from kai.wording import counted, first_of

_FEW = 4


def agreement(outcome: Outcome, seen: Overview) -> Agreement | None:
    """Compare with what stands in conditions; None where nothing does."""
    told = {
        key_of(each): reasons_told(each)
        for each in outcome.case.objects.pod_groups
        if each.status.scheduling_conditions
    }
    if not any(told.values()):
        return None
    departures: dict[str, list[Departure]] = {}
    for each in plan_of(outcome).evict:
        departures.setdefault(each.job, []).append(each)
    found: list[Dissent] = []
    decided = undecided = 0
    for job in seen.jobs:
        gone = departures.get(job.key, [])
        waited = job.words is not None or bool(job.started or job.held)
        reasons = told.get((job.namespace, job.name), ())
        if not waited and not gone:
            continue
        if waited and not reasons and not gone:
            undecided += 1
            continue
        decided += 1
        found += _dissents(job, reasons, gone)
    return Agreement(decided=decided, undecided=undecided, equal=decided - len(found), differences=tuple(found))


def _dissents(job: Job, reasons: tuple[Words, ...], gone: list[Departure]) -> Iterator[Dissent]:
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
