"""Columns of sub-groups are those of each group's tree, whether groups have one tree or several."""

import numpy as np
import pytest

from kai.facts.model.axis import ResourceAxis
from kai.facts.model.groups import PodGroup, SubGroup
from kai.facts.state.kept import group_columns, subgroup_columns
from kai.facts.state.memory import Memory, SnapshotVersions
from kai.facts.state.snapshot import Snapshot

ROOT = SubGroup(name="", parent=-1, leaf=False, minimum=None)
LONE = (ROOT, SubGroup(name="default", parent=0, leaf=True, minimum=1))
TALL = (
    ROOT,
    SubGroup(name="a", parent=0, leaf=False, minimum=1),
    SubGroup(name="b", parent=1, leaf=True, minimum=2),
    SubGroup(name="c", parent=1, leaf=True, minimum=3),
)


def snapshot_of(trees, memory):
    groups = tuple(
        PodGroup(
            name=f"g{at}",
            namespace="n",
            uid=f"g{at}",
            queue="q",
            queue_row=-1,
            priority=1,
            preemptible=True,
            created=0.0,
            subgroups=tree,
        )
        for at, tree in enumerate(trees)
    )
    return Snapshot(now=0.0, axis=ResourceAxis.of(()), groups=groups).with_versions(SnapshotVersions(memory=memory))


def expected(trees):
    rows = [(at, subgroup) for at, tree in enumerate(trees) for subgroup in tree]
    begins = np.cumsum([0, *map(len, trees)])
    children = [sum(trees[at][each.parent] is one for each in trees[at] if each.parent >= 0) for at, one in rows]
    return (
        [count if one.minimum is None else one.minimum for (_, one), count in zip(rows, children, strict=True)],
        [one.leaf for _, one in rows],
        [-1 if one.parent < 0 else int(begins[at]) + one.parent for at, one in rows],
    )


@pytest.mark.parametrize("rounds", [((LONE,) * 3, (LONE,) * 200, (LONE,)), ((TALL,) * 2, (LONE, TALL), (TALL,) * 99)])
def test_columns_of_subgroups_are_those_of_each_groups_tree(rounds):
    memory = Memory()
    for trees in rounds:
        snapshot = snapshot_of(trees, memory)
        columns = subgroup_columns(snapshot, group_columns(snapshot).tree)
        found = (columns.minimum.tolist(), columns.leaf.tolist(), columns.parent.tolist())
        assert found == expected(trees)
        assert columns.simple.tolist() == [tree is LONE for tree in trees]
        assert not columns.constrained.any()
        assert all(each.flags.c_contiguous for each in columns)
