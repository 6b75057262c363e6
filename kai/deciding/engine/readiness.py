"""Which groups are worth trying: readiness, groups to serve first, equivalence classes, and refilled heaps.

``are_ready`` and its relatives check all groups together, with one column entry for each sub-group, because a group
may have thousands of sub-groups, and a user thousands of such groups.

``Awaited`` lists the groups for which pods were evicted, so that the next cycle serves them first.

``EquivalenceClasses`` numbers groups that differ only in names: a decision about one holds for all of its class.

``Filled`` is a copy of a full heap from which later actions start as long as nothing has changed. If nothing can be
placed, allocate, consolidation, reclaim and preempt fill a heap with the same groups one after the other.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Self

import attrs
import numpy as np

from kai.deciding.engine.world import World
from kai.facts.kernels.columns import Columns, GroupFacts
from kai.facts.kernels.groups import ROOT_AND_LEAF
from kai.facts.kernels.order import Heap
from kai.facts.model.axis import Bools, Float64s, GroupRows, Int64s, PodRows
from kai.facts.model.pod import Status
from kai.framework.decisions import Decision, Evict, Nominate


def are_ready(facts: GroupFacts, columns: Columns, rows: GroupRows) -> Bools:
    """Return bool[n]: which of the groups ``rows`` [n] have enough pods, placed or pending; gated pods do not count.

    Cost: one pass over the sub-groups of groups with trees for each level of the deepest tree.
    Source: the peer's IsReadyForScheduling.
    """
    return _have_enough(facts, (columns.active, columns.pending), rows)


def could_start_again(facts: GroupFacts, columns: Columns, rows: GroupRows) -> Bools:
    """Return bool[n]: which of the groups ``rows`` [n] have enough pods that wait, run or are being deleted.

    A pod that is being deleted counts, because its owner creates another; a pod that has ended does not.
    Cost: as ``are_ready``.
    """
    return _have_enough(facts, (columns.occupying, columns.pending), rows)


def hold_enough(facts: GroupFacts, columns: Columns, rows: GroupRows) -> Bools:
    """Return bool[n]: which of the groups ``rows`` [n] have enough pods on nodes, terminating ones included.

    Cost: as ``are_ready``.
    """
    return _have_enough(facts, (columns.occupying,), rows)


def _have_enough(facts: GroupFacts, counts: Sequence[Int64s], rows: GroupRows) -> Bools:
    """Return bool[n]: which of the groups ``rows`` [n] have enough pods by the sum of ``counts`` [B]."""
    roots = facts.first_subgroup[rows]
    sizes = facts.first_subgroup[rows + 1] - roots
    # If a root needs its only child, that child's pods decide alone.
    flat = (sizes == ROOT_AND_LEAF) & (facts.minimum[roots] == 1)
    ready: Bools = np.zeros(len(rows), np.bool_)
    mine = roots[flat] + 1
    ready[flat] = _sum(counts, mine) >= facts.minimum[mine]
    if not flat.all():
        ready[~flat] = _have_trees_enough(facts, counts, roots[~flat], sizes[~flat])
    return ready


def _sum(counts: Sequence[Int64s], rows: Int64s) -> Int64s:
    found: Int64s = np.sum([count[rows] for count in counts], axis=0)
    return found


def have_some(facts: GroupFacts, column: Int64s, rows: GroupRows) -> Bools:
    """Return bool[n]: which of the groups ``rows`` [n] have a sub-group with a positive count in ``column`` [B].

    Cost: one look at each of their sub-groups.
    """
    return _in_some(facts, rows, lambda subgroups: column[subgroups] > 0)


def lack_some(facts: GroupFacts, columns: Columns, rows: GroupRows) -> Bools:
    """Return bool[n]: which of the groups ``rows`` [n] have a leaf with fewer pods on nodes than it needs.

    Cost: a look at each of their sub-groups.
    """
    return _in_some(
        facts, rows, lambda subgroups: facts.leaf[subgroups] & (columns.occupying[subgroups] < facts.minimum[subgroups])
    )


def _in_some(facts: GroupFacts, rows: GroupRows, is_so: Callable[[Int64s], Bools]) -> Bools:
    """Return bool[n]: which of the groups ``rows`` [n] have a sub-group for which ``is_so``."""
    if not len(rows):
        return np.zeros(0, np.bool_)
    begins = facts.first_subgroup[rows]
    sizes = facts.first_subgroup[rows + 1] - begins
    starts = np.cumsum(sizes) - sizes
    # `reduceat` knows no empty segment; there is none, since every group has a root.
    some: Bools = np.logical_or.reduceat(is_so(np.arange(int(sizes.sum())) + np.repeat(begins - starts, sizes)), starts)
    return some


def _have_trees_enough(facts: GroupFacts, counts: Sequence[Int64s], roots: Int64s, sizes: Int64s) -> Bools:
    """Return bool[n]: which trees, of ``sizes`` [n] sub-groups, meet the minimums of their ``roots`` [n]."""
    begins = np.cumsum(sizes) - sizes
    shift = np.repeat(roots - begins, sizes)
    rows = np.arange(len(shift)) + shift
    leaf, minimum = facts.leaf[rows], facts.minimum[rows]
    below = np.ones(len(rows), np.bool_)
    below[begins] = False
    parent = np.where(below, facts.parent[rows] - shift, 0)
    full: Bools = np.where(leaf, _sum(counts, rows), 0) >= minimum
    while True:  # a full sub-group stays full; each pass carries that one level up
        children = np.bincount(parent[full & below], minlength=len(rows))
        now = np.where(leaf, full, children >= minimum)
        if np.array_equal(now, full):
            ready: Bools = full[begins]
            return ready
        full = now


class Awaited:
    """The groups that gained by searches, in the order of the searches: each search builds on the earlier ones."""

    def __init__(self, world: World) -> None:
        """Begin with the groups from earlier cycles."""
        self._world = world
        self._keys: dict[str, None] = dict.fromkeys(world.snapshot.past.awaited)

    def note(self, decisions: Sequence[Decision]) -> None:
        """Add the groups that gain by a search; groups that lose or move pods wait for their turn like all others."""
        snapshot = self._world.snapshot
        of_pod = snapshot.pod_group
        losing = {int(of_pod[each.pod]) for each in decisions if isinstance(each, Evict)}
        # A moved pod is nominated as well, but its group gains nothing by the search.
        gaining = {int(of_pod[each.pod]) for each in decisions if isinstance(each, Nominate)} - losing
        for group in losing - {-1}:
            self._keys.pop(snapshot.groups[group].key, None)
        for group in sorted(gaining):
            self._keys.setdefault(snapshot.groups[group].key)

    def keys(self) -> tuple[str, ...]:
        """Return the keys of groups that wait for the places of evicted pods, from this cycle or earlier ones."""
        if not self._keys:
            return ()
        snapshot = self._world.snapshot
        waiting = snapshot.pod_group[self._world.pods_in(1 << Status.PIPELINED)]
        # A group that got its place, or lost the promise of one, awaits nothing more.
        promised = {snapshot.groups[row].key for row in np.unique(waiting[waiting >= 0])}
        return tuple(key for key in self._keys if key in promised)


class EquivalenceClasses:
    """Equivalence classes of the groups of one world, as numbers."""

    def __init__(self, world: World) -> None:
        """Begin without classes."""
        self._world = world
        self._signatures: dict[str, int] = {}
        self._added: dict[str, int] = {}
        self._numbers: dict[tuple[int, ...], int] = {}

    # Most cycles compare no groups, so the arrays over all groups are allocated on demand.

    @cached_property
    def _signature(self) -> Int64s:
        return np.full(len(self._world.snapshot.pods), -1, np.int64)

    @cached_property
    def _added_to(self) -> Int64s:
        return np.full(len(self._world.snapshot.shapes), -1, np.int64)

    @cached_property
    def _class(self) -> Int64s:
        return np.full(len(self._world.snapshot.groups), -1, np.int64)

    @cached_property
    def _seen(self) -> Int64s:
        return np.full(len(self._world.snapshot.groups), -1, np.int64)

    def classes(self, groups: GroupRows) -> Int64s:
        """Return int64[n]: equal numbers for groups that differ only in names; -1 for groups that are not compared.

        Only groups with one leaf whose pods are all pending and alike are compared. The groups of a class share their
        queue, the account of their user, preemptibility and size, and request the same under the same constraints.

        Cost: O(pods of groups that changed since they were last compared), in a few passes over arrays.
        """
        epoch = self._world.columns.epoch
        changed = groups[self._seen[groups] != epoch[groups]]
        if len(changed):
            self._class[changed] = self._compare(changed)
            self._seen[changed] = epoch[changed]
        return self._class[groups]

    def constraints_of(self, pods: PodRows) -> Int64s:
        """Return int64[n]: equal numbers for pods whose constraints have the same signature, those of plugins included.

        Numbers of different calls are not comparable. Cost: one look at each pod and each shape, once in a session.
        """
        shapes = self._world.facts.pods.shape[pods]
        for shape in np.unique(shapes[self._added_to[shapes] < 0]).tolist():
            text = self._world.policy.signature(shape)
            self._added_to[shape] = self._added.setdefault(text, len(self._added))
        signatures = self._signatures_of(pods)
        return signatures * max(1, len(self._added)) + self._added_to[shapes]

    def _compare(self, groups: GroupRows) -> Int64s:
        facts = self._world.facts
        out = np.full(len(groups), -1, np.int64)
        leaves = facts.groups.first_subgroup[groups] + 1
        begins = facts.groups.pod_start[leaves]
        sizes = facts.groups.pod_start[leaves + 1] - begins
        # Groups without pods are left out: for an empty segment `reduceat` returns an element of the next one.
        compared = np.flatnonzero(facts.groups.simple[groups] & (sizes > 0))
        if not len(compared):
            return out
        rows, begins, sizes = groups[compared], begins[compared], sizes[compared]
        starts = np.cumsum(sizes) - sizes
        pods = facts.groups.pods[np.arange(int(sizes.sum())) + np.repeat(begins - starts, sizes)]
        pending = np.logical_and.reduceat(self._world.columns.status[pods] == Status.PENDING, starts)
        shape, same_shape = _only(facts.pods.shape[pods], starts)
        signature, same_signature = _only(self._signatures_of(pods), starts)
        chosen = pending & same_shape & same_signature
        columns = [
            facts.groups.queue[rows],
            facts.groups.preemptible[rows].astype(np.int64),
            facts.groups.ahead[rows],
            facts.groups.minimum[leaves[compared]],
            sizes,
            shape,
            signature,
        ]
        if len(facts.users.limit):
            columns.append(facts.users.binding[rows])
        out[compared[chosen]] = self._number([column[chosen] for column in columns])
        return out

    def _number(self, columns: Sequence[Int64s]) -> Int64s:
        """Return one number for each combination of values, the same in every call."""
        which = np.zeros(len(columns[0]), np.int64)
        for column in columns:
            # Both the numbers so far and those of the column are below n, so their product cannot overflow.
            values, position = np.unique(column, return_inverse=True)
            _, which = np.unique(which * len(values) + position, return_inverse=True)
        _, first = np.unique(which, return_index=True)
        keys = np.stack([column[first] for column in columns], axis=1).tolist()
        return np.array([self._numbers.setdefault(tuple(key), len(self._numbers)) for key in keys], np.int64)[which]

    def _signatures_of(self, pods: PodRows) -> Int64s:
        unknown = pods[self._signature[pods] < 0]
        if not len(unknown):
            return self._signature[pods]
        texts = [self._world.snapshot.pods[pod].signature for pod in unknown.tolist()]
        self._signature[unknown] = [self._signatures.setdefault(text, len(self._signatures)) for text in texts]
        return self._signature[pods]


def _only(values: Int64s, starts: Int64s) -> tuple[Int64s, Bools]:
    """Return the least value of each segment, and whether the segment has no other value."""
    least = np.minimum.reduceat(values, starts)
    return least, least == np.maximum.reduceat(values, starts)


@attrs.frozen(eq=False, kw_only=True)
class Filled:
    """The state that filling leaves in a heap, of its entries only. Shapes: W entries, k keys."""

    changes: int
    """The number of status changes when the heap was filled."""
    groups: GroupRows
    """[W] In the order of pushing."""
    depth: int
    places: Int64s
    """The positions at which the heaps of queues hold an item."""
    items: Int64s
    length: Int64s
    dirty: Int64s
    keys: Float64s
    """[W, k]"""
    amounts: Float64s
    """[W, 3]"""

    @classmethod
    def of(cls, heap: Heap, groups: GroupRows, changes: int) -> Self:
        """Copy ``heap``, which was empty before ``groups`` were pushed. Cost: O(W k)."""
        return cls(
            changes=changes,
            groups=groups,
            depth=int(heap.depth[0]),
            places=(places := _places(heap)),
            items=heap.items[places],
            length=heap.length.copy(),
            dirty=heap.dirty.copy(),
            keys=heap.keys[groups],
            amounts=heap.amounts[groups],
        )

    def holds(self, heap: Heap, groups: GroupRows, changes: int) -> bool:
        """Return whether filling the empty ``heap`` with ``groups`` now would write the same."""
        return self.changes == changes and self.depth == int(heap.depth[0]) and np.array_equal(self.groups, groups)

    def write(self, heap: Heap) -> None:
        """Write this state to an empty heap."""
        heap.items[self.places] = self.items
        heap.length[:] = self.length
        heap.dirty[:] = self.dirty
        heap.keys[self.groups] = self.keys
        heap.amounts[self.groups] = self.amounts


def _places(heap: Heap) -> Int64s:
    queues = np.flatnonzero(heap.length).tolist()
    begins, sizes = heap.start[queues], heap.length[queues]
    return np.repeat(begins - np.cumsum(sizes) + sizes, sizes) + np.arange(sizes.sum())
