"""The world of one cycle: its snapshot, its ledger and its rules, and what follows from these three alone.

Statements change a world; everything else only reads it. Portions, heaps, details and statements take a world rather
than the session, which opens last and hands decisions out.
"""

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Final, Literal

import numpy as np

from kai.deciding.engine.host import Clock
from kai.deciding.engine.opened import OpenedPlugin
from kai.deciding.engine.policy import Policy, by_placement, mask_of, scores_of
from kai.deciding.engine.shortcuts import BATCH, ONE_ANSWER, RATED, Shortcut, takes
from kai.facts.compiled.struct import writable
from kai.facts.kernels import booking, score
from kai.facts.kernels.columns import Columns, Facts
from kai.facts.kernels.fit import Rules
from kai.facts.kernels.groups import find_places
from kai.facts.model.axis import Bools, Float64s, GroupRows, Int64s, NodeRows, PodRow, PodRows
from kai.facts.model.groups import SubGroup
from kai.facts.state.base import Base, Opening
from kai.facts.state.facts import next_quota_change, requested_amounts
from kai.facts.state.kept import pods_by_leaf, timed_groups
from kai.facts.state.ledger import Ledger, Tracked
from kai.facts.state.snapshot import Snapshot
from kai.framework.parameters import AS_PEER, Parameters

FEW: Final = 64
"""Up to this many groups, plus one per this many groups in all, are ranked by age one by one."""


class World:
    """The world that actions decide on. The constructor sets the facts; ``adopt`` then adds the plugins' extensions."""

    policy: Policy
    """The folded extensions of all plugins; set once they have opened."""
    ledger: Ledger
    """The ledger: pods, the amounts that they hold, and their nodes; set once plugins have opened."""
    key_count: int
    """The number of keys that order groups; set once plugins have opened. The last key is unique."""

    def __init__(self, snapshot: Snapshot, base: Base, parameters: Parameters) -> None:
        """Set up the facts of ``snapshot`` and the columns as booked; nothing can be placed until ``adopt``."""
        self.snapshot = snapshot
        self.base = base
        self.parameters = parameters
        self.clock = Clock(snapshot.now)
        # Asked for its side effect: a report that is repeated must not outlive the next change of a quota.
        self.clock.is_past(next_quota_change(snapshot))
        self.all_nodes: NodeRows = np.arange(len(snapshot.nodes), dtype=np.int64)
        self.no_extra: Float64s = np.zeros(len(snapshot.nodes), np.float64)
        self.last_start = base.groups.last_start
        self.last_eviction = base.groups.last_eviction
        self.stale_since = base.groups.stale_since
        self.partial_since = base.groups.partial_since
        self.facts: Facts = _own_facts(base.facts, as_peer=not self.ranks_victims)
        self.requested = requested_amounts(snapshot, self.facts.nodes, largest=False, able=self.ranks_victims)
        self.limit_amounts = requested_amounts(snapshot, self.facts.nodes, largest=True)
        self._live: Ledger | Opening
        self._live = opening = base.open(snapshot)
        self.lacking = opening.lacking
        """Leaf sub-groups that had fewer pods on nodes than their minimum when the session opened."""
        self._tracked: list[Tracked] = []
        self._given: dict[int, Tracked] = {}
        """Columns that plugins have as targets of effects, their own and the engine's, by identity."""
        self._children: dict[int, tuple[int, ...]] = {}
        self._footprints: dict[int, tuple[int, ...]] = {}
        self.subgroup_scores: dict[int, Float64s] = {}
        self.term_scores: dict[int, tuple[Float64s, Int64s]] = {}
        """Scores of terms on all nodes by shape, with their inputs, for shapes whose nodes plugins rate."""

    # ------------------------------------------------------------------ opening

    def track(self, initial: Int64s) -> Tracked:
        """Register a plugin's column; it lives at the end of the arena once plugins have opened.

        Raises: TypeError for numbers that are not whole, and after plugins have opened, when the arena is fixed.
        """
        if initial.dtype.kind not in "iu":
            raise TypeError(f"track: found {initial.dtype}{list(initial.shape)}, expected int64")
        if isinstance(self._live, Ledger):
            raise TypeError("track: found that plugins have opened, expected a call in open")
        column = Tracked(initial.astype(np.int64))
        self._tracked.append(column)
        self._given[id(column)] = column
        return column

    def engine_column(self, name: str) -> Tracked:
        """Return a column of the engine by name, as a target of effects."""
        layout = self.base.layout
        cells = prod(layout.sizes.shapes()[name])
        column = Tracked(np.zeros(0, np.int64), offset=getattr(layout.offsets, name), cells=cells)
        self._given[id(column)] = column
        return column

    def has_column(self, column: Tracked) -> bool:
        """Return whether this world gave ``column`` to a plugin."""
        return id(column) in self._given

    def adopt(self, plugins: Sequence[OpenedPlugin]) -> None:
        """Fold the extensions of ``plugins`` into one policy, and open the ledger. Cost: O(arena + plugins)."""
        if any(plugin.placement is not None and plugin.placement.credit is not None for plugin in plugins):
            # Written for each pod that has some, so this session needs an array of its own.
            nodes = self.facts.nodes
            self.facts = self.facts.replace(nodes=nodes.replace(credits=np.zeros_like(nodes.credits)))
        policy = self.policy = Policy(plugins, self.facts)
        policy.single &= self.takes(ONE_ANSWER)
        policy.scored &= self.takes(RATED)
        if not self.takes(BATCH):
            policy.batching[:] = -1
        self._adopt_shares(policy)
        self._order_pods(policy)
        opening = self._live
        if isinstance(opening, Ledger):
            raise TypeError("plugins of a world: found that they were adopted before, expected once")
        layout = self.base.layout
        ledger = self.ledger = self._live = Ledger(
            layout, self.facts, opening.arena, opening.room, self._tracked, opening.columns
        )
        for plugin in policy.plugins:
            if plugin.placement is None:
                continue
            ledger.add_all((each.column, each.index, each.delta) for each in plugin.placement.corrections)
            if plugin.placement.credit is not None:
                self.facts.shapes.credit[slice(None) if plugin.concerns is None else plugin.concerns] = True
        # The effects of plugins at opening are part of the facts: no statement may undo them.
        ledger.seal()
        self.key_count = (self.group_keys if policy.orders_groups else self.keys_of(np.zeros(0, np.int64))).shape[1]

    def _adopt_shares(self, policy: Policy) -> None:
        shares = policy.fair_shares
        if shares is not None:
            queues = self.facts.queues.replace(
                fair_share=shares.fair_share, allocatable=shares.allocatable, total=shares.total
            )
            if shares.takes_by_priority:
                queues = queues.replace(rank=queues.priority)
            if shares.past_use is not None and self.ranks_victims:  # the peer orders equal queues by age alone
                queues = queues.replace(past_use=shares.past_use)
            if shares.models is not None and shares.bound is not None:
                queues = queues.replace(deserved=shares.models)
                self.facts = self.facts.replace(groups=self.facts.groups.replace(bound=shares.bound))
            self.facts = self.facts.replace(queues=queues)

    def _order_pods(self, policy: Policy) -> None:
        if not policy.orders_pods or not len(self.snapshot.pods):
            return
        pods = np.arange(len(self.snapshot.pods), dtype=np.int64)
        keys = policy.pod_keys(pods)
        if keys is not None and (keys != keys[0]).any():
            rank = np.empty(len(pods), np.float64)
            rank[self.base.pod_order] = np.arange(len(pods))
            # `lexsort` sorts by its last key first, hence the reversal. The rank in the base's order comes last:
            # plugins refine that order, and pods that they do not distinguish stay as they were.
            order = np.lexsort((rank, *keys.T[::-1])).astype(np.int64)
            _, by_leaf = pods_by_leaf(self.facts.pods.leaf, order, int(self.snapshot.first_subgroup[-1]))
            self.facts = self.facts.replace(groups=self.facts.groups.replace(pods=by_leaf))

    @cached_property
    def group_keys(self) -> Float64s:
        """float64[G, k]: the keys that order groups, once plugins have opened; the last key is unique."""
        rows = np.arange(len(self.snapshot.groups), dtype=np.int64)
        keys = self.policy.group_keys(rows, self._order_priorities)
        # The place by age makes the order total. With a tie, the moves inside a heap would decide who is served first.
        keys[self.base.group_order, -1] = rows
        return keys

    @cached_property
    def _order_priorities(self) -> Int64s | Float64s:
        """[G] The priority by which groups are ordered: one that has run for as long as it wished follows its equals.

        Otherwise a group that made way would come first again, being older, and take its place back.
        """
        past, priority = self.past_wishes(), self.base.groups.priority
        # Priorities are whole numbers: half of one lets a group follow its equals and stay before all lower ones.
        return priority - 0.5 * past if past.any() else priority

    @cached_property
    def victim_ranks(self) -> Float64s:
        """float64[G]: the rank of each group as a victim; the group that would lose least work by going comes last.

        Ranks go by when groups started, as the session opened. A group that has not started goes by its creation time.
        """
        created, started = self.base.groups.created, self.base.groups.last_start
        since = np.where(np.isnan(started), created, started)
        ranks = np.empty(len(since), np.float64)
        ranks[self.base.group_order[np.argsort(since[self.base.group_order], kind="stable")]] = np.arange(len(since))
        return ranks

    @property
    def ranks_victims(self) -> bool:
        """Whether victims are chosen by what they would lose, rather than in the order of the peer."""
        return self.parameters.victims != AS_PEER

    def keys_of(self, groups: GroupRows) -> Float64s:
        """Return float64[n, k]: the rows of ``group_keys`` for ``groups``.

        For few groups they are computed alone, unless a plugin orders groups: it is asked about all at once.
        """
        places = np.empty(len(groups), np.int64)
        if (
            # Computed for all groups before: then a look-up is cheaper than computing a few.
            "group_keys" in self.__dict__
            or len(groups) > FEW + len(self.snapshot.groups) // FEW
            or self.policy.orders_groups
            or not find_places(writable(self.base.groups.created), self.base.group_order, groups, places)
        ):
            return self.group_keys[groups]
        keys = self.policy.group_keys(groups, self._order_priorities[groups])
        keys[:, -1] = places
        return keys

    def note_time(
        self,
        times: Literal["last_start", "last_eviction", "stale_since", "partial_since"],
        groups: GroupRows | int,
        instant: float,
    ) -> None:
        """Record the time of an event of ``groups``. The array of the snapshot is copied before its first change."""
        if getattr(self, times) is getattr(self.base.groups, times):
            setattr(self, times, getattr(self, times).copy())
        getattr(self, times)[groups] = instant

    def changed_groups(self, *others: GroupRows, since: int = 0) -> GroupRows:
        """Return the groups whose pods changed status after change number ``since``, and ``others``; ascending.

        Returns all groups if more changes happened than the ring buffer holds.
        """
        ring, now, count = self.columns.changed, self.changes(), len(self.snapshot.groups)
        if now - since > len(ring):
            return np.arange(count, dtype=np.int64)
        found = np.concatenate([ring[np.arange(since, now) % len(ring)], *others])
        if len(found) < count // FEW:
            return np.unique(found)
        chosen = np.zeros(count, np.bool_)  # for many groups, marking them is faster than sorting
        chosen[found] = True
        return np.flatnonzero(chosen)

    def changes(self) -> int:
        """Return the number of status changes of pods in groups so far."""
        return int(self.columns.changes[0])

    def release(self) -> None:
        """Drop all references at once: plugins and world form cycles, whose megabytes would wait for the collector."""
        ledger, base, snapshot, lacking = self.ledger, self.base, self.snapshot, self.lacking
        self.__dict__.clear()
        base.leave(snapshot, ledger, lacking)

    # ------------------------------------------------------------------ what there is

    def takes(self, shortcut: Shortcut) -> bool:
        """Return whether ``shortcut`` is on in this cycle."""
        return takes(self.parameters, shortcut)

    @property
    def columns(self) -> Columns:
        """The live columns; before the ledger is open, the columns as they were booked."""
        return self._live.columns

    @property
    def constrained(self) -> Bools:
        """bool[G]: groups with a sub-group whose pods must stay together."""
        return self.base.constrained

    @property
    def priorities(self) -> Int64s:
        """int64[G]: the priority of each group."""
        return self.base.groups.priority

    def past_wishes(self) -> Bools:
        """Return bool[G]: groups that yield and have run, since they started last, for as long as they wished."""
        yields = self.base.groups.yields
        rows = timed_groups(self.snapshot, "yielding", yields)
        past = np.zeros(len(yields), np.bool_)
        if len(rows):
            until = self.last_start[rows] + yields[rows]
            past[rows] = self.clock.are_past(until)  # NaN, where it never started, is past nothing
        return past

    @property
    def trees(self) -> Int64s:
        """int64[G]: equal numbers for groups with the same sub-groups."""
        return self.base.groups.tree

    def children(self, subgroup: int) -> tuple[int, ...]:
        """Return the rows of the children of a sub-group, sorted by name."""
        known = self._children.get(subgroup)
        if known is None:
            self._learn_children(self.group_of_subgroup(subgroup))
            known = self._children[subgroup]
        return known

    def _learn_children(self, group: int) -> None:
        """Memoize the children of all sub-groups of ``group``. Cost: sorting them, once."""
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
        return int(self.facts.groups.first_subgroup.searchsorted(subgroup, side="right")) - 1

    def subgroup_name(self, subgroup: int) -> str:
        """Return the name of a sub-group within its group."""
        return self._subgroup(subgroup).name

    def has_own_minimum(self, subgroup: int) -> bool:
        """Return whether an inner sub-group declares how many children it needs; without that it needs all of them."""
        return self._subgroup(subgroup).minimum is not None

    def _subgroup(self, row: int) -> SubGroup:
        group = self.group_of_subgroup(row)
        return self.snapshot.groups[group].subgroups[row - int(self.facts.groups.first_subgroup[group])]

    def pods_of(self, group: int) -> PodRows:
        """Return all pods of ``group`` that belong to a sub-group, in pod order within each."""
        groups = self.facts.groups
        first, last = groups.first_subgroup[group], groups.first_subgroup[group + 1]
        return groups.pods[groups.pod_start[first] : groups.pod_start[last]]

    def pods_in(self, statuses: int) -> PodRows:
        """Return all pods whose status is in the mask."""
        return np.flatnonzero((statuses >> self.columns.status) & 1).astype(np.int64)

    def oldest_first(self, rows: GroupRows) -> GroupRows:
        """Return group ``rows`` by creation time, then uid."""
        return rows[np.argsort(self.keys_of(rows)[:, -1])]

    def accepted(self, pod: int) -> Float64s:
        """Return float64[3]: the amounts that quota counts for ``pod`` where it is, in axis units."""
        shape = int(self.facts.pods.shape[pod])
        out = self.facts.shapes.request[shape, :3].astype(np.float64)
        out[2] = booking.accepted_gpu(self.facts, shape, int(self.columns.node[pod]))
        return out

    def footprint(self, shape: int) -> tuple[int, ...]:
        """Return the request of a pod of ``shape`` as a tuple that can be compared."""
        known = self._footprints.get(shape)
        if known is None:
            known = self._footprints[shape] = tuple(self.facts.shapes.request[shape].tolist())
        return known

    @cached_property
    def heap_start(self) -> Int64s:
        """int64[Q + 2]: where the storage of each queue's heap of groups begins (the root is queue Q).

        Each heap has room for one entry more than it may keep: an entry beyond the depth is appended before the last
        one is dropped.
        """
        queues = len(self.snapshot.queues)
        owners, parents = self.base.facts.groups.queue, self.base.facts.queues.parent

        def start() -> Int64s:
            counts = 1 + np.bincount(owners + 1, minlength=queues + 2)[1:]  # the first is for groups of no queue
            counts += np.bincount(np.where(parents >= 0, parents, queues), minlength=queues + 1)
            return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

        return self.snapshot.memory.once("heaps of queues", (owners, parents), start)

    # ------------------------------------------------------------------ nodes for a pod

    def node_scores(self, pod: int, nodes: NodeRows, extra: Float64s) -> tuple[Float64s, Bools]:
        """Return float64[n]: the scores of ``nodes`` for ``pod`` by terms and plugins, NaN where a plugin refused.

        Also return bool[n]: on which of them a plugin makes the pod wait.
        """
        policy, shape = self.policy, int(self.facts.pods.shape[pod])
        policy.prepare(shape, PodRow(pod), self.all_nodes)
        self.grant_credit(pod, nodes)
        scores = self._term_scores(shape, nodes, extra, policy.rules)
        waits = policy.must_wait(PodRow(pod), nodes)
        if waits.any():
            scores = np.where(waits, self._term_scores(shape, nodes, extra, policy.waiting_rules), scores)
        for plugin in policy.asking(shape):
            # Answers that depend on the shape alone are already in the policy's vectors.
            if by_placement(plugin.node_filter):
                scores[~mask_of(plugin, PodRow(pod), nodes)] = np.nan
            if by_placement(plugin.node_score):
                scores += scores_of(plugin, PodRow(pod), nodes)
        return scores, waits

    def answers(self, pod: int, shape: int) -> Float64s:
        """Return float64[N]: ``Policy.answers`` for all nodes; the caller must not change it.

        A plugin that looks only at the group is asked once for all groups of one pod that have none placed yet.
        """
        leaf = int(self.facts.pods.leaf[pod])
        unplaced = bool(self.policy.single[shape] and self.facts.groups.simple[self.facts.pods.group[pod]])
        if not unplaced or self.columns.occupying[leaf]:
            return self.policy.answers(PodRow(pod), shape, self.all_nodes)
        return self.policy.first_answers(PodRow(pod), shape, self.all_nodes)

    def _term_scores(self, shape: int, nodes: NodeRows, extra: Float64s, rules: Rules) -> Float64s:
        scores = np.empty(len(nodes), np.float64)
        score.score_nodes(self.facts, self.columns, rules, self.policy.vectors, shape, nodes, extra, scores)
        return scores

    def grant_credit(self, pod: int, nodes: NodeRows) -> None:
        """Book for ``nodes`` how much less of a GPU ``pod`` needs there because what it requests is in use already."""
        shape = int(self.facts.pods.shape[pod])
        if not self.facts.shapes.credit[shape]:
            return
        rows, whole = self.facts.nodes.credits, nodes is self.all_nodes
        rows[:, slice(None) if whole else nodes] = 0
        for plugin in self.policy.asking(shape):
            if plugin.placement is not None and plugin.placement.credit is not None:
                rows[:, slice(None) if whole else nodes] += plugin.placement.credit(PodRow(pod), nodes)

    def scores_below(self, subgroup: int) -> Float64s:
        """Return float64[N]: the scores that partitions add for a leaf; the nearest sub-group with any decides."""
        row = subgroup
        while row >= 0:
            if row in self.subgroup_scores:
                return self.subgroup_scores[row]
            row = int(self.facts.groups.parent[row])
        return self.no_extra


def _own_facts(facts: Facts, *, as_peer: bool) -> Facts:
    """Return ``facts`` with own arrays for the columns that plugins fill; ``as_peer`` keeps the peer's books."""
    # All sessions on a snapshot share the base, and `replace` shares every other array with it. Whatever a session
    # writes must therefore be an array of its own.
    shapes = facts.shapes.replace(
        mask=np.zeros_like(facts.shapes.mask),
        score=np.zeros_like(facts.shapes.score),
        credit=np.zeros_like(facts.shapes.credit),
    )
    queues = facts.queues.replace(
        fair_share=np.zeros_like(facts.queues.fair_share),
        allocatable=np.zeros_like(facts.queues.allocatable),
        total=np.zeros_like(facts.queues.total),
    )
    nodes, groups = facts.nodes, facts.groups
    # Otherwise they stay the same objects, for which kernels have their memory already.
    if as_peer:
        nodes, groups = nodes.replace(books_as_peer=True), groups.replace(each_leaf=True)
    return facts.replace(nodes=nodes, shapes=shapes, groups=groups, queues=queues)
