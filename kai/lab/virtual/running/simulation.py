"""One run as a discrete-event simulation: events change the cluster, and cycles decide. Start reading at ``run``.

    calendar ─ the next instant: arrivals, ends, crashes, nodes, pods that are gone
       │
       └→ changed and pods wait? ─ snapshot (intake) ─ cycle (engine) ─ binds and evictions carried out ─ calendar

The cycle is the scheduler's own; ``Rhythm`` says how soon it follows a change.
"""

from __future__ import annotations

import hashlib
from functools import partial
from math import inf, isnan
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from kai.answers.offline.cluster_reaction import Disruptions, device_of
from kai.answers.offline.run import Cycle, settle_on
from kai.api import names
from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.quota_windows import AHEAD_SECONDS
from kai.api.fields import EMPTY
from kai.api.kinds import key_of
from kai.basics.errors import InputError
from kai.deciding.configuration.profile_reading import Configuration, default_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.deciding.engine.cycle import CycleReport, Profile, holds_until, run_cycle
from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.placement import Past
from kai.facts.state.facts import next_quota_change
from kai.framework.decisions import Bind, Decision, Evict, Recorder
from kai.history.database import MEMORY
from kai.history.facts import BY_ACTION, Ended
from kai.intake import Intake, IntakeSettings, take_snapshot
from kai.lab.virtual.running.embedded_cluster import EmbeddedCluster
from kai.lab.virtual.running.history import RunHistory
from kai.lab.virtual.running.live_jobs import Calendar
from kai.lab.virtual.running.meters import Meters
from kai.lab.virtual.running.node_events import Nodes
from kai.lab.virtual.running.progress import Progress
from kai.lab.virtual.running.records import DecisionLines, Eviction, Records, Stay
from kai.lab.virtual.running.workloads import Workloads
from kai.lab.virtual.scenes.scene import Scene
from kai.roles.scheduler.feedback.memories import RecentEvictions
from kai.roles.scheduler.feedback.moved_pods import MovedPods
from kai.roles.scheduler.wakeups import Rhythm

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kai.facts.state.snapshot import Snapshot
    from kai.lab.virtual.scenes.job_plans import JobPlan

AFTER_DEADLINE: Final = 2e-3
"""Seconds from a deadline to its cycle: more than the core looks early at deadlines, see `kai.deciding.engine.host`."""
LOOK_AGAIN_SECONDS: Final = 60.0
"""Interval after which a cycle is repeated if it does not say how long its answers hold."""
_GPU: Final = 2
"""The column of GPUs among the resources of queues."""


@attrs.frozen(kw_only=True, eq=False)
class Run:
    """The recorded result of one run."""

    scene: Scene
    horizon: float
    records: Records
    cycles: int
    decisions: int
    digest: str
    """Hash of all decisions, in their order."""
    first: tuple[tuple[float, int, str], ...]
    """The first decisions of the run, each with its instant and its cycle."""
    node_failures: int
    gpus: float
    """GPUs of all nodes at the start."""
    staying: tuple[Stay, ...]
    """Stays of pods that are present at the horizon."""
    end: Moment
    """The cluster at the horizon."""
    history: RunHistory | None = None
    """Who held what up to the horizon; None where nothing asked for it."""


@attrs.frozen(kw_only=True, eq=False)
class Moment:
    """The input of a cycle at an instant of a run, and the configuration that would decide."""

    objects: ClusterObjects
    now: float
    """In seconds since the epoch."""
    cycle: int
    past: Past
    configuration: Configuration
    settings: IntakeSettings


def run(
    scene: Scene,
    configuration: Configuration | None = None,
    *,
    until: float = inf,
    settings: IntakeSettings | None = None,
    keeps_history: bool = False,
) -> Run:
    """Return the run of a scene up to an instant, or until nothing more can happen.

    With ``keeps_history`` it has a history of usage, whether or not the configuration or a budget asks for it.

    Holds: the same scene and configuration give the same run, bit for bit.
    Raises: ConfigError for names and options that cannot be used, InputError for objects that cannot.
    """
    if until == inf and (scene.faults or scene.autoscale):
        raise InputError(
            f"{scene.inputs.cluster}: faults by chance and autoscaling never end; say how long with --until"
        )
    return simulation_of(scene, configuration, until=until, settings=settings, keeps_history=keeps_history).run()


def simulation_of(
    scene: Scene,
    configuration: Configuration | None,
    *,
    until: float = inf,
    settings: IntakeSettings | None = None,
    keeps_history: bool = False,
) -> Simulation:
    """Return a run before its first event, under ``configuration``, else that of the scene, else the default one.

    Raises: ConfigError for names and options that cannot be used.
    """
    chosen = configuration or scene.configuration or default_configuration()
    return Simulation(
        scene,
        make_profile(chosen),
        settings or scene.settings,
        until,
        configuration=chosen,
        keeps_history=keeps_history,
    )


class Simulation:
    """A run in progress. `step` moves it to its next event."""

    def __init__(
        self,
        scene: Scene,
        profile: Profile,
        settings: IntakeSettings,
        until: float,
        rhythm: Rhythm | None = None,
        *,
        configuration: Configuration | None = None,
        keeps_history: bool = False,
        history_at: str = MEMORY,
    ) -> None:
        self._scene, self._profile, self._until = scene, profile, until
        self._settings, self._configuration = settings, configuration or default_configuration()
        self._rhythm = rhythm or Rhythm()
        self._haste, self._calendar = self._rhythm.haste(), Calendar()
        self.cluster = EmbeddedCluster.of(scene.objects, scene.began, _claimable(scene, settings))
        parents = {queue.spec.parent_queue for queue in scene.objects.queues}
        leaves = sorted(each.metadata.name for each in scene.objects.queues if each.metadata.name not in parents)
        self.records = Records(Meters(leaves))
        self.workloads = Workloads(self._calendar, self.cluster, self.records)
        self._nodes = Nodes(self._calendar, self.cluster, self.workloads, self.records)
        self.history = RunHistory.of(self._configuration, self.cluster, settings, keeps=keeps_history, path=history_at)
        """Who held what in this run; None where nothing asks for it."""
        self._intake = Intake(settings)
        self._awaited: tuple[str, ...] = ()
        self._evicted = RecentEvictions()
        self._moved = MovedPods()
        self._stale: set[tuple[str, str, str]] = set()
        """Namespace, name and annotation of each group that is stamped as being below a minimum."""
        self._next_cycle = 0.0
        """The earliest instant of the next cycle."""
        self._changed = inf
        """The first change after the last cycle."""
        self._came = inf
        """The first arrival of an independent pod, which starts without others, after the last cycle."""
        self._wake = self._edge = inf
        """When the passing of time alone may change the decision, and when a quota changes by the clock."""
        self._decided, self._patience = 0.0, _patience_of(scene)  # when a cycle decided something last
        self._cycles = self._decisions = 0
        self._digest = hashlib.sha256()
        self._gpus = 0.0
        """GPUs of all nodes at the start."""
        self._log = DecisionLines()
        self.arriving: JobPlan | None = None
        """The job that arrives next."""
        self.last: Cycle | None = None
        """The last decided cycle."""
        self.last_saw = ClusterObjects()
        """The objects that it decided on."""

    # --- The run -----------------------------------------------------------------------------------------------------

    def run(self) -> Run:
        """Run up to the horizon."""
        self.begin()
        self.advance(inf, Progress(self._scene, self._until))
        return self.finish()

    def begin(self) -> None:
        """Enter the events of the scene into the calendar."""
        if self.history is not None:
            self.workloads.note_end = self.history.recording.note_end
        self._nodes.begin(self._scene)
        self._gpus = self.cluster.gpus
        arrivals = iter(self._scene.arrivals())
        self._expect(next(arrivals, None), arrivals)

    @property
    def now(self) -> float:
        """The instant up to which all events have happened."""
        return self._calendar.now

    @property
    def next(self) -> float:
        """The instant of the next event; infinity if there is none up to the horizon."""
        at = min(self._calendar.next, self._due)
        return at if at <= self._until else inf

    def step(self) -> None:
        """Process the events of the next instant, and run a cycle if one is due."""
        self.happen()
        self.decide()

    def happen(self) -> None:
        """Process the events of the next instant, without deciding."""
        at = self.next
        self._calendar.advance(at)
        while self._calendar.next <= at:
            self._calendar.pop()()  # it may schedule further events for this instant, which happen too
        self._record()
        self._note_change()

    def _record(self) -> None:
        if self.history is not None:
            self.history.look(self.cluster.instant(self._calendar.now))

    def decide(self) -> None:
        """Run a cycle if one is due by now."""
        if self._due <= self._calendar.now:
            self._cycle()
            self._record()
            self._note_change()

    def finish(self, horizon: float | None = None) -> Run:
        """Return the records up to the horizon; by default up to the end of the run."""
        if horizon is None:
            horizon = self._until if self._until < inf else self._calendar.now
        self.records.meters.advance(horizon)
        if self.history is not None:
            self.history.look(self.cluster.instant(horizon))  # what is held then was held up to then
        return Run(
            scene=self._scene,
            horizon=horizon,
            records=self.records,
            cycles=self._cycles,
            decisions=self._decisions,
            digest=self._digest.hexdigest(),
            first=self._log.lines,
            node_failures=self._nodes.failures,
            gpus=self._gpus,
            staying=tuple(
                Stay(job=each.slot.task.job.number, node=each.node, start=each.since, end=horizon, gpus=each.gpus)
                for each in self.workloads.lives.values()
                if each.node
            ),
            end=self.moment(horizon),
            history=self.history,
        )

    def advance(self, until: float, progress: Progress) -> None:
        """Process all events up to an instant, and report progress."""
        while (at := self.next) <= until and at < inf:
            self.step()
            progress.show(at, self.records)
        progress.finish()

    def moment(self, at: float) -> Moment:
        """Return the input of a cycle at an instant up to which all events have happened."""
        objects, past = self._given(at)
        return Moment(
            objects=objects,
            now=self.cluster.instant(at),
            cycle=self._cycles,
            past=past,
            configuration=self._configuration,
            settings=self._settings,
        )

    @property
    def to_come(self) -> int:
        """Number of jobs that have not arrived yet."""
        return max(0, self._scene.jobs - len(self.records.jobs))

    def _expect(self, plan: JobPlan | None, rest: Iterator[JobPlan]) -> None:
        """Enter only the next arrival, so that a trace is read lazily."""
        self.arriving = plan
        if plan is not None:

            def arrive() -> None:
                self.workloads.arrive(plan)
                self._expect(next(rest, None), rest)

            self._calendar.enter(plan.arrival, arrive)

    @property
    def _due(self) -> float:
        """When the next cycle is due; infinity if it could decide nothing.

        While nothing waits, only the edge of a window may lead to a decision: it may evict.
        """
        if not self.workloads.waiting and not self._stale:
            return max(self._edge, self._next_cycle) if self.workloads.lives else inf
        if self.workloads.is_changed:
            return max(min(self._gathered, self._at_once), self._calendar.now)
        return max(self._wake, self._next_cycle)

    @property
    def _gathered(self) -> float:
        """When the debounced cycle after a change is due."""
        return max(self._next_cycle, self._changed + self._rhythm.after)

    @property
    def _at_once(self) -> float:
        """When the immediate cycle for an independent pod is due; infinity for none."""
        return self._haste.due(self._came) if self._rhythm.hurries else inf

    def _note_change(self) -> None:
        if not self.workloads.waiting and not self._stale:  # a cycle would decide nothing, so none is due
            self._changed = self._came = inf
        elif self.workloads.is_changed:
            self._changed = min(self._changed, self._calendar.now)
            if self.workloads.has_independent_pods:
                self._came = min(self._came, self._calendar.now)

    def _cycle(self) -> None:
        now = self._calendar.now
        self._cycles += 1
        if self._at_once <= now < self._gathered:
            self._haste.take(now)
        # Reset before the decisions are carried out: these change the cluster, and the next cycle must see that.
        self.workloads.is_changed = self.workloads.has_independent_pods = False
        self._changed = self._came = inf
        objects, past = self._given(now)
        snapshot = self._intake.take(objects, self.cluster.instant(now), past, revision=self._cycles)
        settle_on(snapshot, self._profile, self.to_come)
        sink = Recorder()
        report = run_cycle(snapshot, self._profile, sink)
        # No disruption controller runs here to update the status of budgets, so it is computed from the pods.
        disruptions = Disruptions.of(objects, is_first=False)
        while disruptions is not None and (sees := disruptions.sparing(snapshot, sink.statements)) is not None:
            sink = Recorder()
            report = run_cycle(sees, self._profile, sink)
        self._awaited = report.awaited
        self._next_cycle = now + self._rhythm.apart
        self._share(snapshot, report)
        statements = [each for each in sink.statements if not _is_rejected(each, snapshot)]
        decisions = [decision for statement in statements for decision in statement]
        self.last = Cycle(number=self._cycles, snapshot=snapshot, report=report, decisions=tuple(decisions))
        self.last_saw = objects
        self._wake = self._next_look(snapshot, is_quiet=not decisions)
        for each in decisions:
            group = int(snapshot.pod_group[each.pod])
            if isinstance(each, Evict) and group >= 0:
                self._evicted.note(snapshot.pods[each.pod].uid, snapshot.groups[group].queue, each.gpus, now)
        for statement in statements:
            self._note_moved(statement, snapshot)
        carried_out = [decision for decision in decisions if self._carry_out(decision, snapshot)]
        self._stamp(snapshot, report, carried_out)
        self._nodes.scale()

    def _given(self, now: float) -> tuple[ClusterObjects, Past]:
        """Return the input of a cycle: the cluster, and the history."""
        objects = self.cluster.objects()
        self._moved.look(objects, now)
        past = Past(
            usage=EMPTY if self.history is None else self.history.usage(self.cluster.instant(now)),
            spent=None if self.history is None else self.history.spent(self.cluster.instant(now)),
            awaited=self._moved.served_first(self._awaited),
            protected=self._moved.spared(()),
            evicted=self._evicted.current(now) if self._profile.parameters.caps_evictions_by_the_hour else (),
        )
        return self._moved.shown(objects), past

    def _note_moved(self, statement: tuple[Decision, ...], snapshot: Snapshot) -> None:
        """Keep the places of the pods that a statement moves; a device gets the name that a bind would give it."""
        if any(isinstance(each, Evict) and each.moved_to >= 0 for each in statement):
            facts = [snapshot.pods[each.pod] for each in statement]
            lives = [self.workloads.lives.get((pod.namespace, pod.name)) for pod in facts]
            pods = [None if life is None else life.pod for life in lives]
            device = partial(device_of, cycle=self._cycles)
            self._moved.note(snapshot, statement, pods, device, self._calendar.now)

    def _next_look(self, snapshot: Snapshot, *, is_quiet: bool) -> float:
        """Return when the passing of time alone may change the decision."""
        now, moved = self._calendar.now, self._moved.next_due()
        self._edge = next_quota_change(snapshot) - self.cluster.began
        if not is_quiet:
            self._decided = now
            return self._edge if moved is None else min(moved, self._edge)
        if not len(self._calendar) and self._edge > self._decided + self._patience:
            # Windows come again for ever: a week without an event and without a decision is as all that follow it.
            # So do the periods of budgets, whose longest is a year.
            self._edge = inf
            return inf
        known = holds_until(snapshot) - self.cluster.began
        due = self._evicted.next_due() if self._profile.parameters.caps_evictions_by_the_hour else None
        known = min(known, inf if due is None else due, inf if moved is None else moved)
        if known <= self._edge <= known + AFTER_DEADLINE:
            known = self._edge  # nothing rounds an edge, so its cycle need not be early
        if self.history is not None:
            known = min(known, self.history.next_read - self.cluster.began)
        if known > now:
            return known
        if known > now - AFTER_DEADLINE:  # the core answers a little early, before the deadline
            return known + AFTER_DEADLINE
        return now + LOOK_AGAIN_SECONDS if len(self._calendar) else inf

    def _share(self, snapshot: Snapshot, report: CycleReport) -> None:
        self.records.meters.advance(self._calendar.now)
        fair = (report.fair_share[:, _GPU] / GPU_UNIT).tolist()
        self.records.meters.share(dict(zip([queue.name for queue in snapshot.queues], fair, strict=True)))

    def _carry_out(self, decision: Decision, snapshot: Snapshot) -> bool:
        """Carry out a decision; return whether the pod belongs to a job, and is not a stand-in."""
        pod = snapshot.pods[decision.pod]
        life = self.workloads.lives.get((pod.namespace, pod.name))
        if life is None:
            return False
        now, job = self._calendar.now, life.slot.task.job
        node = snapshot.nodes[int(snapshot.pod_node[decision.pod]) if isinstance(decision, Evict) else decision.node]
        self._decisions += 1
        line = self._log.line(decision, snapshot, (now, self._cycles), f"{pod.key} {node.name}")
        self._digest.update(line.encode())
        if isinstance(decision, Bind):
            self.workloads.bind(life, decision, snapshot, self._cycles)
        elif isinstance(decision, Evict):
            self._evict(decision, snapshot, node.name)
        else:
            self.records.promise(job.number, now)
        return True

    def _evict(self, decision: Evict, snapshot: Snapshot, node: str) -> None:
        pod = snapshot.pods[decision.pod]
        life = self.workloads.lives[pod.namespace, pod.name]
        gains = -1
        if decision.aggressor >= 0:
            group = snapshot.groups[decision.aggressor]
            known = self.workloads.jobs.get((group.namespace, group.name))
            gains = -1 if known is None else known.number
        self.records.evict(
            Eviction(
                time=self._calendar.now,
                job=life.slot.task.job.number,
                pod=pod.key,
                node=node,
                gpus=life.gpus,
                cause=decision.cause.name,
                rule=decision.rule,
                aggressor=gains,
            )
        )
        self.workloads.evict(life, BY_ACTION.get(decision.cause.name, Ended.EVICTED))

    def _stamp(self, snapshot: Snapshot, report: CycleReport, decisions: list[Decision]) -> None:
        """Write on groups when they started, lost pods or became stale, as the service does after a cycle."""
        starts = {int(snapshot.pod_group[each.pod]) for each in decisions if isinstance(each, Bind)}
        losses = {int(snapshot.pod_group[each.pod]) for each in decisions if isinstance(each, Evict)}
        for rows, key, column in (
            (starts, names.LAST_START, report.last_start),
            (losses, names.LAST_EVICTION, report.last_eviction),
        ):
            for row in sorted(rows - {-1}):
                self._write(snapshot, row, key, float(column[row]))
        found: dict[tuple[str, str, str], int] = {}
        for key, since in ((names.STALE_SINCE, report.stale_since), (names.PARTIAL_SINCE, report.partial_since)):
            for row in np.flatnonzero(~np.isnan(since)).tolist():
                place = (snapshot.groups[row].namespace, snapshot.groups[row].name, key)
                found[place] = row
                if place not in self._stale:
                    self._write(snapshot, row, key, float(since[row]))
        for namespace, name, key in sorted(self._stale - found.keys()):
            job = self.workloads.jobs.get((namespace, name))
            if job is not None and key_of(job.group) == (namespace, name):
                self.workloads.stamp(job, key, float("nan"))
        self._stale = set(found)

    def _write(self, snapshot: Snapshot, row: int, key: str, instant: float) -> None:
        group = snapshot.groups[row]
        job = self.workloads.jobs.get((group.namespace, group.name))
        if job is not None and key_of(job.group) == (group.namespace, group.name) and not isnan(instant):
            self.workloads.stamp(job, key, instant)


def _patience_of(scene: Scene) -> float:
    """Return for how long edges of the clock are awaited while nothing happens, in seconds."""
    return 366 * 86_400.0 if any(each.spec.budgets for each in scene.objects.queues) else AHEAD_SECONDS


def _claimable(scene: Scene, settings: IntakeSettings) -> Mapping[str, int]:
    """Return the claimable GPUs of each node, as cycles count them."""
    if not scene.objects.resource_slices:
        return {}
    nodes = take_snapshot(scene.objects, scene.began, settings).nodes
    return {node.name: node.dra_gpus for node in nodes if node.dra_gpus}


def _is_rejected(statement: tuple[Decision, ...], snapshot: Snapshot) -> bool:
    """Return whether a statement contains a stand-in for another pod, which the committer rejects."""
    return any(snapshot.pods[each.pod].is_stand_in for each in statement)
