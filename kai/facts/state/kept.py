"""Columns of pods, groups and nodes for sessions, carried from snapshot to snapshot.

Everything here derives row by row from frozen objects. So a snapshot whose versions name the fresh rows pays for those
rows only; any other snapshot is read in full.

Orders by age (oldest first, then by uid) are carried too, and updated as rows come and go.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from itertools import pairwise, repeat
from operator import is_
from typing import NamedTuple, TypeAlias

import attrs
import numpy as np

from kai.facts.compiled.struct import writable
from kai.facts.kernels.groups import find_places, sort_by_leaf
from kai.facts.model.axis import PLUGGED_GPU, UNBOUNDED, Bools, Float64s, Int64s
from kai.facts.model.groups import RunBound, SubGroup
from kai.facts.model.pod import Node, Status
from kai.facts.state.memory import Memory
from kai.facts.state.snapshot import Snapshot
from kai.facts.state.table_version import TableVersion

_FEW = 64
_UNBOUNDED = RunBound()

Uid = Callable[[int], str]


def creation_order(created: Float64s, uid: Uid) -> Int64s:
    """Return int64[n]: rows by creation time, then uid. Uids are compared only where times are equal."""
    # Uids are texts, so sorting by both keys at once would compare texts for every pod. Times alone decide nearly all,
    # and the runs of equal times are sorted after.
    order = np.argsort(created, kind="stable").astype(np.int64)
    same = np.flatnonzero(np.diff(created[order]) == 0)
    for first in same[np.concatenate([[True], np.diff(same) > 1])] if len(same) else ():
        last = first + 1
        while last < len(order) and created[order[last]] == created[order[first]]:
            last += 1
        order[first:last] = sorted(order[first:last].tolist(), key=uid)
    return order


def carried_order(memory: Memory, name: str, version: TableVersion, created: Float64s, uid: Uid) -> Int64s:
    """Return the result of ``creation_order``, updated from the order of the version before in ``memory``."""
    known = memory.recall(name)
    if isinstance(known, _Known):
        if known.mark is version.mark:
            return known.order
        # An order may be carried over one version only: two steps apart, rows that came and went in between are
        # unknown. Beyond an eighth of fresh rows a sort from scratch is faster.
        if known.mark is version.before and len(version.fresh) <= _FEW + len(created) // 8:
            stays = version.has_kept_places and _stays(known, created, version.fresh, uid)
            order = known.order if stays else _moved(known.order, version, created, uid)
            memory.keep(name, _Known(version.mark, created, order))
            return order
    order = creation_order(created, uid)
    memory.keep(name, _Known(version.mark, created, order))
    return order


class _Known:
    def __init__(self, mark: object, created: Float64s, order: Int64s) -> None:
        self.mark, self.created, self.order = mark, created, order


def _stays(known: _Known, created: Float64s, rows: Int64s, uid: Uid) -> bool:
    """Return whether the order is the same after rows changed objects: each new object fits between its neighbors."""
    order, places = known.order, np.empty(len(rows), np.int64)
    # By the times of the version before, since the places are looked up in its order.
    if not find_places(writable(known.created), order, rows, places):
        return False
    # Pairs of adjacent places where at least one object is new.
    later = np.concatenate([places[places > 0], places[places + 1 < len(order)] + 1])
    one, other = order[later - 1], order[later]
    if (created[one] > created[other]).any():
        return False
    same = created[one] == created[other]
    pairs = zip(one[same].tolist(), other[same].tolist(), strict=True)
    # The comparison is strict and ends in the row, so equal times and uids cannot count as both orders.
    return all((uid(row), row) < (uid(next_row), next_row) for row, next_row in pairs)


def _moved(before: Int64s, version: TableVersion, created: Float64s, uid: Uid) -> Int64s:
    """Return the order without removed rows, and with fresh rows inserted."""
    rows = version.fresh
    order = version.rows_now(len(before))[before]
    # The rows that stay are fewer than those before, so some are gone; without any the filter would only copy the
    # order.
    if len(created) - len(rows) < len(before):
        order = _without(order, np.flatnonzero(order < 0))
    fresh = rows[creation_order(created[rows], lambda at: uid(int(rows[at])))].tolist()
    if not fresh:
        return order
    first, last = _bounds(created, order, fresh)
    places = [
        start
        if start == end
        else start + bisect_left(order[start:end].tolist(), (uid(row), row), key=lambda other: (uid(other), other))
        for row, start, end in zip(fresh, first, last, strict=True)
    ]
    return _with(order, places, fresh)


def _without(order: Int64s, gone: Int64s) -> Int64s:
    """Return ``order`` without some places. If they are few, the stretches between them are copied as blocks."""
    if len(gone) > _FEW:
        return np.delete(order, gone)
    return np.concatenate([order[first + 1 : end] for first, end in pairwise([-1, *gone.tolist(), len(order)])])


def _with(order: Int64s, places: list[int], rows: list[int]) -> Int64s:
    """Return ``order`` with ``rows`` inserted before ``places`` (ascending); few of them as in ``_without``."""
    if len(rows) > _FEW:
        return np.insert(order, places, rows)
    pieces: list[Int64s | list[int]] = []
    for row, (start, end) in zip(rows, pairwise([0, *places]), strict=True):
        pieces += [order[start:end], [row]]
    return np.concatenate([*pieces, order[places[-1] :]])


def _bounds(created: Float64s, order: Int64s, fresh: list[int]) -> tuple[list[int], list[int]]:
    """Return, for each of ``fresh``, where rows of the same age begin and end in ``order``."""
    if len(fresh) > _FEW:
        times, keys = created[order], created[fresh]
        return np.searchsorted(times, keys, "left").tolist(), np.searchsorted(times, keys, "right").tolist()
    age = created.__getitem__
    return [bisect_left(order, age(row), key=age) for row in fresh], [
        bisect_right(order, age(row), key=age) for row in fresh
    ]


ByLeaf: TypeAlias = tuple[Int64s, Int64s]
"""Where the pods of each sub-group begin [B + 1], and the pods of all leaves."""


class GroupColumns(NamedTuple):
    """Columns of groups."""

    queue: Int64s
    preemptible: Bools
    priority: Int64s
    created: Float64s
    last_start: Float64s
    """NaN: never."""
    last_eviction: Float64s
    stale_since: Float64s
    partial_since: Float64s
    tree: Int64s
    """The number of the tree of sub-groups."""
    runs: Float64s
    """How long it may run from ``runs_since`` on, in seconds; infinite: nothing ends it."""
    runs_since: Float64s
    """NaN: it does not run."""
    yields: Float64s
    """How many seconds after its last start it gives way to its equals; NaN: never."""


class NodeColumns(NamedTuple):
    """Columns of nodes; see ``kai.facts.kernels.columns.NodeFacts``."""

    allocatable: Int64s
    gpu_memory: Int64s
    gpu_memory_known: Bools
    gpu_count: Int64s
    mig_enabled: Bools
    mig_strategy: Int64s
    cpu_only: Bools
    dra_gpus: Bools
    ready: Bools


class TreeColumns(NamedTuple):
    """Columns of one tree of sub-groups; rows count from its root."""

    minimum: Int64s
    parent: Int64s
    """-1 for the root."""
    leaf: Bools
    simple: bool
    """The tree is a root with one leaf, and nothing constrains where its pods go."""
    constrained: bool
    """Some sub-group names a topology."""


@attrs.define(eq=False)
class Trees:
    """Distinct trees of sub-groups, by number. Groups that declare no sub-groups share trees."""

    columns: list[TreeColumns] = attrs.field(factory=list)
    _numbers: dict[int, int] = attrs.field(factory=dict)
    _kept: list[tuple[SubGroup, ...]] = attrs.field(factory=list)

    def number(self, subgroups: tuple[SubGroup, ...]) -> int:
        """Return the number of a tree; trees are identified by object identity."""
        known = self._numbers.get(id(subgroups))
        if known is None:
            known = self._numbers[id(subgroups)] = len(self._kept)
            # Kept alive here, so that its identity cannot be that of another tree later.
            self._kept.append(subgroups)
            self.columns.append(_tree(subgroups))
        return known

    def numbers(self, trees: list[tuple[SubGroup, ...]]) -> Int64s:
        """Return int64[n]: the number of each tree. In most cases all are the same."""
        # Compared by identity in C: a hundred thousand groups of single pods share one tuple, and `number` would be
        # called for each.
        if trees and all(map(is_, trees, repeat(trees[0]))):
            return np.full(len(trees), self.number(trees[0]), np.int64)
        return np.array([self.number(each) for each in trees], np.int64)


def _tree(subgroups: tuple[SubGroup, ...]) -> TreeColumns:
    children = [0] * len(subgroups)
    for subgroup in subgroups:
        if subgroup.parent >= 0:
            children[subgroup.parent] += 1
    # Without a minimum a sub-group needs all of its children. A leaf has no children that could be counted; it needs
    # one pod.
    wanted = [children[at] if s.minimum is None and not s.leaf else s.minimum for at, s in enumerate(subgroups)]
    minimum = np.array([1 if count is None else count for count in wanted], np.int64)
    leaf = np.array([subgroup.leaf for subgroup in subgroups], np.bool_)
    constrained = any(subgroup.constraint for subgroup in subgroups)
    return TreeColumns(
        minimum=minimum,
        parent=np.array([subgroup.parent for subgroup in subgroups], np.int64),
        leaf=leaf,
        simple=not constrained and len(subgroups) == 2 and bool(leaf[1]) and bool(minimum[0] == 1),
        constrained=constrained,
    )


class SubGroupColumns(NamedTuple):
    """Columns of all sub-groups, group by group, and columns of groups that derive from their trees."""

    simple: Bools
    constrained: Bools
    minimum: Int64s
    leaf: Bools
    parent: Int64s


def group_columns(snapshot: Snapshot) -> GroupColumns:
    """Return the columns of groups; they must not be written."""
    groups, rows = snapshot.groups, snapshot.memory.rows
    trees = snapshot.memory.once("trees", (), Trees)
    if len(trees.columns) > _FEW * _FEW + 4 * len(groups):  # most trees are of groups that are gone
        trees = snapshot.memory.fresh("trees", (), Trees)

    def read(chosen: Sequence[int]) -> GroupColumns:
        some = [groups[row] for row in chosen]
        bounds = [group.bound or _UNBOUNDED for group in some]
        return GroupColumns(
            queue=np.array([group.queue_row for group in some], np.int64),
            preemptible=np.array([group.preemptible for group in some], np.bool_),
            priority=np.array([group.priority for group in some], np.int64),
            created=np.array([group.created for group in some], np.float64),
            last_start=_times([group.last_start for group in some]),
            last_eviction=_times([group.last_eviction for group in some]),
            stale_since=_times([group.stale_since for group in some]),
            partial_since=_times([group.partial_since for group in some]),
            tree=trees.numbers([group.subgroups for group in some]),
            runs=np.array([each.left for each in bounds], np.float64),
            runs_since=_times([each.since for each in bounds]),
            yields=_times([each.yields for each in bounds]),
        )

    return GroupColumns(*rows.columns("groups", snapshot.versions.groups, len(groups), read, (trees,)))


def subgroup_columns(snapshot: Snapshot, tree: Int64s) -> SubGroupColumns:
    """Return the columns of sub-groups for the trees ``tree`` [G] of groups; the same objects for the same trees."""
    trees = snapshot.memory.once("trees", (), Trees)
    return snapshot.memory.once("sub-groups", (tree, trees), lambda: _subgroup_columns(snapshot, tree, trees.columns))


def _subgroup_columns(snapshot: Snapshot, tree: Int64s, trees: Sequence[TreeColumns]) -> SubGroupColumns:
    """Compute the columns of sub-groups. Cost: O(B) in columns."""
    if not len(tree):
        rows, mask = np.zeros(0, np.int64), np.zeros(0, np.bool_)
        return SubGroupColumns(mask, mask.copy(), rows, mask.copy(), rows.copy())
    sizes = np.array([len(each.leaf) for each in trees], np.int64)
    first = snapshot.first_subgroup
    if (tree == tree[0]).all():  # most often single pods: every group has the same tree
        only = trees[int(tree[0])]
        minimum, leaf, parent = _repeated(snapshot.memory, only, len(tree))
        simple, constrained = np.full(len(tree), only.simple), np.full(len(tree), only.constrained)
        return SubGroupColumns(simple, constrained, minimum, leaf, parent)
    simple = np.array([each.simple for each in trees], np.bool_)[tree]
    constrained = np.array([each.constrained for each in trees], np.bool_)[tree]
    begins = np.cumsum(sizes) - sizes
    # The position of each result row among the rows of all distinct trees.
    group_of = np.repeat(np.arange(len(tree)), sizes[tree])
    at = (begins[tree] - first[:-1])[group_of] + np.arange(len(group_of))
    parent = np.concatenate([each.parent for each in trees])[at]
    return SubGroupColumns(
        simple=simple,
        constrained=constrained,
        minimum=np.concatenate([each.minimum for each in trees])[at],
        leaf=np.concatenate([each.leaf for each in trees])[at],
        parent=np.where(parent >= 0, parent + first[:-1][group_of], -1),
    )


@attrs.frozen(eq=False)
class _Repeated:
    """The sub-groups of ``groups`` groups that all have one tree; for fewer groups, use the first ones."""

    tree: TreeColumns
    groups: int
    minimum: Int64s
    leaf: Bools
    parent: Int64s


def _repeated(memory: Memory, tree: TreeColumns, groups: int) -> tuple[Int64s, Bools, Int64s]:
    """Return minimum, leaf and parent of the sub-groups of ``groups`` groups with one tree."""
    width = len(tree.leaf)
    known = memory.recall("repeated tree")
    if not isinstance(known, _Repeated) or known.tree is not tree or known.groups < groups:
        # Room to spare: groups come and go in each cycle, and the first rows of a longer array serve for fewer groups.
        most = groups + groups // 16 + _FEW
        roots = np.arange(0, most * width, width)[:, None]
        parent = np.where(tree.parent >= 0, tree.parent + roots, -1).ravel()
        known = _Repeated(tree, most, np.tile(tree.minimum, most), np.tile(tree.leaf, most), parent)
        memory.keep("repeated tree", known)
    rows = groups * width
    return known.minimum[:rows], known.leaf[:rows], known.parent[:rows]


def pending_pods(snapshot: Snapshot) -> Int64s:
    """Return the rows of pending pods. Cost: a pass over a column of bits."""
    status = snapshot.pod_status

    def read(rows: Sequence[int]) -> tuple[Bools]:
        # A slice makes a view where all rows are read, a list of rows would copy the column first.
        return (status[slice(None) if len(rows) == len(status) else rows] == Status.PENDING,)

    (pending,) = snapshot.memory.rows.columns("pending", snapshot.versions.assigned, len(status), read)
    return np.flatnonzero(pending)


def timed_groups(snapshot: Snapshot, name: str, since: Float64s) -> Int64s:
    """Return the rows of groups with a time in ``since`` [G]; ``name`` identifies the column."""
    return snapshot.memory.once(f"{name} groups", (since,), lambda: np.flatnonzero(~np.isnan(since)))


def pod_order(snapshot: Snapshot) -> Int64s:
    """Return int64[P]: pod rows by creation time, then uid."""
    pods, version = snapshot.pods, snapshot.versions.pods

    def read(rows: Sequence[int]) -> tuple[Float64s]:
        return (np.array([pods[row].created for row in rows], np.float64),)

    (created,) = snapshot.memory.rows.columns("pods created", version, len(pods), read)
    return carried_order(snapshot.memory, "pod order", version, created, lambda row: pods[row].uid)


def group_order(snapshot: Snapshot, created: Float64s) -> Int64s:
    """Return int64[G]: group rows by creation time, then uid."""
    groups = snapshot.groups
    return carried_order(snapshot.memory, "group order", snapshot.versions.groups, created, lambda row: groups[row].uid)


def pods_by_leaf(leaf: Int64s, order: Int64s, subgroups: int) -> ByLeaf:
    """Return where the pods of each sub-group begin [B + 1], and the pods of all leaves, in pod order within each."""
    start = np.zeros(subgroups + 1, np.int64)
    out = np.empty(len(order), np.int64)
    sort_by_leaf(writable(leaf), writable(order), start, out)
    # Pods without a leaf are in no sub-group, so there may be fewer than in the order.
    return start, out[: start[-1]]


def node_columns(snapshot: Snapshot) -> NodeColumns:
    """Return the columns of nodes; they must not be written."""
    nodes, axis = snapshot.nodes, snapshot.axis

    def read(rows: Sequence[int]) -> NodeColumns:
        some = [nodes[row] for row in rows]
        # Nodes of one kind share their amounts object, so most vectors are made once.
        vectors = {key: axis.vector(each) for key, each in {id(n.allocatable): n.allocatable for n in some}.items()}
        amounts = np.array([vectors[id(node.allocatable)] for node in some], np.int64).reshape(len(some), len(axis))
        at = axis.index.get(PLUGGED_GPU)
        if at is not None:
            # Only where GPUs of a driver are counted as well can a pod of the plugin find the total too large;
            # elsewhere the count of GPUs bounds it already.
            amounts[:, at] = [node.plugged_gpus if node.dra_gpus else UNBOUNDED for node in some]
        return NodeColumns(
            allocatable=amounts,
            gpu_memory=np.array([node.gpu_memory for node in some], np.int64),
            gpu_memory_known=np.array([node.gpu_memory_known for node in some], np.bool_),
            gpu_count=np.array([node.gpu_count for node in some], np.int64),
            mig_enabled=np.array([node.mig_enabled for node in some], np.bool_),
            mig_strategy=np.array([node.mig_strategy for node in some], np.int64),
            cpu_only=np.array([is_cpu_only(node) for node in some], np.bool_),
            dra_gpus=np.array([node.dra_gpus > 0 for node in some], np.bool_),
            ready=np.array([node.ready for node in some], np.bool_),
        )

    return NodeColumns(*snapshot.memory.rows.columns("nodes", snapshot.versions.nodes, len(nodes), read, (axis,)))


def is_cpu_only(node: Node) -> bool:
    """Return whether a node neither has GPUs nor ever had any."""
    return not node.mig_enabled and node.allocatable.get("gpu", 0) <= 0 and not node.dra_gpus


def _times(values: list[float | None]) -> Float64s:
    if values.count(None) == len(values):  # as for groups that wait for the first time
        return np.full(len(values), np.nan)
    return np.array([np.nan if value is None else value for value in values], np.float64)
