"""Which groups have pods that wait, and enough of them to be worth trying.

All groups are looked at together, sub-group by sub-group as columns: a group may have thousands of sub-groups, and a
user thousands of such groups.
"""

from collections.abc import Callable, Sequence

import numpy as np

from kai.kernels.columns import Columns, GroupFacts
from kai.kernels.groups import ROOT_AND_LEAF
from kai.model.rows import Bools, GroupRows, Int64s


def are_ready(facts: GroupFacts, columns: Columns, rows: GroupRows) -> Bools:
    """Return bool[n]: which of the groups ``rows`` [n] have enough pods, placed or pending; gated ones do not count.

    Cost: as many passes over the sub-groups of those with trees as the deepest is deep.
    Source: the peer's IsReadyForScheduling.
    """
    return _have_enough(facts, (columns.active, columns.pending), rows)


def could_start_again(facts: GroupFacts, columns: Columns, rows: GroupRows) -> Bools:
    """Return bool[n]: which of the groups ``rows`` [n] have enough pods that wait, run or are being deleted.

    A pod that is being deleted counts, for its owner makes another; one that has ended does not.
    Cost: as ``are_ready``.
    """
    return _have_enough(facts, (columns.occupying, columns.pending), rows)


def hold_enough(facts: GroupFacts, columns: Columns, rows: GroupRows) -> Bools:
    """Return bool[n]: which of the groups ``rows`` [n] have enough pods on nodes, those that are leaving included.

    Cost: as ``are_ready``.
    """
    return _have_enough(facts, (columns.occupying,), rows)


def _have_enough(facts: GroupFacts, counts: Sequence[Int64s], rows: GroupRows) -> Bools:
    """Return bool[n]: which of the groups ``rows`` [n] have enough pods, counted in all of ``counts`` [B]."""
    roots = facts.first_subgroup[rows]
    sizes = facts.first_subgroup[rows + 1] - roots
    # Of a root that needs its only child just that child's pods matter.
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
    """Return bool[n]: for which of the groups ``rows`` [n] a ``column`` [B] counts some pod in some sub-group.

    Cost: a look at each of their sub-groups.
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
    """Return bool[n]: for which of the groups ``rows`` [n] something is so in some sub-group."""
    if not len(rows):
        return np.zeros(0, np.bool_)
    begins = facts.first_subgroup[rows]
    sizes = facts.first_subgroup[rows + 1] - begins
    starts = np.cumsum(sizes) - sizes
    some: Bools = np.logical_or.reduceat(is_so(np.arange(int(sizes.sum())) + np.repeat(begins - starts, sizes)), starts)
    return some


def _have_trees_enough(facts: GroupFacts, counts: Sequence[Int64s], roots: Int64s, sizes: Int64s) -> Bools:
    """Return bool[n]: which trees of ``sizes`` [n] sub-groups have what their ``roots`` [n] need."""
    begins = np.cumsum(sizes) - sizes
    shift = np.repeat(roots - begins, sizes)
    rows = np.arange(len(shift)) + shift
    leaf, minimum = facts.leaf[rows], facts.minimum[rows]
    below = np.ones(len(rows), np.bool_)
    below[begins] = False
    parent = np.where(below, facts.parent[rows] - shift, 0)
    full: Bools = np.where(leaf, _sum(counts, rows), 0) >= minimum
    while True:  # what is full stays full, and each pass tells the sub-groups above
        children = np.bincount(parent[full & below], minlength=len(rows))
        now = np.where(leaf, full, children >= minimum)
        if np.array_equal(now, full):
            ready: Bools = full[begins]
            return ready
        full = now
