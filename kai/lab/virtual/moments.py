"""A run at one instant: the cluster as a case that is decided once more, and the fate of each job by then.

A run follows from its inputs alone, so an instant of it is reached by running it again up to there.
"""

from __future__ import annotations

from math import inf, isnan
from typing import TYPE_CHECKING

import attrs

from kai.answers.cases.case import Case
from kai.answers.documents.explanations import Fate
from kai.answers.why.explanation import summary
from kai.basics.errors import InputError
from kai.basics.wording import span_text
from kai.lab.request import Request
from kai.lab.virtual.running.progress import Progress
from kai.lab.virtual.running.simulation import Moment, Run, Simulation, simulation_of
from kai.lab.virtual.scenes.scene import Scene
from kai.roles.scheduler.cycle.cycle_input import CycleInput
from kai.roles.scheduler.cycle.dump import archive
from kai.roles.scheduler.settings import SchedulerSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kai.deciding.configuration.profile_reading import Configuration
    from kai.intake import IntakeSettings
    from kai.lab.virtual.running.records import JobRecord


@attrs.frozen(kw_only=True, eq=False)
class Reached:
    """A run up to an instant."""

    case: Case
    scene: Scene
    simulation: Simulation
    at: float

    def fate(self, name: str) -> Fate | None:
        """Return the fate of the job with a name, or with an owner of that name; None where the run has no such job."""
        for record in self.simulation.records.jobs:
            if name in {record.name, record.owner, f"{record.namespace}/{record.name}"}:
                return _over(record)
        for plan in self.scene.arrivals():
            if name in {plan.name, plan.owner, plan.key}:
                wait = span_text(plan.arrival - self.at)
                return Fate(
                    namespace=plan.group.metadata.namespace,
                    name=plan.name,
                    queue=plan.queue,
                    state="to come",
                    pods=sum(len(task.pods) for task in plan.tasks),
                    gpus=sum(task.gpus for task in plan.tasks),
                    summary=f"{plan.name} is not there yet: it arrives at T+{span_text(plan.arrival)}, {wait} later.",
                )
        return None


def _over(record: JobRecord) -> Fate:
    state = "waiting" if record.ending is None else str(record.ending)
    parts = [f"it arrived at T+{span_text(record.arrival)}"]
    if isnan(record.start):
        parts.append("never started")
    else:
        parts.append(f"started at T+{span_text(record.start)}")
    text = f"{record.name} has no pods: {', '.join(parts)}."
    if record.ending is not None:
        text = f"{record.name} is over: {', '.join(parts)} and ended at T+{span_text(record.end)} ({state})."
    return Fate(
        namespace=record.namespace,
        name=record.name,
        queue=record.queue,
        state=state,
        pods=record.pods,
        gpus=record.gpus,
        summary=text,
    )


def reach(
    scene: Scene,
    configuration: Configuration | None,
    settings: IntakeSettings,
    horizon: float,
    at: float | None,
    name: str,
    *,
    is_date: bool = False,
) -> Reached:
    """Return a run at an instant, or at its end. Cost: that of the run up to there.

    ``at`` is in seconds from the start, or since the epoch where it ``is_date``.

    Raises: InputError for an instant before the start or after the end, and as the run.
    """
    if at is not None and is_date:
        at -= scene.began if scene.starts is None else scene.starts
        if at < 0:
            raise InputError(f"{name}: found a time before the run, expected one of the run")
    simulation = simulation_of(scene, configuration, until=horizon, settings=settings)
    simulation.begin()
    until = horizon if at is None else min(at, horizon)
    simulation.advance(until, Progress(scene, until))
    is_over = simulation.next == inf
    end = simulation.now if horizon == inf else horizon
    if at is not None and is_over and at > end:
        raise InputError(f"{name}: found {span_text(at)}, expected a time of the run, which ended at {span_text(end)}")
    reached = end if at is None else at
    return Reached(case=case_of(simulation.moment(reached), name), scene=scene, simulation=simulation, at=reached)


def case_of(moment: Moment, name: str) -> Case:
    """Return an instant of a run as a case."""
    return Case(
        name=name,
        title=name,
        objects=moment.objects,
        now=moment.now,
        configuration=moment.configuration,
        settings=moment.settings,
        past=moment.past,
    )


def archive_of(moment: Moment, document: Mapping[str, object] | None = None) -> bytes:
    """Return an instant of a run as an archive for other commands, with the source document of its configuration."""
    given = CycleInput(objects=moment.objects, now=moment.now, cycle=moment.cycle, past=moment.past)
    settings = SchedulerSettings(configuration=moment.configuration, intake=moment.settings, document=document)
    return archive(given, settings)


def reasons_at_the_end(run: Run) -> Mapping[tuple[str, str], tuple[str, str]]:
    """Return why jobs never started: a code and a sentence by namespace and name. Cost: a cycle, if there are any.

    Holds: a job whose queue is missing or runs no jobs has a reason as well.
    """
    never = {(each.namespace, each.name) for each in run.records.jobs if each.ending is None and isnan(each.start)}
    if not never:
        return {}
    seen = Request().decide(case_of(run.end, run.scene.title)).overview
    jobs = () if seen is None else seen.jobs
    return {
        (job.namespace, job.name): (job.words.code, summary(job, job.words))
        for job in jobs
        if job.words is not None and (job.namespace, job.name) in never
    }
