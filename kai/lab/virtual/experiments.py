"""Experiments: one run each, described so that another process or machine can carry it out from the description alone.

Such a process calls only ``carry_out``; the result is the same wherever it runs.

A run follows from its inputs alone, so `look_at` reaches an instant of it by running it again up to there: the cluster
as a case that is decided once more, and the fate of each job by then.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from math import inf, isnan
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.answers.cases.case import Case
from kai.answers.cases.files import declare_kinds
from kai.answers.documents.explanations import Fate
from kai.answers.why.explanation import summary
from kai.api import names
from kai.basics.errors import CommandLineError, InputError
from kai.basics.parsing import is_whole
from kai.basics.progress import heard_by
from kai.basics.wording import span_text
from kai.deciding.configuration.peer import PluginEntry
from kai.deciding.configuration.profile_reading import Configuration, default_configuration
from kai.deciding.configuration.registry import Registry
from kai.lab.request import Request
from kai.lab.virtual.results.metrics import PolicyInput, result_of
from kai.lab.virtual.results.result import SimulationResult
from kai.lab.virtual.running.progress import STEPS, Progress, progress_into, show_all
from kai.lab.virtual.running.simulation import Moment, Run, Simulation, run, simulation_of
from kai.lab.virtual.scenes.file_kinds import is_trace
from kai.lab.virtual.scenes.loading import Loaded, load
from kai.lab.virtual.scenes.scene import Scene
from kai.manifests import Finding
from kai.manifests.adoption import NONE, Adoption
from kai.roles.scheduler.cycle.cycle_input import CycleInput
from kai.roles.scheduler.cycle.dump import archive
from kai.roles.scheduler.settings import SchedulerSettings

if TYPE_CHECKING:
    from kai.intake import IntakeSettings
    from kai.lab.virtual.running.records import JobRecord


_LOOK_SECONDS: Final = 0.5
"""Interval between two looks at the progress of runs."""


@attrs.frozen(kw_only=True)
class Experiment:
    """A workload, a cluster and a policy.

    Units: seconds.
    """

    workload: str
    cluster: str | None = None
    until: float = inf
    seed: int = 0
    skips_bad_rows: bool = False
    since: float | None = None
    """The instant at which a trace begins, in seconds since the epoch; None for its first arrival."""
    configuration: Configuration | None = None
    """None for the configuration of the cluster, or the default one."""
    settings: Mapping[str, Any] = attrs.field(factory=dict)
    """Intake settings of the policy, by name."""
    policy: PolicyInput = attrs.field(factory=PolicyInput)
    document: Mapping[str, Any] | None = None
    """The source document of the policy, as an archive carries it; None for the default one."""
    adoption: Adoption = NONE
    """The workloads of other schedulers to adopt."""
    scheduler: str = ""
    """The scheduler name in the policy; "" where it has none."""
    keeps_end: bool = False
    """Whether to return the cluster at the end as an archive."""
    keeps_history: bool = False
    """Whether to return the history of usage as a file."""

    @property
    def decides_as(self) -> str:
        """Return the scheduler name to decide under; "" for that of the cluster, as for traces, which name none."""
        return "" if is_trace(self.workload) else self.scheduler

    def under_policy(self, scene: Scene) -> tuple[Configuration | None, IntakeSettings]:
        """Return the configuration and the intake settings for a scene."""
        name = self.decides_as or scene.settings.scheduler_name
        configuration = self.configuration
        if configuration is not None:
            parameters = attrs.evolve(configuration.parameters, scheduler_name=name)
            configuration = attrs.evolve(configuration, parameters=parameters)
        return configuration, attrs.evolve(scene.settings, **self.settings, scheduler_name=name)

    def load(self) -> Loaded:
        """Return the scene.

        Raises: InputError that names the file and its fault.
        """
        return load(
            self.workload,
            self.cluster,
            self.seed,
            until=self.until,
            skips_bad_rows=self.skips_bad_rows,
            since=self.since,
            adoption=attrs.evolve(self.adoption, ours=self.decides_as or names.SCHEDULER_NAME),
        )


@attrs.frozen(kw_only=True)
class Done:
    """The result of an experiment, and doubts about its files."""

    result: SimulationResult
    findings: tuple[Finding, ...] = ()
    end: bytes | None = attrs.field(default=None, repr=False)
    """The cluster at the end, as an archive, where requested."""
    history: bytes | None = attrs.field(default=None, repr=False)
    """The history of usage, as a file that ``kai report`` reads, where requested."""


def carry_out(experiment: Experiment) -> Done:
    """Return the result of an experiment.

    Holds: the result is the same wherever it is carried out, except for the seconds of computing.
    Raises: InputError and ConfigError that name the fault.
    """
    # Time of the processor: the clock on the wall would include other runs on the same cores.
    began = time.process_time()
    declare_kinds(Registry.installed())
    loaded = experiment.load()
    scene = loaded.scene
    configuration, settings = experiment.under_policy(scene)
    keeps = experiment.keeps_history
    ran = run(scene, configuration, until=experiment.until, settings=settings, keeps_history=keeps)
    reasons = reasons_at_the_end(ran)
    seconds = round(time.process_time() - began, 3)
    result = result_of(ran, experiment.policy, seconds, reasons)
    document = scene.document if experiment.configuration is None else experiment.document
    end = archive_of(ran.end, document) if experiment.keeps_end else None
    history = ran.history.as_file() if keeps and ran.history is not None else None
    return Done(result=result, findings=loaded.findings, end=end, history=history)


def look_at(experiment: Experiment, at: float | None, name: str, *, is_date: bool = False) -> Reached:
    """Return the run of an experiment at an instant, or at its end, as ``reach`` does.

    Raises: InputError and ConfigError that name the fault, and as ``reach``.
    """
    declare_kinds(Registry.installed())
    scene = experiment.load().scene
    configuration, settings = experiment.under_policy(scene)
    return reach(scene, configuration, settings, experiment.until, at, name, is_date=is_date)


def carry_out_all(experiments: Sequence[Experiment], most: int | None = None) -> tuple[Done, ...]:
    """Return the results of experiments, in their order; they run in parallel, one on each core.

    Raises: as ``carry_out``.
    """
    workers = min(len(experiments), most or len(os.sched_getaffinity(0)))
    if workers <= 1:
        return tuple(map(carry_out, experiments))
    # A fork would copy locks that other threads hold, and nothing releases them in the child.
    context = multiprocessing.get_context("spawn")
    # Without a lock: each worker writes its own number only, and a torn picture of progress harms nothing.
    shared = context.RawArray("i", len(experiments))
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_share_progress, initargs=(shared,)) as pool:
        others = set(multiprocessing.active_children())
        try:
            with _deaf_to_interrupts():
                futures = [pool.submit(_carry_out_reporting, at, each) for at, each in enumerate(experiments)]
            waiting = set(futures)
            while waiting:
                show_all(shared, workers)
                ended, waiting = wait(waiting, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
                # The first error ends all: the runs are parts of one question, and the rest would take minutes in vain.
                if any(each.exception() is not None for each in ended):
                    break
        except KeyboardInterrupt:
            # On Ctrl-C the pool would wait for its workers, which ignore the signal.
            for worker in set(multiprocessing.active_children()) - others:
                worker.terminate()
            raise
        for each in waiting:
            each.cancel()
    failed = [error for each in futures if not each.cancelled() and (error := each.exception()) is not None]
    if failed:
        raise failed[0]
    show_all(shared, workers)
    return tuple(each.result() for each in futures)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Start child processes that never see Ctrl-C, not even while starting; here it is delivered at the end."""
    resource_tracker.ensure_running()  # started lazily, it would unblock signals in the middle of the block below
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_PROGRESS: MutableSequence[int] = []
"""In a worker process: shared memory with the progress of each run."""


def _share_progress(shared: MutableSequence[int]) -> None:
    global _PROGRESS  # noqa: PLW0603 - shared memory can be handed to a process only at its start
    _PROGRESS = shared


def _carry_out_reporting(at: int, experiment: Experiment) -> Done:
    with heard_by(progress_into(_PROGRESS, at)):
        done = carry_out(experiment)
    _PROGRESS[at] = STEPS
    return done


def with_value(experiment: Experiment, path: str, value: object) -> Experiment:
    """Return an experiment with another value at a path: seed, parameters.NAME or plugins.PLUGIN.OPTION.

    Raises: CommandLineError for a path that leads nowhere, ConfigError for an option that no plugin has.
    """
    shown = f"{path}={value}"
    if path == "seed":
        if not is_whole(value) or value < 0:
            wanted = "a whole number of 0 or more"
            raise CommandLineError.about("command line", "--sweep seed", found=value, wanted=wanted)
        policy = attrs.evolve(experiment.policy, name=shown)
        return attrs.evolve(experiment, seed=value, policy=policy)
    known = experiment.configuration or default_configuration()
    head, _, rest = path.partition(".")
    plugin, _, option = rest.partition(".")
    if head == "parameters" and rest in attrs.fields_dict(type(known.parameters)):
        named: dict[str, Any] = {rest: value}
        changed = attrs.evolve(known, parameters=attrs.evolve(known.parameters, **named))
    elif head == "plugins" and plugin and option:
        changed = attrs.evolve(known, plugins=_with_option(known.plugins, plugin, option, value))
    else:
        wanted = "seed, parameters.NAME or plugins.PLUGIN.OPTION"
        raise CommandLineError.about("command line", "--sweep", found=path, wanted=wanted)
    before = experiment.policy
    name = shown if before.name == "default" else f"{before.name} {shown}"
    policy = attrs.evolve(before, name=name, changes=(*before.changes, shown))
    return attrs.evolve(experiment, configuration=changed, policy=policy)


def _with_option(plugins: Sequence[PluginEntry], name: str, option: str, value: object) -> tuple[PluginEntry, ...]:
    """Return plugins with an option set; a plugin that is missing is appended."""
    entries = {entry.name: entry for entry in plugins}
    known = entries.get(name, PluginEntry(name))
    # The option is given here now, so an error about it must not name the key of the file that it came from.
    elsewhere = {other: key for other, key in known.elsewhere.items() if other != option}
    entries[name] = attrs.evolve(known, options={**known.options, option: value}, elsewhere=elsewhere)
    return tuple(entries.values())


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
        (job.namespace, job.name): (str(job.waiting_reason.code), summary(job, job.waiting_reason))
        for job in jobs
        if job.waiting_reason is not None and (job.namespace, job.name) in never
    }
