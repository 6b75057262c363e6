"""The session: the world of one cycle, opened for the actions, and the sink of their decisions.

A session opens in this order: facts, then the extensions of plugins, then the ledger, then what actions share.

``WorldView`` is the read-only view of the world that plugins get. It locks its arrays against writes, and locks them
again whenever the world replaces them: facts once fair shares are known, columns when the operation log grows.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain
from typing import Protocol, cast

import numpy as np

from kai.deciding.engine.bindings import Bindings, Details
from kai.deciding.engine.eviction_caps import EvictionCaps
from kai.deciding.engine.failing import Failures
from kai.deciding.engine.host import Budget, Observer, Unlimited
from kai.deciding.engine.opened import open_plugins
from kai.deciding.engine.portion import Portion, Portions
from kai.deciding.engine.readiness import Awaited, EquivalenceClasses, Filled, are_ready, have_some
from kai.deciding.engine.records import GroupRecord, Objections, Records
from kai.deciding.engine.rules import refusing_nodes, unusable_requests
from kai.deciding.engine.statement import Statement
from kai.deciding.engine.world import World
from kai.facts.kernels.columns import Columns, Facts
from kai.facts.kernels.fit import Rules, Vectors
from kai.facts.model.axis import Bools, Float64s, GroupRow, GroupRows, Int64s, NodeRow, NodeRows, PodRow, locked
from kai.facts.state.base import Base, make_base
from kai.facts.state.ledger import Tracked
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Bind, Cause, Decision, DecisionSink, Evict, Nominate
from kai.framework.hooks import PluginUse
from kai.framework.parameters import Parameters
from kai.framework.verdict import Code, Reason, Verdict
from kai.framework.view import SessionView


class WorldView(SessionView):
    """The view of a world that plugins get."""

    def __init__(self, world: World, details: Details, portions: Portions) -> None:
        """Show ``world``."""
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
        """The instant of the cycle. Reading it ends the validity of the cycle's result, see ``Clock.read``."""
        return self._world.clock.read()

    def is_past(self, deadline: float) -> bool:
        """Return whether ``deadline`` has passed, and record that the result depends on it."""
        return self._world.clock.is_past(deadline)

    def are_past(self, deadlines: Float64s) -> Bools:
        """Return which of ``deadlines`` have passed, and record that the result depends on them."""
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
        """The static masks and scores of nodes."""
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
        """The amounts that one pod of each shape is assumed to request."""
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
        """Groups with a sub-group whose pods must stay together."""
        return self._constrained

    def track(self, initial: Int64s) -> Tracked:
        """Register a column."""
        return self._world.track(initial)

    def engine_column(self, name: str) -> Tracked:
        """Return a column of the engine by name."""
        return self._world.engine_column(name)

    def has_column(self, column: Tracked) -> bool:
        """Return whether a column belongs to this session."""
        return self._world.has_column(column)

    def evicted_detail(self, pod: PodRow, node: NodeRow, kind: str) -> object | None:
        """Return the detail of the placement that the open statement took from ``pod``."""
        columns = self._world.columns
        if not columns.evicted_status[pod] or columns.evicted_node[pod] != node:
            return None
        return self._details.of_eviction(int(pod)).get(kind)

    def chunk_amounts(self, group: GroupRow) -> Float64s:
        """Return the amounts that the next attempt on ``group`` would place."""
        return self._portions.of(int(group)).amounts()


UNLIMITED = Unlimited()
FEW = 8
"""The most decisions of a statement that are counted one by one."""
_COUNTED_AS = {Bind: "binds", Evict: "evictions", Nominate: "pipelines"}


class Policies(Protocol):
    """The part of a profile that a session reads."""

    @property
    def plugins(self) -> tuple[PluginUse, ...]:
        """The plugins, in their order."""

    @property
    def parameters(self) -> Parameters:
        """Settings of the scheduler that belong to no plugin."""


class Session(World):
    """The state that one cycle works on. Actions use it directly; plugins see its world through a ``SessionView``."""

    def __init__(
        self, snapshot: Snapshot, profile: Policies, sink: DecisionSink, observer: Observer, budget: Budget = UNLIMITED
    ) -> None:
        """Open all plugins and fold their extensions into one policy. Cost: O(arena + plugins)."""
        super().__init__(snapshot, base_of(snapshot), profile.parameters)
        self.observer = observer
        self.budget = budget
        self._sink = sink
        self.caps = EvictionCaps(self, profile.parameters)
        self.stamp = 0
        """Counts committed statements. While it is the same, nothing was committed, and a refusal still holds."""
        self.counts = {"binds": 0, "evictions": 0, "pipelines": 0}
        self.awaited = Awaited(self)
        self.evicted: set[int] = set()
        """Pods that this cycle evicts from their nodes."""
        self.details = Details(self)
        self.portions = Portions(self)
        self.records = Records(snapshot, self.facts.groups)
        self._refuse_crowds()
        self.equivalence = EquivalenceClasses(self)
        self.view = WorldView(self, self.details, self.portions)
        self.failures = Failures()
        """Failures of hooks that the caller has listed as failing."""
        # Plugins open on the booked columns, before there is a ledger: the columns that they register become the end of
        # its arena, and the size of an arena is fixed.
        opened = open_plugins(profile.plugins, self.view, observer, self.failures)
        # The engine's own two checks come as plugins too, so kernels and explanations need no second way for them.
        self.adopt([*opened, *refusing_nodes(self.view), *unusable_requests(self.view)])
        self.reclaim_verdicts: dict[tuple[int, bool, int, bytes, int], Verdict] = {}
        """Memoized verdicts on whether a queue may reclaim, by queue, preemptible, amounts and stamp."""
        self.objections: Objections | None = None
        """The objections of nodes to the pod that was explained last; reused for the next pod of the same shape."""
        self._at_group = -1
        self.left: GroupRows = np.zeros(0, np.int64)
        """Groups that were left to a later cycle because the budget ran out."""
        self.filled: Filled | None = None
        """A copy of the heap that was filled last, as it was right after filling."""
        self._waiting: tuple[int, GroupRows] | None = None
        """The groups that wait, with the number of status changes at which they were determined."""
        self.bindings = Bindings(self, self.details, self.base.slot_names)

    def _refuse_crowds(self) -> None:
        """Refuse the groups that must wait for their turn in a later cycle."""
        for crowd in self.snapshot.crowds.by_namespace.values():
            if 0 < crowd.at_a_time < crowd.pods:
                facts = {"pods": crowd.pods, "considered": crowd.at_a_time}
            else:
                facts = {"shapes": crowd.shapes, "considered": crowd.considered}
            reason = Reason(code=Code.WAITS_FOR_TURN, facts={"namespace": crowd.namespace, **facts})
            self.refuse_together(crowd.groups, reason)

    def leave(self, groups: GroupRows, served: int) -> None:
        """Leave ``groups`` to a later cycle; ``served`` counts them and the groups before them."""
        self.left = groups
        if len(groups):
            reason = Reason(code=Code.WAITS_FOR_TURN, facts={"considered": served - len(groups)})
            self.refuse_together(groups, reason)

    def refuse_together(self, groups: GroupRows, reason: Reason) -> None:
        """Refuse groups for a reason that concerns no single pod."""
        no_pod = np.full(len(groups), -1, np.int64)
        self.records.refuse_alike(groups, no_pod, np.zeros(len(groups), np.bool_), reason)

    # ------------------------------------------------------------------ groups

    def portion(self, group: int) -> Portion:
        """Return the whole ``group`` as a portion; the same object throughout the session."""
        return self.portions.of(group)

    def waiting_groups(self) -> GroupRows:
        """Return the groups with enough pending pods that have their turn, oldest first.

        Heaps are filled in this order.
        """
        # A failing hook takes a group out of the waiting ones without a change of status, so failures count too.
        changes = self.changes() + len(self.failures.refused)
        if self._waiting is None or self._waiting[0] != changes:
            rows = self._with_pending_pods()
            for others in (self.snapshot.crowds.waiting, [*self.failures.refused]):
                if len(others):
                    rows = rows[~np.isin(rows, others)]
            self._waiting = changes, self.oldest_first(rows[are_ready(self.facts.groups, self.columns, rows)])
        return self._waiting[1]

    def _with_pending_pods(self) -> GroupRows:
        """Return the groups that have pending pods: candidates had some at first, or changed status since."""
        groups = self.snapshot.pod_group[self.base.pending]
        rows = self.changed_groups(groups[groups >= 0])
        return rows[have_some(self.facts.groups, self.columns.pending, rows)]

    @cached_property
    def protected(self) -> Bools:
        """Return bool[G]: the groups with pods that the snapshot protects from eviction for now."""
        out: Bools = np.zeros(len(self.snapshot.groups), np.bool_)
        if self.snapshot.past.protected:
            uids = set(self.snapshot.past.protected)
            rows = [row for row, pod in enumerate(self.snapshot.pods) if pod.uid in uids]
            groups = self.snapshot.pod_group[rows]
            out[groups[groups >= 0]] = True
        return out

    def attend(self, group: int) -> int:
        """Notify the observer of the group that is worked on, and return the one before; -1 for none.

        A caller that fails does not restore the one before: error reports name the group at which it failed.
        """
        before, self._at_group = self._at_group, group
        self.observer.group(group)
        return before

    def record(self, group: int) -> GroupRecord:
        """Return the record of ``group``."""
        return self.records.of(group)

    def refuse(self, group: int, verdict: Verdict) -> None:
        """Add the reasons of ``verdict`` to those for which ``group`` waits, each once."""
        self.records.refuse(group, verdict.reasons)

    # ------------------------------------------------------------------ decisions

    def statement(self, action: str, cause: Cause | None = None, aggressor: int = -1, rule: str = "") -> Statement:
        """Begin a statement for ``action``."""
        return Statement(self, self, action, cause, aggressor, rule)

    def committed(self, action: str, decisions: tuple[Decision, ...], /) -> None:
        """Take the decisions of one committed statement."""
        self.stamp += 1
        self.caps.note(decisions)
        self.emit(action, decisions)

    def emit(self, action: str, *statements: tuple[Decision, ...]) -> None:
        """Hand decisions to the sink, one committed statement at a time."""
        for kind, count in _kinds(statements):
            self.counts[_COUNTED_AS[kind]] += count
        # Allocate evicts no pod, so no group waits for its evictions. It emits most decisions: spare them the scan.
        if action != "allocate":
            for decisions in statements:
                self.awaited.note(decisions)
                self.evicted.update(each.pod for each in decisions if isinstance(each, Evict))
        take, committed = self._sink.take, self.observer.committed
        for decisions in statements:
            take(decisions)
            committed(action, len(decisions))


def _kinds(statements: Sequence[tuple[Decision, ...]]) -> Iterable[tuple[type[Decision], int]]:
    """Return kinds of decisions and the number of each; a kind may come twice."""
    if len(statements) == 1 and len(statements[0]) <= FEW:
        return [(type(decision), 1) for decision in statements[0]]
    return Counter(map(type, chain.from_iterable(statements))).items()


def base_of(snapshot: Snapshot) -> Base:
    """Return the base of ``snapshot``, made once per snapshot."""
    # Kept in the snapshot's own dictionary: it lives exactly as long as the facts that it was made from.
    base = snapshot.__dict__.get("_base")
    if base is None:
        base = make_base(snapshot)
        snapshot.__dict__["_base"] = base
    return cast("Base", base)
