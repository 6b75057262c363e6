"""Trees of domains as kernels take them; the pods of a group go together into one domain of its tree."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from kai.engine.shortcuts import DOMAINS
from kai.engine.world import World
from kai.framework.hooks import DomainTree
from kai.kernels.columns import PENDING, PODS
from kai.kernels.domains import DomainTrees
from kai.kernels.groups import ROOT_AND_LEAF
from kai.model.rows import Bools, GroupRow, GroupRows, Int64s, PodRow, locked

MOST_CELLS = 8_000_000
"""Cells (kinds and shapes x nodes) that tables may take: groups beyond it are asked about."""


def make_trees(world: World, waiting: GroupRows) -> tuple[DomainTrees, Int64s]:
    """Return the kinds of those groups of ``waiting`` that a kernel can serve, and the shapes of their pods.

    The shapes are prepared.
    """
    kinds, kind = _kinds(world, waiting)
    most = MOST_CELLS // max(1, len(world.all_nodes)) - len(kinds)
    shapes = _counted_shapes(world, kind, most) if kinds else np.zeros(0, np.int64)
    counted = np.full(len(world.snapshot.shapes), -1, np.int64)
    counted[shapes] = np.arange(len(shapes))
    nodes, deepest = len(world.all_nodes), max((len(tree.start) for tree in kinds), default=2)
    finest_of = np.full((len(kinds), nodes), -1, np.int64)
    depth_start = np.zeros((len(kinds), deepest), np.int64)
    for row, tree in enumerate(kinds):
        finest_of[row, tree.rows] = tree.domains
        depth_start[row, : len(tree.start)] = tree.start
    trees = DomainTrees(
        kind=kind,
        rows=_joined([tree.rows for tree in kinds]),
        row_start=_starts([tree.rows for tree in kinds]),
        domains=_joined([tree.domains for tree in kinds]),
        parents=_joined([tree.parents for tree in kinds]),
        domain_start=_starts([tree.parents for tree in kinds]),
        depth_start=depth_start,
        finest_of=finest_of,
        finest=np.array([len(tree.start) - 2 for tree in kinds], np.int64),
        coarsest=np.array([tree.coarsest for tree in kinds], np.int64),
        ordered=np.array([tree.ordered for tree in kinds], np.int64),
        preferred=np.array([tree.preferred for tree in kinds], np.int64),
        step=np.array([tree.step for tree in kinds], np.float64),
        required=np.array([tree.required for tree in kinds], np.bool_),
        counted=counted,
        fitting=np.zeros((len(shapes), nodes), np.int64),
        seen=np.full(len(shapes), -1, np.int64),
        extra=np.zeros(nodes, np.float64),
    )
    return trees, shapes


def _joined(parts: Sequence[Int64s]) -> Int64s:
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _starts(parts: Sequence[Int64s]) -> Int64s:
    return np.array([0, *accumulate(map(len, parts))], np.int64)


def _kinds(world: World, waiting: GroupRows) -> tuple[list[DomainTree], Int64s]:
    """Return the kinds, and int64[G]: which one each group is of, -1 for none."""
    none, kinds = _none(world), list[DomainTree]()
    if not world.takes(DOMAINS):
        return kinds, none
    groups = world.facts.groups
    others = waiting[~groups.simple[waiting]]
    roots = groups.first_subgroup[others]
    flat = (groups.first_subgroup[others + 1] - roots == ROOT_AND_LEAF) & (groups.minimum[roots] == 1)
    splitter, rows = world.policy.tree_of_domains(others[flat])
    if splitter is None or not len(rows):
        return kinds, none
    forms, first, of_form = np.unique(world.trees[rows], return_index=True, return_inverse=True)
    most = MOST_CELLS // (2 * max(1, len(world.all_nodes)))
    numbers = np.full(len(forms), -1, np.int64)
    for at, group in enumerate(rows[first].tolist()):
        tree = splitter(GroupRow(group)) if len(kinds) < most else None
        if tree is not None:
            numbers[at] = len(kinds)
            kinds.append(tree)
    kind = none.copy()
    kind[rows] = numbers[of_form]
    return kinds, kind


def _none(world: World) -> Int64s:
    """Return int64[G]: no kind for any group; sessions share it while groups have the queues that they had."""
    queues = world.base.groups.queue
    return world.snapshot.memory.once("no kinds of domains", (queues,), lambda: locked(np.full(len(queues), -1)))


def _counted_shapes(world: World, kind: Int64s, most: int) -> Int64s:
    """Return the shapes of pods that wait in groups of some kind: those that no plugin is asked about, at ``most``."""
    facts = world.facts
    pods = np.flatnonzero((world.columns.status == PENDING) & (facts.pods.group >= 0))
    pods = pods[kind[facts.pods.group[pods]] >= 0]
    shapes, first = np.unique(facts.pods.shape[pods], return_index=True)
    usable = ~world.policy.dynamic[shapes] & _asks(facts.shapes.request[shapes])
    shapes, first = shapes[usable][: max(0, most)], first[usable][: max(0, most)]
    for shape, pod in zip(shapes.tolist(), pods[first].tolist(), strict=True):
        world.policy.prepare(shape, PodRow(pod), world.all_nodes)
    return shapes


def _asks(requests: Int64s) -> Bools:
    """Return bool[n]: which of ``requests`` [n, R] are for more than a pod's place. Others fit anywhere, uncounted."""
    asked = requests > 0
    asked[:, PODS] = requests[:, PODS] > 1
    some: Bools = np.logical_or.reduce(asked, axis=1)
    return some
