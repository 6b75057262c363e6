"""What the scheduler of a cluster did, beside what is decided here on the same state: job by job, each with its rule.

A snapshot is taken after a cycle of that scheduler. Which groups it left waiting, and why, stands in their conditions,
which kai and KAI-Scheduler write alike; pods that it keeps are still there. What it binds at the moment is taken as it
is: bind requests are a part of the state. A group about which it has written nothing yet is not counted.
"""

from collections.abc import Iterator
from typing import Any

import attrs

from kai.explain.phrases import Words
from kai.simulation.cases.plan_document import Departure
from kai.simulation.deciding.run import Outcome
from kai.simulation.explaining.condition_reasons import reasons_told
from kai.simulation.outcomes.overview import Job, Overview
from kai.simulation.outcomes.plan import plan_of
from kai.wording import counted, first_of

_FEW = 4


@attrs.frozen(kw_only=True)
class Dissent:
    """A job about which that scheduler decided otherwise."""

    job: str
    """``namespace/name``."""
    queue: str
    theirs: str
    ours: str
    rule: str
    """What allows or forbids it here."""
    their_rule: str
    """The code that stands in the condition; "" where they keep pods."""

    def document(self) -> dict[str, Any]:
        """Return the same as plain values."""
        return {
            "job": self.job,
            "queue": self.queue,
            "theirs": self.theirs,
            "ours": self.ours,
            "rule": self.rule,
            "theirRule": self.their_rule or None,
        }


@attrs.frozen(kw_only=True)
class Agreement:
    """How many jobs were decided about, and which of them differ."""

    decided: int
    undecided: int
    """Jobs that wait and about which nothing was written yet."""
    dissents: tuple[Dissent, ...]

    @property
    def summary(self) -> str:
        """The count in one sentence."""
        more = f"; {counted(self.undecided, 'job')} not decided there yet" if self.undecided else ""
        equal = self.decided - len(self.dissents)
        return f"{equal} of {counted(self.decided, 'decision')} as the cluster's scheduler has it{more}"

    def document(self) -> dict[str, Any]:
        """Return the same as plain values."""
        return {
            "decided": self.decided,
            "undecided": self.undecided,
            "equal": self.decided - len(self.dissents),
            "differences": [each.document() for each in self.dissents],
        }


def agreement(outcome: Outcome, seen: Overview) -> Agreement | None:
    """Compare with what stands in conditions; None where nothing does."""
    told = {
        (each.metadata.namespace, each.metadata.name): reasons_told(each)
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
    return Agreement(decided=decided, undecided=undecided, dissents=tuple(found))


def _dissents(job: Job, reasons: tuple[Words, ...], gone: list[Departure]) -> Iterator[Dissent]:
    if gone:
        gains = sorted({each.aggressor for each in gone if each.aggressor})
        whom = f" for {first_of(gains)}" if gains else ""
        rules = sorted({f"{each.cause}: {each.rule}" for each in gone})
        pods = counted(len(gone), "pod")
        yield _dissent(job, theirs=f"keeps {pods}", ours=f"{pods} evicted{whom}", rule=first_of(rules), their_rule="")
    elif reasons and (job.started or job.held):
        nodes = first_of(job.nodes, _FEW, " ")
        ours = f"starts on {nodes}" if job.started else f"starts on {nodes} when others have left"
        rule = "it fits, within the share of its queue" if job.started else "pods are evicted for it"
        theirs = f"waits: {reasons[0].text}" if reasons[0].text else "waits"
        yield _dissent(job, theirs=theirs, ours=ours, rule=rule, their_rule=reasons[0].code)


def _dissent(job: Job, **said: str) -> Dissent:
    return Dissent(job=job.key, queue=job.queue, **said)
