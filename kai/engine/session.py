"""The session: the world of one cycle, opened for the actions, and the way out for what they decide.

Opening goes in this order: facts, then what plugins answer to them, then the ledger, then what actions share.

The window that plugins look through at the world of a cycle.

What it shows cannot be written. Structs are locked anew when the world has others: facts when shares are known, columns
when logs grow.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Protocol, cast

import numpy as np

from kai.engine.bindings import Bindings, Details
from kai.engine.eviction_caps import EvictionCaps
from kai.engine.failing import Failures
from kai.engine.host import Budget, Observer, Unlimited
from kai.engine.opened import open_plugins
from kai.engine.portion import Portion, Portions
from kai.engine.readiness import Awaited, EquivalenceClasses, Filled, are_ready, have_some
from kai.engine.records import GroupRecord, Objections, Records
from kai.engine.rules import refusing_nodes, unusable_requests
from kai.engine.statement import Statement
from kai.engine.world import World
from kai.framework.decisions import Bind, Cause, Decision, DecisionSink, Evict, Nominate
from kai.framework.hooks import PluginUse
from kai.framework.parameters import Parameters
from kai.framework.verdict import Code, Reason, Verdict
from kai.framework.view import SessionView
from kai.kernels.columns import Columns, Facts
from kai.kernels.fit import Rules, Vectors
from kai.model.axis import Bools, Float64s, GroupRow, GroupRows, Int64s, NodeRow, NodeRows, PodRow, locked
from kai.state.base import Base, make_base
from kai.state.ledger import Tracked
from kai.state.snapshot import Snapshot


class WorldView(SessionView):
    """What a world shows to plugins."""

    def __init__(self, world: World, details: Details, portions: Portions) -> None:
        """Look at ``world``."""
        self._world = world
        self._details = details
        self._portions = portions
        self._facts, self._facts_of = world.facts.locked(), world.facts
        self._columns, self._columns_of = world.columns.locked(), world.columns
        self._vectors: tuple[Vectors, Vectors] | None = None
        self._nodes = locked(world.all_nodes)
        self._requested = locked(world.requested)
        self._constrained = locked(world.constrained)
        self._groups_by_age = locked(world.base.group_order)

    @cached_property
    def snapshot(self) -> Snapshot:
        """The facts of the cycle."""
        return self._world.snapshot.locked()

    @property
    def parameters(self) -> Parameters:
        """Settings of the scheduler."""
        return self._world.parameters

    @property
    def now(self) -> float:
        """The instant of the cycle; reading it is noted."""
        return self._world.clock.read()

    def is_past(self, deadline: float) -> bool:
        """Return whether ``deadline`` has come, and note that it was asked about."""
        return self._world.clock.is_past(deadline)

    def are_past(self, deadlines: Float64s) -> Bools:
        """Say which of ``deadlines`` have come, and note that they were asked about."""
        return self._world.clock.are_past(deadlines)

    @property
    def facts(self) -> Facts:
        """The tables that kernels read."""
        facts = self._world.facts
        if facts is not self._facts_of:
            self._facts, self._facts_of = facts.locked(), facts
        return self._facts

    @property
    def columns(self) -> Columns:
        """The live columns."""
        columns = self._world.columns
        if columns is not self._columns_of:
            self._columns, self._columns_of = columns.locked(), columns
        return self._columns

    @property
    def rules(self) -> Rules:
        """The folded score terms and checks."""
        return self._world.policy.rules

    @property
    def vectors(self) -> Vectors:
        """The static masks and scores."""
        vectors = self._world.policy.vectors
        if self._vectors is None or self._vectors[0] is not vectors:
            self._vectors = (vectors, vectors.locked())
        return self._vectors[1]

    @property
    def nodes(self) -> NodeRows:
        """All node rows."""
        return self._nodes

    @property
    def requested(self) -> Float64s:
        """What one pod of each shape is taken to want."""
        return self._requested

    @property
    def last_start(self) -> Float64s:
        """When each group last started."""
        started = self._world.last_start  # mostly the snapshot's own, which nothing can write
        return locked(started) if started.flags.writeable else started

    @property
    def groups_by_age(self) -> GroupRows:
        """All group rows, oldest first."""
        return self._groups_by_age

    @property
    def constrained_groups(self) -> Bools:
        """Groups of which some sub-group says where its pods are together."""
        return self._constrained

    def track(self, initial: Int64s) -> Tracked:
        """Register a column."""
        return self._world.track(initial)

    def engine_column(self, name: str) -> Tracked:
        """Return a column of the engine by name."""
        return self._world.engine_column(name)

    def has_column(self, column: Tracked) -> bool:
        """Say whether a column is of this session."""
        return self._world.has_column(column)

    def evicted_detail(self, pod: PodRow, node: NodeRow, kind: str) -> object | None:
        """Return the detail of the place that the open statement took."""
        columns = self._world.columns
        if not columns.evicted_status[pod] or columns.evicted_node[pod] != node:
            return None
        return self._details.of_eviction(int(pod)).get(kind)

    def chunk_amounts(self, group: GroupRow) -> Float64s:
        """Return what the next attempt on ``group`` would place."""
        return self._portions.of(int(group)).amounts()


UNLIMITED = Unlimited()
FEW = 8
"""Decisions that are counted one by one."""
_COUNTED_AS = {Bind: "binds", Evict: "evictions", Nominate: "pipelines"}


class Policies(Protocol):
    """What a session needs of a profile."""

    @property
    def plugins(self) -> tuple[PluginUse, ...]:
        """The plugins, in their order."""

    @property
    def parameters(self) -> Parameters:
        """Settings of the scheduler that are no plugin's own."""


class Session(World):
    """All that one cycle works on. Actions use it directly; plugins see its world through a ``SessionView``."""

    def __init__(
        self, snapshot: Snapshot, profile: Policies, sink: DecisionSink, observer: Observer, budget: Budget = UNLIMITED
    ) -> None:
        """Book pods, let every plugin look, fold their answers. Cost: O(arena + plugins)."""
        super().__init__(snapshot, base_of(snapshot), profile.parameters)
        self.observer = observer
        self.budget = budget
        self._sink = sink
        self.caps = EvictionCaps(self, profile.parameters)
        self.stamp = 0
        """Grows with every committed statement: what was refused at this stamp is still refused."""
        self.counts = {"binds": 0, "evictions": 0, "pipelines": 0}
        self.awaited = Awaited(self)
        self.evicted: set[int] = set()
        """Pods that are told to leave the nodes that they are on."""
        self.details = Details(self)
        self.portions = Portions(self)
        self.records = Records(snapshot, self.facts.groups)
        self._refuse_crowds()
        self.equivalence = EquivalenceClasses(self)
        self.view = WorldView(self, self.details, self.portions)
        self.failures = Failures()
        """What plugins that are known to fail failed at."""
        opened = open_plugins(profile.plugins, self.view, observer, self.failures)
        self.adopt([*opened, *refusing_nodes(self.view), *unusable_requests(self.view)])
        self.reclaim_verdicts: dict[tuple[int, bool, bytes, int], Verdict] = {}
        """Whether groups of a queue may reclaim: queue, preemptible, amounts, stamp."""
        self.objections: Objections | None = None
        """Why no node took the pod that was explained last."""
        self._at_group = -1
        self.left: GroupRows = np.zeros(0, np.int64)
        """Groups that were left to a later cycle, because this one had no time for them."""
        self.filled: Filled | None = None
        """The heap that was filled last, as it was then."""
        self._waiting: tuple[int, GroupRows] | None = None
        """The groups that wait, and how many changes of status there had been by then."""
        self.bindings = Bindings(self, self.details, self.base.slot_names)

    def _refuse_crowds(self) -> None:
        """Note why groups are not considered in this cycle that wait for their turn."""
        for crowd in self.snapshot.crowds.by_namespace.values():
            if 0 < crowd.at_a_time < crowd.pods:
                facts = {"pods": crowd.pods, "considered": crowd.at_a_time}
            else:
                facts = {"shapes": crowd.shapes, "considered": crowd.considered}
            reason = Reason(code=Code.WAITS_FOR_TURN, facts={"namespace": crowd.namespace, **facts})
            self.refuse_together(crowd.groups, reason)

    def leave(self, groups: GroupRows, served: int) -> None:
        """Leave ``groups`` to a later cycle; ``served`` is how many there were with them."""
        self.left = groups
        if len(groups):
            reason = Reason(code=Code.WAITS_FOR_TURN, facts={"considered": served - len(groups)})
            self.refuse_together(groups, reason)

    def refuse_together(self, groups: GroupRows, reason: Reason) -> None:
        """Refuse groups for a reason that concerns none of their pods in particular."""
        no_pod = np.full(len(groups), -1, np.int64)
        self.records.refuse_alike(groups, no_pod, np.zeros(len(groups), np.bool_), reason)

    # ------------------------------------------------------------------ groups

    def portion(self, group: int) -> Portion:
        """Return the whole of ``group``; the same object all through the session."""
        return self.portions.of(group)

    def waiting_groups(self) -> GroupRows:
        """Return the groups that have pending pods and enough of them, and whose turn it is, oldest first.

        The order in which heaps are filled.
        """
        changes = self.changes() + len(self.failures.refused)
        if self._waiting is None or self._waiting[0] != changes:
            rows = self._with_pending_pods()
            for others in (self.snapshot.crowds.waiting, [*self.failures.refused]):
                if len(others):
                    rows = rows[~np.isin(rows, others)]
            self._waiting = changes, self.oldest_first(rows[are_ready(self.facts.groups, self.columns, rows)])
        return self._waiting[1]

    def _with_pending_pods(self) -> GroupRows:
        """Return the groups that have pending pods: of those that had some at first, and of those that changed."""
        groups = self.snapshot.pod_group[self.base.pending]
        rows = self.changed_groups(groups[groups >= 0])
        return rows[have_some(self.facts.groups, self.columns.pending, rows)]

    @cached_property
    def protected(self) -> Bools:
        """Return bool[G]: the groups with pods that are spared for the moment."""
        out: Bools = np.zeros(len(self.snapshot.groups), np.bool_)
        if self.snapshot.past.protected:
            uids = set(self.snapshot.past.protected)
            rows = [row for row, pod in enumerate(self.snapshot.pods) if pod.uid in uids]
            groups = self.snapshot.pod_group[rows]
            out[groups[groups >= 0]] = True
        return out

    def attend(self, group: int) -> int:
        """Let the observer know which group is looked at, and return which one was before; -1 for none.

        A caller that fails leaves it as it is: that is what the outside wants to know then.
        """
        before, self._at_group = self._at_group, group
        self.observer.group(group)
        return before

    def record(self, group: int) -> GroupRecord:
        """Return the record of ``group``."""
        return self.records.of(group)

    def refuse(self, group: int, verdict: Verdict) -> None:
        """Remember why ``group`` waits; a reason that is known already is not repeated."""
        self.records.refuse(group, verdict.reasons)

    # ------------------------------------------------------------------ decisions

    def statement(self, action: str, cause: Cause | None = None, aggressor: int = -1, rule: str = "") -> Statement:
        """Begin a statement."""
        return Statement(self, self, action, cause, aggressor, rule)

    def committed(self, action: str, decisions: tuple[Decision, ...], /) -> None:
        """Take the decisions of one statement."""
        self.stamp += 1
        self.caps.note(decisions)
        self.emit(action, decisions)

    def emit(self, action: str, *statements: tuple[Decision, ...]) -> None:
        """Hand out the decisions of committed statements, one statement at a time."""
        for kind, count in _kinds(statements):
            self.counts[_COUNTED_AS[kind]] += count
        if action != "allocate":
            for decisions in statements:
                self.awaited.note(decisions)
                self.evicted.update(each.pod for each in decisions if isinstance(each, Evict))
        take, committed = self._sink.take, self.observer.committed
        for decisions in statements:
            take(decisions)
            committed(action, len(decisions))


def _kinds(statements: Sequence[tuple[Decision, ...]]) -> Iterable[tuple[type[Decision], int]]:
    """Return kinds of decisions and how many there are of each; a kind may come twice."""
    if len(statements) == 1 and len(statements[0]) <= FEW:
        return [(type(decision), 1) for decision in statements[0]]
    return Counter(map(type, chain.from_iterable(statements))).items()


def base_of(snapshot: Snapshot) -> Base:
    """Return the base of ``snapshot``, made once."""
    base = snapshot.__dict__.get("_base")
    if base is None:
        base = make_base(snapshot)
        snapshot.__dict__["_base"] = base
    return cast("Base", base)
