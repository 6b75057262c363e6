import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.deciding.engine.readiness import are_ready, hold_enough
from kai.testing import snapshot
from kai.testing.views import open_session


@st.composite
def trees(draw):
    """Draw groups, each as sub-groups of (parent, pods that exist, minimum), the root first and parents first."""
    groups = []
    for _ in range(draw(st.integers(1, 4))):
        few, size = st.integers(0, 2), draw(st.integers(2, 12))
        below = [(draw(st.integers(0, at - 1)), draw(few), draw(few)) for at in range(1, size)]
        groups.append([(-1, 0, draw(st.integers(0, 3))), *below])
    return groups


def is_full(tree, at):
    children = [each for each, (parent, *_) in enumerate(tree) if parent == at]
    _, pods, minimum = tree[at]
    return (sum(is_full(tree, each) for each in children) if children else pods) >= minimum


def columns_of(session, groups):
    """Return the facts and columns of a session with these groups in place of its own."""
    firsts = np.cumsum([0, *map(len, groups)])
    table = [
        (parent + first if parent >= 0 else -1, *rest)
        for tree, first in zip(groups, firsts, strict=False)
        for parent, *rest in tree
    ]
    parent, pods, minimum = (np.array(column, np.int64) for column in zip(*table, strict=True))
    leaf = np.ones(len(table), np.bool_)
    leaf[parent[parent >= 0]] = False
    facts = session.facts.groups.replace(first_subgroup=firsts, parent=parent, leaf=leaf, minimum=minimum)
    return facts, session.columns.replace(active=pods // 2, pending=pods - pods // 2)


@pytest.fixture(scope="module")
def session():
    return open_session(snapshot({"n": {"gpu": 1}}, {}))


@given(groups=trees())
def test_groups_are_ready_as_a_leaf_upward_check_finds(session, groups):
    facts, columns = columns_of(session, groups)
    rows = np.arange(len(groups))
    assert are_ready(facts, columns, rows).tolist() == [is_full(tree, 0) for tree in groups]
    assert are_ready(facts, columns, rows[1:]).tolist() == [is_full(tree, 0) for tree in groups[1:]]


@given(groups=trees())
def test_groups_hold_enough_judged_by_placed_pods_alone(session, groups):
    facts, columns = columns_of(session, groups)
    placed = columns.replace(occupying=columns.active)
    on_nodes = [[(parent, pods // 2, minimum) for parent, pods, minimum in tree] for tree in groups]
    assert hold_enough(facts, placed, np.arange(len(groups))).tolist() == [is_full(tree, 0) for tree in on_nodes]
