"""A portion: a pod group or a part of one. It knows what to place next and what to give up first.

Actions work on portions. A whole group is a portion. So are the running pods and the first k waiting ones, while a
search probes how much of a gang it can serve, and so is the rest of a victim after it has lost some pods. A part may
need less than the group (``minimum``) and memoizes answers of its own.

Source: the peer's podgroup_info (tasks to allocate, tasks to evict), subgroup_info and its sub-group order plugin.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from kai.basics.trees import Descent, descend
from kai.deciding.engine.world import World
from kai.facts.kernels.columns import PENDING, RELEASING
from kai.facts.kernels.groups import ROOT_AND_LEAF, next_chunk, sum_waiting
from kai.facts.model.axis import Float64s, Int64s, PodRows
from kai.facts.model.pod import ACTIVE_ALLOCATED, ACTIVE_USED, COUNTED, Status, within

NOTHING: PodRows = np.zeros(0, np.int64)


class Portion:
    """Some pods of one group, or all. Sub-groups are identified by their rows in the sub-group table."""

    def __init__(
        self,
        world: World,
        group: int,
        pods: dict[int, PodRows] | None = None,
        minimum: dict[int, int] | None = None,
    ) -> None:
        """Take all pods of ``group``, or ``pods`` by leaf; ``minimum`` overrides what sub-groups need."""
        self.group = int(group)
        self.root = int(world.facts.groups.first_subgroup[group])
        """The row of the group's root sub-group."""
        self._world = world
        self._pods = pods
        self._minimum = minimum or {}
        self._epoch = -1
        self._chunk = NOTHING
        self._reached: list[int] = []
        """Memoized values of `reached`, by sub-group; valid for one epoch of the group."""
        self._reached_epoch = -1
        self._amounts: Float64s | None = None
        self._waiting_below: list[int] = []
        """The number of waiting pods below each sub-group; set while a chunk is computed."""
        self._in_reach: list[int] | None = None
        """The values of `reached` if all waiting pods had a place; set on demand while a chunk is computed."""

    @cached_property
    def leaves(self) -> list[int]:
        """The rows of the leaves."""
        leaf = self._world.facts.groups.leaf
        return [row for row in self._rows if leaf[row]]

    @property
    def _rows(self) -> range:
        """The rows of all sub-groups; parents come before children."""
        return range(self.root, int(self._world.facts.groups.first_subgroup[self.group + 1]))

    @property
    def _slice(self) -> slice:
        """The slice of the group's rows in columns of sub-groups."""
        return slice(self._rows.start, self._rows.stop)

    @cached_property
    def _minimums(self) -> Int64s:
        """[n] The values of `minimum`, by sub-group."""
        minimums = self._world.facts.groups.minimum[self._slice].copy()
        for row, minimum in self._minimum.items():
            minimums[row - self.root] = minimum
        return minimums

    @cached_property
    def _parents(self) -> list[int]:
        """The parent of each sub-group; both count from the root."""
        return [parent - self.root for parent in self._world.facts.groups.parent[self._slice].tolist()]

    @cached_property
    def _pods_of_part(self) -> PodRows:
        return np.concatenate([self.pods_of(leaf) for leaf in self.leaves]) if self.leaves else NOTHING

    def pods_of(self, leaf: int) -> PodRows:
        """Return the pods of a leaf in pod order."""
        if self._pods is not None:
            return self._pods.get(leaf, NOTHING)
        groups = self._world.facts.groups
        return groups.pods[groups.pod_start[leaf] : groups.pod_start[leaf + 1]]

    def pods(self, subgroup: int | None = None) -> PodRows:
        """Return all pods below ``subgroup``; of the whole portion if it is None."""
        if subgroup is None:
            return self._world.pods_of(self.group) if self._pods is None else self._pods_of_part
        below = self.leaves_below(subgroup)
        return np.concatenate([self.pods_of(leaf) for leaf in below]) if below else NOTHING

    def leaves_below(self, subgroup: int) -> list[int]:
        """Return the leaves of the tree under ``subgroup``; a leaf itself if it is one."""
        leaf = self._world.facts.groups.leaf
        found: list[int] = []
        open_rows = [subgroup]
        while open_rows:
            row = open_rows.pop()
            if leaf[row]:
                found.append(row)
            else:
                open_rows += reversed(self._world.children(row))
        return found

    def holding(self, statuses: int, pods: PodRows | None = None) -> PodRows:
        """Return the pods, of ``pods`` or of the portion, whose status is in the mask ``statuses``."""
        mine = self.pods() if pods is None else pods
        return mine[((statuses >> self._world.columns.status[mine]) & 1).astype(np.bool_)]

    def active(self, leaf: int) -> int:
        """Return the number of pods of a leaf that have a place."""
        if self._pods is None:
            return int(self._world.columns.active[leaf])
        return len(self.holding(ACTIVE_ALLOCATED, self.pods_of(leaf)))

    def occupying(self, leaf: int) -> int:
        """Return the number of pods of a leaf that occupy a node, terminating ones included."""
        if self._pods is None:
            return int(self._world.columns.occupying[leaf])
        return len(self.holding(ACTIVE_USED, self.pods_of(leaf)))

    def minimum(self, subgroup: int) -> int:
        """Return the number of pods that a leaf needs, or of satisfied children that an inner sub-group needs."""
        return self._minimum.get(subgroup, int(self._world.facts.groups.minimum[subgroup]))

    def reached(self, subgroup: int) -> int:
        """Return the number of pods of a leaf, or of satisfied children of an inner sub-group."""
        return self._reached_now()[subgroup - self.root]

    def _reached_now(self) -> list[int]:
        epoch = int(self._world.columns.epoch[self.group])
        if epoch != self._reached_epoch:
            self._reached, self._reached_epoch = self._counted(self._per_leaf(self.holding(ACTIVE_ALLOCATED))), epoch
        return self._reached

    def _per_leaf(self, pods: PodRows) -> list[int]:
        """Return, by sub-group, the number of ``pods`` in a leaf; 0 for an inner one."""
        leaves = self._world.facts.pods.leaf[pods] - self.root
        counts: list[int] = np.bincount(leaves, minlength=len(self._rows)).tolist()
        return counts

    def _counted(self, counts: list[int]) -> list[int]:
        """Return, by sub-group, the ``counts`` of a leaf, or the number of satisfied children of an inner one.

        Cost: one look at each sub-group, however deep the tree.
        """
        minimums, parents = self._minimums.tolist(), self._parents
        for at in range(len(counts) - 1, 0, -1):
            # Children come after their parents, so this count is final by now.
            if counts[at] >= minimums[at]:
                counts[parents[at]] += 1
        return counts

    def is_satisfied(self, subgroup: int) -> bool:
        """Return whether a sub-group has at least its minimum."""
        return self.reached(subgroup) >= self.minimum(subgroup)

    def suffice(self, pods: PodRows) -> bool:
        """Return whether ``pods`` alone meet the minimums of the group's whole tree."""
        return self._counted(self._per_leaf(pods))[0] >= self.minimum(self.root)

    def is_gang_satisfied(self) -> bool:
        """Return whether every leaf that must be filled has enough pods on nodes.

        The group's tree determines which leaves must be filled.
        """
        if self._world.facts.groups.simple[self.group]:
            return self.occupying(self.root + 1) >= self.minimum(self.root + 1)
        return self._counted(self._per_leaf(self.holding(ACTIVE_USED)))[0] >= self.minimum(self.root)

    def has_pending(self) -> bool:
        """Return whether a pod of the portion waits for a place."""
        if self._pods is None:
            return bool(self._world.columns.pending[self._slice].any())
        return bool(len(self.holding(1 << Status.PENDING)))

    def in_order(self, subgroups: Sequence[int]) -> list[int]:
        """Return ``subgroups``, which come sorted by name, in the order in which they are served.

        Unsatisfied ones come first. Then come those with a minimum, the emptiest first, and then those without one, the
        smallest first. Ties go by name.
        """
        if not self._world.policy.sub_group_fill or len(subgroups) <= 1:
            return list(subgroups)
        rows = np.array(subgroups, np.int64)
        needed, reached = self._minimums[rows - self.root], np.array(self._reached_now(), np.int64)[rows - self.root]
        is_satisfied = reached >= needed
        filled = np.where(is_satisfied, reached / np.maximum(needed, 1), 0.0)
        # `lexsort` is stable, so ties keep the order by name in which sub-groups come.
        in_order: list[int] = rows[np.lexsort((filled, is_satisfied & (needed <= 0), is_satisfied))].tolist()
        return in_order

    # ------------------------------------------------------------------ what to place next

    def chunk(self) -> PodRows:
        """Return the pods that one attempt places.

        These are all pods that the group lacks to its minimum, or else one more pod or one more sub-group.

        The chunk is memoized until a pod of the group changes its status. Pods that the open statement evicted count as
        waiting. They stop counting at the commit, but a chunk computed before keeps them: decisions of the peer depend
        on that.
        """
        self._answer()
        return self._chunk

    def amounts(self) -> Float64s:
        """Return float64[3]: the CPU, memory and GPU that the chunk is assumed to request, in axis units.

        The amounts are memoized like the chunk, but from the first call on: pods of the chunk that no longer wait at
        that moment count nothing. The order of queues depends on that.
        """
        self._answer()
        if self._amounts is None:
            world = self._world
            self._amounts = sum_waiting(world.facts, world.columns, world.requested, self._chunk)
        return self._amounts

    def _answer(self) -> None:
        epoch = int(self._world.columns.epoch[self.group])
        # The epoch of a group counts its pods' status changes, so it is the key of everything memoized here.
        if epoch == self._epoch:
            return
        self._epoch = epoch
        groups = self._world.facts.groups
        flat = groups.first_subgroup[self.group + 1] - self.root == ROOT_AND_LEAF and groups.minimum[self.root] == 1
        if self._pods is None and not self._minimum and flat:
            leaf = self.root + 1
            out = np.empty(max(1, len(self.pods_of(leaf))), np.int64)
            self._chunk = out[: next_chunk(self._world.facts, self._world.columns, leaf, out)]
        else:
            self._waiting_below = self._count_waiting()
            self._in_reach = None
            self._chunk = np.array(descend(self._chunk_of(self.root)), np.int64)
        self._amounts = None

    def _waiting(self, pods: PodRows) -> PodRows:
        """Return the pods among ``pods`` that are pending or that the open statement evicted."""
        columns = self._world.columns
        status = columns.status[pods]
        waiting: PodRows = pods[(status == PENDING) | ((status == RELEASING) & (columns.virtual[pods] > 0))]
        return waiting

    def _count_waiting(self) -> list[int]:
        counts = self._per_leaf(self._waiting(self.pods()))
        for at in range(len(counts) - 1, 0, -1):
            counts[self._parents[at]] += counts[at]
        return counts

    def _chunk_of(self, subgroup: int) -> Descent[list[int]]:
        if self._world.facts.groups.leaf[subgroup]:
            missing = self.minimum(subgroup) - self.active(subgroup)
            # Beyond its minimum a group grows by one pod at a time, so that the order of queues is asked in between.
            mine: list[int] = self._waiting(self.pods_of(subgroup))[: missing if missing > 0 else 1].tolist()
            return mine
        children = self.in_order(self._world.children(subgroup))
        if self.is_satisfied(subgroup):
            for child in children:
                if not self._waiting_below[child - self.root] or self._is_to_come(child):
                    continue
                first: list[int] = yield self._chunk_of(child)
                if first:
                    return first
            return []
        chunk: list[int] = []
        # Children beyond the minimum are not asked: what the group needs starts together, and no more.
        for child in self._first(children, self.minimum(subgroup)):
            if not self.is_satisfied(child):
                chunk += yield self._chunk_of(child)
        return chunk

    def _first(self, children: list[int], count: int) -> list[int]:
        """Return the first ``count`` of ``children``, taking those with too few pods last.

        The peer takes the first by name. A group whose other sub-groups could start then waits forever for one that has
        no pods yet, or none any more.
        """
        if count >= len(children):
            return children
        return sorted(children, key=self._has_too_few)[:count]

    def _has_too_few(self, subgroup: int) -> bool:
        """Return whether a sub-group lacks pods even if all its waiting pods got a place."""
        if self._in_reach is None:
            placed = self.holding(ACTIVE_ALLOCATED)
            self._in_reach = self._counted(self._per_leaf(np.concatenate([placed, self._waiting(self.pods())])))
        return self._in_reach[subgroup - self.root] < self.minimum(subgroup)

    def _is_to_come(self, subgroup: int) -> bool:
        """Return whether a sub-group beyond the group's minimum has no pod yet and could not start as a whole.

        It is not asked of a part of the group, because parts lack pods on purpose. The peer starts the pods that exist;
        they hold their places while the others find none.
        """
        if self._pods is not None or any(map(self.occupying, self.leaves_below(subgroup))):
            return False
        return self._has_too_few(subgroup)

    # ------------------------------------------------------------------ what to give up first

    def next_victims(self) -> tuple[PodRows, bool]:
        """Return the pods to give up first, and whether other pods with a place remain.

        First go, one by one, pods of optional sub-groups that lack pods, since they do no work alone. Then surplus pods
        go one by one, then surplus sub-groups as a whole, then everything. The first step is left out where victims are
        chosen as by the peer.
        """
        everything = self.holding(ACTIVE_ALLOCATED)
        partial = self.partial() if self._world.ranks_victims else []
        if partial:
            surplus = self.holding(ACTIVE_ALLOCATED, self.pods(partial[-1]))[-1:]
        else:
            surplus = descend(self._surplus(self.root))
        victims = surplus if len(surplus) else everything
        return victims, len(everything) > len(victims)

    def partial(self) -> list[int]:
        """Return the sub-groups that have too few pods with a place while the group has all that it needs.

        They come in the order in which sub-groups are served. A sub-group with a succeeded pod is about to end and is
        left out.
        """
        if self._world.facts.groups.simple[self.group] or not self.is_satisfied(self.root):
            return []
        found: list[int] = []
        open_rows = [self.root]
        while open_rows:
            row = open_rows.pop()
            if not self.is_satisfied(row):
                pods = self.pods(row)
                if len(self.holding(ACTIVE_ALLOCATED, pods)) and not len(self.holding(1 << Status.SUCCEEDED, pods)):
                    found.append(row)
            elif not self._world.facts.groups.leaf[row]:
                open_rows += reversed(self.in_order(self._world.children(row)))
        return found

    def _surplus(self, subgroup: int) -> Descent[PodRows]:
        if self._world.facts.groups.leaf[subgroup]:
            placed = self.holding(ACTIVE_ALLOCATED, self.pods_of(subgroup))
            return placed[-1:] if len(placed) > self.minimum(subgroup) else NOTHING
        satisfied = self.reached(subgroup)
        if satisfied == 0:
            return NOTHING
        children = self.in_order(self._world.children(subgroup))[::-1]
        for child in children:
            surplus: PodRows = yield self._surplus(child)
            if len(surplus):
                return surplus
        if satisfied > self.minimum(subgroup):
            for child in children:
                victims = self.holding(ACTIVE_ALLOCATED, self.pods(child))
                if len(victims):
                    return victims
        return NOTHING

    # ------------------------------------------------------------------ parts

    def part(self, pods: PodRows, *, shrink: bool = False) -> "Portion":
        """Return the part with only ``pods``; ``shrink`` lowers every minimum to what the part can have.

        Leaves that are empty in the part keep their minimum, as in the peer: the part then counts as below its minimum.
        """
        keep = np.zeros(len(self._world.columns.status), np.bool_)
        keep[pods] = True
        kept = {leaf: self.pods_of(leaf)[keep[self.pods_of(leaf)]] for leaf in self.leaves}
        minimum = dict(self._minimum)
        if shrink:
            filled = self._filled(kept)
            for row in self._rows:
                if self._world.facts.groups.leaf[row]:
                    minimum[row] = min(self.minimum(row), len(kept[row]) or self.minimum(row))
                elif self._world.has_own_minimum(row):
                    count = sum(child in filled for child in self._world.children(row))
                    minimum[row] = min(self.minimum(row), count)
        return Portion(self._world, self.group, kept, minimum)

    def _filled(self, kept: dict[int, PodRows]) -> set[int]:
        """Return the sub-groups that have pods of ``kept`` in them or below them."""
        parent = self._world.facts.groups.parent
        filled = {leaf for leaf, pods in kept.items() if len(pods)}
        for row in reversed(self._rows):
            if row in filled and row != self.root:
                filled.add(int(parent[row]))
        return filled

    def counted_amounts(self) -> Float64s:
        """Return float64[3]: what the portion's pods hold that count as used by their queue, in axis units."""
        columns = self._world.columns
        total = np.zeros(3, np.float64)
        for pod in self.pods():
            if within(int(columns.status[pod]), COUNTED):
                total += self._world.accepted(int(pod))
        return total

    def elastic_state(self) -> float:
        """Return 0 for a portion below its minimum, 1 for exactly the minimum, 2 if it can give up pods."""
        reached = np.array(self._reached_now(), np.int64)
        spare = reached - self._minimums
        leaf = self._world.facts.groups.leaf[self._slice]
        # The peer compares each leaf with its minimum, whatever the tree needs of its children.
        if self._world.facts.groups.each_leaf:
            short, more = (spare[leaf] < 0).any(), (spare[leaf] > 0).any()
            return 0.0 if short else (2.0 if more else 1.0)
        if spare[0] < 0:
            return 0.0
        if not spare.any():
            return 1.0
        # Fewer pods than the minimum count as spare as well: the root is satisfied, so a sub-group that lacks pods is
        # optional, and `next_victims` takes its pods first.
        held = np.where(leaf, reached, 0).tolist()
        for at in range(len(held) - 1, 0, -1):
            held[self._parents[at]] += held[at]
        return 2.0 if (spare != 0)[np.array(held) > 0].any() else 1.0


class Portions:
    """The whole groups of a world, as memoized portions."""

    def __init__(self, world: World) -> None:
        """Begin with an empty cache."""
        self._world = world
        self._known: dict[int, Portion] = {}

    def of(self, group: int) -> Portion:
        """Return the whole of ``group``; the same object every time."""
        known = self._known.get(group)
        if known is None:
            known = self._known[group] = Portion(self._world, group)
        return known

    def gang_size(self, group: int) -> int:
        """Return the number of pods that ``group`` needs at least, over all its leaves; 0 for no group."""
        if group < 0:
            return 0
        groups = self._world.facts.groups
        if groups.simple[group]:
            return int(groups.minimum[groups.first_subgroup[group] + 1])
        portion = self.of(group)
        return sum(portion.minimum(leaf) for leaf in portion.leaves)
