"""The session: one cycle's snapshot, ledger and policy, and the questions that actions ask of them together."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import cast

import numpy as np

from kai.framework.alike import Alike
from kai.framework.budget import Budget, Unlimited
from kai.framework.clock import Clock
from kai.framework.decisions import Bind, Cause, Decision, DecisionSink, Evict, Nominate
from kai.framework.details import Details
from kai.framework.grants import Grants
from kai.framework.heaps import heap_start
from kai.framework.hooks import Dependence
from kai.framework.observe import Observer
from kai.framework.parameters import Parameters
from kai.framework.policy import Named, Policy, checked_mask, checked_scores
from kai.framework.portion import Portion
from kai.framework.profile import Profile
from kai.framework.records import GroupRecord, Records
from kai.framework.refusing import NAME as REFUSALS
from kai.framework.refusing import refusing_nodes
from kai.framework.statement import Statement
from kai.framework.unusable import unusable_requests
from kai.framework.verdict import Code, Reason, Verdict
from kai.framework.view import SessionView
from kai.kernels import booking, groups, score
from kai.kernels.columns import Columns, Facts
from kai.kernels.fit import Rules
from kai.kernels.groups import ROOT_AND_LEAF
from kai.model.podgroup import SubGroup
from kai.model.rows import Bools, Float64s, GroupRows, Int64s, NodeRows, PodRow, PodRows
from kai.model.status import Status
from kai.state.base import Base, make_base
from kai.state.facts import requested_amounts
from kai.state.kept import pods_by_leaf
from kai.state.ledger import Ledger, Tracked
from kai.state.snapshot import Snapshot

UNLIMITED = Unlimited()
FEW = 8
"""Decisions that are counted one by one."""
_COUNTED_AS = {Bind: "binds", Evict: "evictions", Nominate: "pipelines"}


class Session:
    """Everything one cycle works on. Actions use it directly; plugins see it through a ``SessionView``."""

    def __init__(
        self, snapshot: Snapshot, profile: Profile, sink: DecisionSink, observer: Observer, budget: Budget = UNLIMITED
    ) -> None:
        """Copy the arena, let every plugin look, fold their answers. Cost: O(arena + plugins)."""
        self.snapshot = snapshot
        self.clock = Clock(snapshot.now)
        self.profile = profile
        self.parameters: Parameters = profile.parameters
        self.observer = observer
        self.budget = budget
        self._sink = sink
        base = self._base = base_of(snapshot)
        self._tracked: list[Tracked] = []
        self.details = Details(self)
        self.all_nodes: NodeRows = np.arange(len(snapshot.nodes), dtype=np.int64)
        self.no_extra: Float64s = np.zeros(len(snapshot.nodes), np.float64)
        self.stamp = 0
        """Grows with every committed statement: what was refused at this stamp is still refused."""
        self.records = Records(snapshot, base.facts.groups)
        self._refuse_crowds()
        self.alike = Alike(self)
        self.counts = {"binds": 0, "evictions": 0, "pipelines": 0}
        self.last_start = base.groups.last_start.copy()
        self._helped: dict[str, None] = dict.fromkeys(snapshot.awaited)
        """Keys of groups for which pods were evicted, in that order, less those that lost pods since."""
        self.last_eviction = base.groups.last_eviction.copy()
        self.stale_since = base.groups.stale_since.copy()
        self.facts: Facts = self._own_facts(base.facts)
        self._opening = base.layout.columns(base.arena, base.room(), np.zeros(len(snapshot.groups), np.int64))
        nodes, bounds = self.facts.nodes, snapshot.gpu_memory_bounds
        self.requested, self.limit_amounts = (requested_amounts(snapshot, nodes, memory) for memory in bounds)
        self.view = SessionView(self)
        self.policy = Policy(self._opened(), self.facts)
        self._adopt_shares()
        self._order_pods(base)
        self.ledger = Ledger(base.layout, self.facts, base.fresh_arena(snapshot.memory), base.room(), self._tracked)
        self._apply_opening()
        self._children: dict[int, tuple[int, ...]] = {}
        self._footprints: dict[int, tuple[int, ...]] = {}
        self.reclaim_verdicts: dict[tuple[int, bool, bytes, int], Verdict] = {}
        """Whether groups of a queue may reclaim: queue, preemptible, amounts, stamp."""
        self._portions: dict[int, Portion] = {}
        self._at_group = -1
        self._waiting: tuple[int, GroupRows] | None = None
        """The groups that wait, and how many changes of status there had been by then."""
        self.group_keys = self._make_group_keys()
        self.heap_start = heap_start(self)
        self.subgroup_scores: dict[int, Float64s] = {}
        self.term_scores: dict[int, tuple[Float64s, Int64s]] = {}
        """Scores of terms on all nodes, by shape, and what they were made of: for pods that plugins rate nodes for."""
        self.grants = Grants(self, base.slot_names)

    # ------------------------------------------------------------------ opening

    def _refuse_crowds(self) -> None:
        """Note why groups are not considered in this cycle that wait for their turn."""
        for crowd in self.snapshot.crowds.by_namespace.values():
            groups, facts = crowd.groups, {"shapes": crowd.shapes, "considered": crowd.considered}
            reason = Reason(code=Code.WAITS_FOR_TURN, facts={"namespace": crowd.namespace, **facts})
            nobody = np.full(len(groups), -1, np.int64)
            self.records.refuse_alike(groups, nobody, np.zeros(len(groups), np.bool_), reason)

    def _opened(self) -> list[Named]:
        """Return what the plugins of the profile answer to."""
        hooks = []
        for use in self.profile.plugins:
            self.observer.plugin(use.name)
            hooks.append(Named(use.name, use.plugin.open(self.view)))
        self.observer.plugin("")
        refusing = refusing_nodes(self.view)
        if refusing is not None:
            hooks.append(Named(REFUSALS, refusing))
        return hooks + unusable_requests(self.view)

    def _own_facts(self, facts: Facts) -> Facts:
        """Return facts whose session-dependent columns are the session's own."""
        shapes = facts.shapes.replace(
            mask=np.zeros_like(facts.shapes.mask),
            score=np.zeros_like(facts.shapes.score),
            credit=np.zeros_like(facts.shapes.credit),
        )
        nodes = facts.nodes.replace(credits=np.zeros_like(facts.nodes.credits))
        queues = facts.queues.replace(
            fair_share=np.zeros_like(facts.queues.fair_share),
            allocatable=np.zeros_like(facts.queues.allocatable),
            total=np.zeros_like(facts.queues.total),
        )
        return facts.replace(nodes=nodes, shapes=shapes, queues=queues)

    def track(self, initial: Int64s) -> Tracked:
        """Register a plugin's column; it lives at the end of the arena once the session is open."""
        column = Tracked(initial.astype(np.int64))
        self._tracked.append(column)
        return column

    @property
    def constrained(self) -> Bools:
        """bool[G]: groups of which some sub-group names a topology."""
        return self._base.constrained

    @property
    def priorities(self) -> Int64s:
        """int64[G]: the priority of each group."""
        return self._base.groups.priority

    @property
    def trees(self) -> Int64s:
        """int64[G]: equal numbers for groups with the same sub-groups."""
        return self._base.groups.tree

    def engine_column(self, name: str) -> Tracked:
        """Return a column of the engine by name, as a target of effects."""
        return Tracked(np.zeros(0, np.int64), offset=getattr(self._base.layout.places, name))

    def _apply_opening(self) -> None:
        """Let plugins correct the books, and let shapes that may get credit have it."""
        for plugin in self.policy.plugins:
            for effect in plugin.hooks.opening_effects:
                self.ledger.add(effect.column, effect.index, effect.delta)
            if plugin.hooks.credit_nodes is not None:
                self.facts.shapes.credit[slice(None) if plugin.hooks.concerns is None else plugin.hooks.concerns] = True
        self.ledger.seal()

    def _adopt_shares(self) -> None:
        shares = self.policy.fair_shares
        if shares is not None:
            queues = self.facts.queues.replace(
                fair_share=shares.fair_share, allocatable=shares.allocatable, total=shares.total
            )
            self.facts = self.facts.replace(queues=queues)

    def _order_pods(self, base: Base) -> None:
        pods = np.arange(len(self.snapshot.pods), dtype=np.int64)
        keys = self.policy.pod_keys(pods) if len(pods) else None
        if keys is not None and (keys != keys[0]).any():
            rank = np.empty(len(pods), np.float64)
            rank[base.pod_order] = np.arange(len(pods))
            order = np.lexsort((rank, *keys.T[::-1])).astype(np.int64)
            _, by_leaf = pods_by_leaf(self.facts.pods.leaf, order, int(self.snapshot.first_subgroup[-1]))
            self.facts = self.facts.replace(groups=self.facts.groups.replace(pods=by_leaf))

    def _make_group_keys(self) -> Float64s:
        count = len(self.snapshot.groups)
        rows = np.arange(count, dtype=np.int64)
        keys = self.policy.group_keys(rows, self._base.groups.priority, np.zeros(count, np.float64))
        rank = np.empty(count, np.float64)
        rank[self._base.group_order] = rows
        return np.ascontiguousarray(np.hstack([keys, rank[:, None]]))

    # ------------------------------------------------------------------ questions

    @property
    def columns(self) -> Columns:
        """The live columns."""
        try:
            return self.ledger.columns
        except AttributeError:  # the books are not open yet
            return self._opening

    def children(self, subgroup: int) -> tuple[int, ...]:
        """Return the rows of the children of a sub-group, by name."""
        known = self._children.get(subgroup)
        if known is None:
            self._learn_children(self.group_of_subgroup(subgroup))
            known = self._children[subgroup]
        return known

    def _learn_children(self, group: int) -> None:
        """Remember the children of all sub-groups of ``group``. Cost: that of sorting them, once."""
        groups = self.facts.groups
        first, last = groups.first_subgroup[group : group + 2].tolist()
        below: dict[int, list[int]] = {row: [] for row in range(first, last)}
        for row, parent in enumerate(groups.parent[first + 1 : last].tolist(), first + 1):
            below[parent].append(row)
        subgroups = self.snapshot.groups[group].subgroups
        for row, children in below.items():
            self._children[row] = tuple(sorted(children, key=lambda child: subgroups[child - first].name))

    def group_of_subgroup(self, subgroup: int) -> int:
        """Return the group that a sub-group belongs to."""
        return int(np.searchsorted(self.facts.groups.first_subgroup, subgroup, side="right")) - 1

    def subgroup_name(self, subgroup: int) -> str:
        """Return the name of a sub-group within its group."""
        return self._subgroup(subgroup).name

    def has_own_minimum(self, subgroup: int) -> bool:
        """Say whether an inner sub-group declares how many children it needs, rather than needing all of them."""
        return self._subgroup(subgroup).minimum is not None

    def _subgroup(self, row: int) -> SubGroup:
        group = self.group_of_subgroup(row)
        return self.snapshot.groups[group].subgroups[row - int(self.facts.groups.first_subgroup[group])]

    def portion(self, group: int) -> Portion:
        """Return the whole of ``group``; the same object all through the session."""
        if group not in self._portions:
            self._portions[group] = Portion(self, group)
        return self._portions[group]

    def waiting_groups(self) -> GroupRows:
        """Return the groups that have pending pods and enough of them, and whose turn it is, oldest first.

        The order in which heaps are filled.
        """
        # Epochs only grow, so their sum tells whether any pod changed its status since.
        changes = int(self.columns.epoch.sum())
        if self._waiting is None or self._waiting[0] != changes:
            waiting = np.zeros(len(self.snapshot.groups), np.bool_)
            groups.find_waiting(self.facts, self.columns, waiting)
            waiting[self.snapshot.crowds.waiting] = False
            rows = np.flatnonzero(waiting).astype(np.int64)
            self._waiting = changes, self.oldest_first(rows[self.are_ready(rows)])
        return self._waiting[1]

    def are_ready(self, rows: GroupRows) -> Bools:
        """Return bool[n]: which groups have enough pods to be worth trying; gated ones do not count."""
        facts = self.facts.groups
        roots = facts.first_subgroup[rows]
        # Of a root that needs its only child just that child's pods matter.
        flat = (facts.first_subgroup[rows + 1] - roots == ROOT_AND_LEAF) & (facts.minimum[roots] == 1)
        ready: Bools = np.zeros(len(rows), np.bool_)
        mine = roots[flat] + 1
        ready[flat] = self.columns.active[mine] + self.columns.pending[mine] >= facts.minimum[mine]
        ready[~flat] = [self._is_ready(group) for group in rows[~flat].tolist()]
        return ready

    def _is_ready(self, group: int) -> bool:
        before = self.attend(group)
        ready = self.portion(group).is_ready()
        self.attend(before)
        return ready

    def attend(self, group: int) -> int:
        """Let the observer know which group is looked at, and return which one was before; -1 for none.

        A caller that fails leaves it as it is: that is what the outside wants to know then.
        """
        before, self._at_group = self._at_group, group
        self.observer.group(group)
        return before

    def oldest_first(self, rows: GroupRows) -> GroupRows:
        """Return group ``rows`` by creation time, then uid."""
        return rows[np.argsort(self.group_keys[rows, -1])]

    def gang_size(self, group: int) -> int:
        """Return how many pods the group needs at least, over all its leaves."""
        if group < 0:
            return 0
        portion = self.portion(group)
        return sum(portion.minimum(leaf) for leaf in portion.leaves)

    def accepted(self, pod: int) -> Float64s:
        """Return float64[3]: what ``pod`` counts for in quota where it is, in axis units."""
        shape = int(self.facts.pods.shape[pod])
        out = self.facts.shapes.request[shape, :3].astype(np.float64)
        out[2] = booking.accepted_gpu(self.facts, shape, int(self.columns.node[pod]))
        return out

    def devices_of(self, pod: int) -> tuple[str, ...]:
        """Return the names of the shared devices of a pod; ``+node/n`` stands for one that is opened in this cycle."""
        if not self.columns.placement[pod]:
            return ()
        return self.grants.devices_of(np.array([pod], np.int64))[0]

    def footprint(self, shape: int) -> tuple[int, ...]:
        """Return what a pod of ``shape`` asks for, as a tuple that can be compared."""
        known = self._footprints.get(shape)
        if known is None:
            known = self._footprints[shape] = tuple(self.facts.shapes.request[shape].tolist())
        return known

    # ------------------------------------------------------------------ nodes for a pod

    def node_scores(self, pod: int, nodes: NodeRows, extra: Float64s) -> Float64s:
        """Return float64[n]: scores of ``nodes`` for ``pod``, terms and hooks together; NaN where a hook refused."""
        shape = int(self.facts.pods.shape[pod])
        self.policy.prepare(shape, PodRow(pod), self.all_nodes)
        self.grant_credit(pod, nodes)
        scores = self._term_scores(shape, nodes, extra, self.policy.rules)
        waits = self.policy.must_wait(PodRow(pod), nodes)
        if waits.any():
            scores = np.where(waits, self._term_scores(shape, nodes, extra, self.policy.waiting_rules), scores)
        for plugin in self.policy.asking(shape):
            hooks = plugin.hooks
            # What depends on the shape alone is in the policy's vectors.
            if hooks.filter_nodes is not None and hooks.filter_depends is not Dependence.SHAPE:
                scores[~checked_mask(plugin, PodRow(pod), nodes)] = np.nan
            if hooks.score_nodes is not None and hooks.score_depends is not Dependence.SHAPE:
                scores += checked_scores(plugin, PodRow(pod), nodes)
        return scores

    def answers(self, pod: int, shape: int) -> Float64s:
        """Return float64[N]: what ``Policy.answers`` says of all nodes; the caller does not change it.

        Where the plugin looks at nothing but the group, it is asked once for all groups that are nowhere yet.
        """
        leaf = int(self.facts.pods.leaf[pod])
        nowhere = bool(self.policy.lonely[shape] and self.facts.groups.simple[self.facts.pods.group[pod]])
        if not nowhere or self.columns.occupying[leaf]:
            return self.policy.answers(PodRow(pod), shape, self.all_nodes)
        return self.policy.first_answers(PodRow(pod), shape, self.all_nodes)

    def _term_scores(self, shape: int, nodes: NodeRows, extra: Float64s, rules: Rules) -> Float64s:
        scores = np.empty(len(nodes), np.float64)
        score.score_nodes(self.facts, self.columns, rules, self.policy.vectors, shape, nodes, extra, scores)
        return scores

    def grant_credit(self, pod: int, nodes: NodeRows) -> None:
        """Let ``nodes`` know how much less of a GPU ``pod`` needs there, because what it asks for is in use already."""
        shape = int(self.facts.pods.shape[pod])
        if not self.facts.shapes.credit[shape]:
            return
        rows = self.facts.nodes.credits
        rows[:, nodes] = 0
        for plugin in self.policy.asking(shape):
            if plugin.hooks.credit_nodes is not None:
                rows[:, nodes] += plugin.hooks.credit_nodes(PodRow(pod), nodes)

    def scores_below(self, subgroup: int) -> Float64s:
        """Return float64[N]: what partitions add to node scores for a leaf, of the nearest sub-group that has any."""
        row = subgroup
        while row >= 0:
            if row in self.subgroup_scores:
                return self.subgroup_scores[row]
            row = int(self.facts.groups.parent[row])
        return self.no_extra

    # ------------------------------------------------------------------ statements and records

    def statement(self, action: str, cause: Cause | None = None, aggressor: int = -1, rule: str = "") -> Statement:
        """Begin a statement."""
        return Statement(self, action, cause, aggressor, rule)

    def emit(self, action: str, *statements: tuple[Decision, ...]) -> None:
        """Hand out the decisions of committed statements, one statement at a time."""
        for kind, count in _kinds(statements):
            self.counts[_COUNTED_AS[kind]] += count
        if action != "allocate":
            for decisions in statements:
                self._note_help(decisions)
        take, committed = self._sink.take, self.observer.committed
        for decisions in statements:
            take(decisions)
            committed(action, len(decisions))

    def record(self, group: int) -> GroupRecord:
        """Return the record of ``group``."""
        return self.records.of(group)

    def refuse(self, group: int, verdict: Verdict) -> None:
        """Remember why ``group`` waits; a reason that is known already is not repeated."""
        self.records.refuse(group, verdict.reasons)

    def awaited(self) -> tuple[str, ...]:
        """Return the keys of groups for which pods were evicted, now or before, and which wait for their places.

        They are in the order in which they were helped: what one search found assumes what those before it did.
        """
        if not self._helped:
            return ()
        waiting = self.snapshot.pod_group[self.pods_in(1 << Status.PIPELINED)]
        promised = {self.snapshot.groups[row].key for row in np.unique(waiting[waiting >= 0])}
        return tuple(key for key in self._helped if key in promised)

    def _note_help(self, decisions: tuple[Decision, ...]) -> None:
        """Remember who gains by a search; who loses pods, or has them moved, has its turn like all others."""
        of_pod = self.snapshot.pod_group
        losing = {int(of_pod[each.pod]) for each in decisions if isinstance(each, Evict)}
        gaining = {int(of_pod[each.pod]) for each in decisions if isinstance(each, Nominate)} - losing
        for group in losing - {-1}:
            self._helped.pop(self.snapshot.groups[group].key, None)
        for group in sorted(gaining):
            self._helped.setdefault(self.snapshot.groups[group].key)

    def close(self) -> None:
        """Tell plugins that the cycle is over."""
        for plugin in self.policy.plugins:
            if plugin.hooks.close is not None:
                self.observer.plugin(plugin.name)
                plugin.hooks.close()
        self.observer.plugin("")

    def release(self) -> None:
        """Let go of everything: hooks and session hold each other, and megabytes need not wait for the collector."""
        arena, memory = self.ledger.arena, self.snapshot.memory
        self.__dict__.clear()
        Base.leave_arena(arena, memory)

    def pods_in(self, statuses: int) -> PodRows:
        """Return all pods whose status is in the mask."""
        return np.flatnonzero((statuses >> self.columns.status) & 1).astype(np.int64)


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
