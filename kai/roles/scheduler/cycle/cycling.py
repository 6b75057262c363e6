"""Runs a cycle in a worker thread: objects in, a stream of decisions out, a report at the end.

The thread never blocks the event loop. It puts decisions into a deque, and wakes the loop once for all that follow. A
failed cycle is a value like any other, and its input is written to a file. The object that it failed at is set aside
(`kai.roles.scheduler.cycle.suspects`), and the cycle is repeated without it. If a plugin fails again and again, the
fault is the plugin's (`kai.roles.scheduler.cycle.faults`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np
import structlog

from kai.api.cluster_objects import ClusterObjects
from kai.api.fields import EMPTY
from kai.api.memory import growing, paused, settle
from kai.basics.errors import PluginError, error_text
from kai.basics.kubernetes_version import NEWEST, KubernetesVersion
from kai.cluster.process.tracing import Taken
from kai.deciding.engine.cycle import CycleReport, Profile, run_cycle
from kai.deciding.engine.host import Phase
from kai.deciding.explain.declared import Declared
from kai.facts.model.placement import Past
from kai.facts.model.pod import Status
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Decision, Evict
from kai.framework.hooks import OnFailure
from kai.intake import Intake, declared_queues
from kai.intake.aside import Suspect, without
from kai.intake.budgets import budget_statuses
from kai.roles.scheduler.cycle.cycle_input import CycleInput, Spent, Timed
from kai.roles.scheduler.cycle.dump import write_archive
from kai.roles.scheduler.cycle.faults import Faults, place_of, with_aside, with_early
from kai.roles.scheduler.cycle.stream import AbandonedError, Stream
from kai.roles.scheduler.cycle.suspects import Blame, Inquiry
from kai.roles.scheduler.publishing.explanations import Overall, explain
from kai.roles.scheduler.settings import SchedulerSettings

if TYPE_CHECKING:
    from kai.api.kinds import ApiObject
    from kai.facts.model.groups import Shares
    from kai.roles.scheduler.effects import Decided

_MOST_DUMPS: Final = 3
_FIELDS: Final = tuple(field.name for field in attrs.fields(ClusterObjects))


@attrs.frozen(kw_only=True)
class Failure:
    """A cycle that was abandoned."""

    kind: str
    message: str
    dump: str = ""
    """The file with the input of the cycle; "" if there is none."""
    named: str = ""
    """The object that the cycle failed at; "" if unknown."""
    again: bool = False
    """Whether another cycle must follow at once, without the suspected objects."""
    is_abandoned: bool = False
    """Whether the cycle was stopped from outside, and nothing failed."""


@attrs.frozen(kw_only=True)
class Done:
    """The result of a cycle that ran to its end."""

    snapshot: Snapshot
    report: CycleReport
    overall: Overall
    seconds: Mapping[str, float]
    """Duration of each phase."""
    plugins: Mapping[tuple[str, str], float]
    """Duration of each plugin's opening and closing, by plugin and phase."""
    taken: Mapping[tuple[str, str], Taken]
    """Duration of each plugin function in this cycle, by plugin and function."""
    spent: Mapping[str, Spent]
    groups: Mapping[str, tuple[int, int]]
    """By action: count of groups that it bound, and of groups that it decided something for."""
    decisions: int
    turns: int
    """Count of cycles after which every group was considered once."""
    restless: bool
    """Whether time alone may change something: pods wait, or a gang is stale."""
    objects: ClusterObjects
    """The objects that the cycle decided on."""
    decided: tuple[Decision, ...] = ()
    """All decisions in order."""
    again: bool = False
    """Whether another cycle must follow at once: this one left objects out in search of the failing one."""


@attrs.define
class Cycles:
    """Runs cycles, one after the other, each in a worker thread."""

    settings: SchedulerSettings
    profile: Profile
    clock: Callable[[], float]
    """Returns the time of a monotonic clock."""
    last: CycleInput | None = None
    """The input of the last cycle, with the answers of its budget."""
    awaited: tuple[str, ...] = ()
    """Keys of groups that the next cycle serves first, because the last one evicted pods for them.

    Evictions by an earlier process are unknown here.
    """
    _intake: Intake | None = None
    _read_for: KubernetesVersion = NEWEST
    """The Kubernetes version that the intake was made for."""
    inquiry: Inquiry = attrs.field(factory=Inquiry)
    faults: Faults = attrs.field(factory=Faults)
    _left: tuple[ClusterObjects, Mapping[Suspect, bool], ClusterObjects] | None = None
    """Memoized: the last objects, the set that was left out of them, and the rest."""
    _explained: tuple[CycleReport, Overall] | None = None
    """Memoized: the last report, and its explanation for users."""
    _declared: Declared | None = None
    """Errors in the manifests of queues that are left out, if users were shown them; the report lacks these."""
    _published: frozenset[str] = frozenset()
    """UIDs of groups whose reason was published, while some groups wait for their turn."""
    _accused: list[tuple[Blame, list[Suspect]]] = attrs.field(factory=list)
    _dumps: int = 0
    _is_frozen: bool = False

    def run(
        self,
        given: CycleInput,
        stream: Stream,
        part_seconds: float | None = None,
    ) -> Done | Failure:
        """Run one cycle.

        ``part_seconds``: time after which the remaining groups are left to the next cycle; None: no limit.

        Call it in a thread, not on the event loop.

        Holds: no fault of a plugin, an object or kai itself makes it raise.
        """
        budget = Timed(self.settings.configuration.parameters.budgets, self.clock, part_seconds, stream.check)
        given = self.last = attrs.evolve(given, aside=self.inquiry.begin(given.objects, self.clock()))
        # If this cycle fails, the next one serves the same groups first.
        self.awaited = given.past.awaited
        error = ""
        try:
            # A collection during the cycle would walk long lists of new, living objects and free nothing.
            with paused() if self._is_frozen else growing():
                done = self._decide(given, stream, budget)
            again, inquiry = self.inquiry.ended(), self.inquiry
            self.faults.ended(done.report.failures, self.clock())
            overall = with_aside(done.overall, given.objects, inquiry.records, inquiry.left_out)
            return attrs.evolve(done, overall=with_early(overall, given.objects, given.early), again=again)
        except AbandonedError as stop:
            error = str(stop)
            return Failure(kind=type(stop).__name__, message=error, is_abandoned=True)
        except Exception as failure:  # noqa: BLE001 - the boundary of a cycle: a bug or a plugin costs one cycle only
            error = type(failure).__name__
            return self._failed(failure, attrs.evolve(given, grants=budget.grants), stream)
        finally:
            self.last = attrs.evolve(given, grants=budget.grants)
            stream.observer.finish(error)
            self._freeze()

    def _failed(self, failure: Exception, given: CycleInput, stream: Stream) -> Failure:
        """Return the failure of a cycle; for the first few, write the input to a file for the search for its cause."""
        kind, named = type(failure).__name__, self._named(stream)
        # If a group was named in a snapshot, the failure came after the intake, and its parsed objects are worth
        # keeping.
        if named is None or stream.snapshot is None:
            self._intake = None  # its cache may be what failed
        dump = "" if self.inquiry.left_out else self._dump(given)
        message = place_of(failure, self._origins)
        again = self._judge(failure, Blame(kind=kind, message=message, dump=dump), named)
        return Failure(kind=kind, message=message, dump=dump, named=str(named or ""), again=again)

    def begin_term(self) -> None:
        """Publish again why groups wait: some writes of the earlier term may be lost.

        Holds: not called while a cycle runs.
        """
        self._published, self._explained = frozenset(), None

    def read_ahead(self, arrived: Iterable[ApiObject]) -> None:
        """Parse objects as they arrive, so that the next cycle need not; before the first cycle do nothing.

        Holds: not called while a cycle runs; raises nothing, as the cycle reports objects that cannot be parsed.
        """
        if self._intake is None:
            return
        try:
            with paused():
                self._intake.read_ahead(arrived)
        except Exception:  # noqa: BLE001 - the cycle meets the same object, and handles the error there
            return

    def rehearse(
        self,
        objects: ClusterObjects,
        now: float,
        usage: Mapping[str, Shares] = EMPTY,
        kubernetes: KubernetesVersion = NEWEST,
    ) -> None:
        """Take a snapshot as a cycle does, without deciding: the next cycle then parses only changed objects.

        Holds: not called while a cycle runs; raises nothing, as the cycle reports objects that cannot be parsed.
        """
        intake = self._intake_for(kubernetes)
        try:
            with paused() if self._is_frozen else growing():
                intake.take(objects, now, Past(usage=usage, awaited=self.awaited))
        except Exception:  # noqa: BLE001 - the cycle meets the same objects, and handles the error there
            self._intake = None
        finally:
            self._freeze()

    def _judge(self, failure: Exception, blame: Blame, named: Suspect | None) -> bool:
        """Find out whether an object or a plugin is at fault; return whether another cycle must follow at once."""
        if not isinstance(failure, PluginError):
            return self.inquiry.failed(blame, named)
        hook = (failure.plugin, failure.hook)
        groups = self.inquiry.failed_at(hook, named)
        judge = partial(self.faults.judge, failure, self.profile, groups, self.clock(), blame.dump)
        reaction = judge()
        if reaction is None:
            if self.inquiry.failed(attrs.evolve(blame, hook=hook), named):
                return True
            # Leaving out objects did not help. So no object is at fault, and only now may the plugin be judged for
            # that.
            reaction = judge(is_everywhere=True)
        if reaction is None:
            return False
        self.inquiry.acquit(hook)
        return reaction is not OnFailure.STOP

    def _named(self, stream: Stream) -> Suspect | None:
        """Return the object that the cycle was working on; None if unknown."""
        row, snapshot = stream.observer.at_group, stream.snapshot
        if snapshot is not None:
            return Suspect("PodGroup", snapshot.groups[row].namespace, snapshot.groups[row].name) if row >= 0 else None
        source = None if self._intake is None else self._intake.reading
        return None if source is None else Suspect.of(source)

    @property
    def _origins(self) -> frozenset[str]:
        """Top-level packages of kai and its plugins."""
        parts = [*(use.plugin for use in self.profile.plugins), *self.profile.actions]
        return frozenset(type(each).__module__.partition(".")[0] for each in parts) | {"kai"}

    def _without_aside(self, given: CycleInput) -> ClusterObjects:
        """Return the objects less those set aside; the same value as before if neither changed."""
        if not given.aside:
            return given.objects
        left = self._left
        # The same value for the same objects: the intake finds what changed by identity, and new tuples would look like
        # a new cluster.
        if left is None or left[1] != given.aside or not _same(left[0], given.objects):
            left = self._left = (given.objects, given.aside, without(given.objects, given.aside))
        return left[2]

    def accuse(self, error: Exception, event: Decided) -> None:
        """Note the groups whose decisions could not be turned into orders; see `judge_accused`."""
        blame = Blame(kind=type(error).__name__, message=place_of(error, self._origins))
        of_pod, groups = event.snapshot.pod_group, event.snapshot.groups
        rows = {each.aggressor if isinstance(each, Evict) else int(of_pod[each.pod]) for each in event.decisions}
        found = [groups[row] for row in sorted(rows) if row >= 0]
        self._accused.append((blame, [Suspect("PodGroup", each.namespace, each.name) for each in found]))

    def judge_accused(self) -> None:
        """Set aside the groups noted by `accuse`.

        Holds: not called while a cycle runs, because the cycle iterates over what is set aside.
        """
        for blame, suspects in self._accused:
            self.inquiry.accuse(blame, suspects)
        self._accused.clear()

    def _intake_for(self, kubernetes: KubernetesVersion) -> Intake:
        """Return the intake; a new one if the API server was upgraded, since parsing depends on its version."""
        if self._intake is None or self._read_for != kubernetes:
            self._read_for = kubernetes
            self._intake = Intake(attrs.evolve(self.settings.intake, kubernetes=kubernetes))
        return self._intake

    def _decide(self, given: CycleInput, stream: Stream, budget: Timed) -> Done:
        observer = stream.observer
        intake = self._intake_for(given.kubernetes)
        with observer.phase(Phase.SNAPSHOT):
            snapshot = stream.snapshot = intake.take(
                self._without_aside(given), given.now, given.past, revision=stream.number
            )
        report = run_cycle(snapshot, self.faults.in_force(self.profile), stream, observer, budget)
        self.awaited = report.awaited
        known = self._explained
        # A cycle without changes returns the report of the one before; its explanation is memoized.
        if known is None or known[0] is not report or self._is_declared_anew(given.objects):
            with observer.phase(Phase.EXPLAIN):
                known = self._explained = (report, self._explain(snapshot, report, observer.group, given.objects))
        overall = known[1]
        if snapshot.budgets is not None:  # what was used of them grows while the report stays
            used = budget_statuses(snapshot, report.budget_used, report.budget_left)
            overall = attrs.evolve(overall, budgets=used)
        waits = bool(((report.status == Status.PENDING) | (report.status == Status.PIPELINED)).any())
        return Done(
            snapshot=snapshot,
            report=report,
            overall=overall,
            seconds=dict(observer.seconds),
            plugins=observer.plugins,
            taken=observer.stopwatch.taken,
            spent=dict(budget.finish()),
            groups=dict(stream.groups),
            decisions=stream.count,
            turns=snapshot.crowds.turns + bool(len(report.left)),
            restless=waits
            or any(account.stale for account in overall.groups)
            or not np.isnan(report.partial_since).all(),
            objects=given.objects,
            decided=tuple(stream.decided),
        )

    def _explain(
        self, snapshot: Snapshot, report: CycleReport, attend: Callable[[int], None], objects: ClusterObjects
    ) -> Overall:
        detailed, published = self.profile.parameters.detailed_fit_errors, self._published
        self._declared = None

        def declared() -> Declared:
            self._declared = declared_queues(objects.queues, self.settings.intake)
            return self._declared

        pool = self.settings.pool
        overall = explain(
            snapshot, report, pool, detailed=detailed, published=published, attend=attend, declared=declared
        )
        later = [*snapshot.crowds.waiting.tolist(), *report.left.tolist()]
        accounted = [each.uid for each in overall.groups if each.unschedulable or each.not_ready] if later else []
        self._published = frozenset([*accounted, *(snapshot.groups[row].uid for row in later)])
        return overall

    def _is_declared_anew(self, objects: ClusterObjects) -> bool:
        """Return whether users were shown an error of a queue that may have changed since."""
        known = self._declared
        return known is not None and known != declared_queues(objects.queues, self.settings.intake)

    def _freeze(self) -> None:
        """Exclude all living objects from garbage collection, once: a walk through a whole cluster finds no garbage."""
        if not self._is_frozen:
            self._is_frozen = True
            settle()

    def _dump(self, given: CycleInput) -> str:
        """Write the input of a failed cycle to a file, for the first few failures; return its path, or ""."""
        if self._dumps >= _MOST_DUMPS:
            return ""
        self._dumps += 1
        try:
            return write_archive(given, self.settings, "failed-cycle")
        except Exception as error:  # noqa: BLE001 - a dump only helps diagnosis: the next cycle needs none
            structlog.get_logger().warning("snapshot not written", why=error_text(error))
            return ""


def _same(one: ClusterObjects, other: ClusterObjects) -> bool:
    return one is other or all(getattr(one, each) is getattr(other, each) for each in _FIELDS)
