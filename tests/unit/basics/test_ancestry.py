"""Whatever parents are written, walks up and down the tree end, and agree with each other."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kai.basics.trees import ancestry, descendants

NODES = st.integers(0, 7)
PARENTS = st.dictionaries(NODES, st.none() | NODES, min_size=1)


def below(node, parents):
    return descendants(node, lambda at: [child for child in parents if parents[child] == at])


@given(NODES, PARENTS)
def test_ancestors_end_at_unknown_or_repeated_parents(node, parents):
    found = ancestry(node, parents)
    assert found[0] == node
    assert all(parents[child] == parent for child, parent in pairwise(found))
    assert len(set(found[:-1])) == len(found[:-1])
    assert found[-1] in found[:-1] or parents.get(found[-1]) not in parents


@given(NODES, PARENTS)
def test_a_node_is_below_those_that_are_above_it(node, parents):
    for each in parents:
        assert (node in ancestry(each, parents)) == (node in parents and each in below(node, parents))


@given(NODES, PARENTS)
def test_parents_come_before_their_children_and_each_node_once(node, parents):
    found = below(node, parents)
    assert len(set(found)) == len(found)
    assert found[0] == node
    assert all(found.index(parents[each]) < found.index(each) for each in found[1:])


def test_a_circle_ends_where_it_closes():
    parents = {"a": "b", "b": "c", "c": "b", "own": "own", "top": None, "named": ""}
    assert ancestry("a", parents) == ["a", "b", "c", "b"]
    assert ancestry("own", parents) == ["own", "own"]
    assert [ancestry(name, parents) for name in ("top", "named", "unknown")] == [["top"], ["named"], ["unknown"]]
    assert below("b", parents) == ["b", "a", "c"]
