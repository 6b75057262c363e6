import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.intake.membership import GroupKeys, Leaves

KEYS = st.tuples(st.sampled_from("gh"), st.sampled_from("abc"))


def rows(keys, groups, pods):
    """Return the rows to which pods lead that name these groups, when there are groups of these names."""
    numbers = np.array([keys.of(key) for key in groups], np.int64)
    asked_for = np.array([keys.of(key) for key in pods], np.int64)
    return keys.rows(numbers)[asked_for].tolist()


def test_one_name_in_one_namespace_has_one_place():
    keys = GroupKeys()
    assert keys.of(("g", "a")) == keys.of(("g", "a"))
    assert keys.of(("g", "a")) != keys.of(("g", "b"))
    assert len(keys) == 2


def test_a_group_key_without_its_group_has_no_row():
    keys = GroupKeys()
    assert rows(keys, [], [("g", "a")]) == [-1]
    assert rows(keys, [("g", "a")], [("g", "a")]) == [0]
    assert rows(keys, [], [("g", "a")]) == [-1]


def test_key_numbers_of_the_past_are_reused():
    keys = GroupKeys()
    lasting = np.array([keys.of((f"lasting-{number}", "a")) for number in range(3)], np.int64)
    for round_ in range(50):
        here = np.array([keys.of((f"job-{round_}-{number}", "a")) for number in range(100)], np.int64)
        assert len({*lasting.tolist(), *here.tolist()}) == 103
        keys.keep(lasting, here)
    assert len(keys) < 2000
    assert [keys.of((f"lasting-{number}", "a")) for number in range(3)] == lasting.tolist()


@given(st.lists(KEYS, max_size=4), st.lists(st.sets(KEYS), min_size=1, max_size=4))
def test_a_key_leads_to_its_group_or_to_none(asked_for, rounds):
    keys = GroupKeys()
    for present in rounds:
        groups = sorted(present)
        for asked, row in zip(asked_for, rows(keys, groups, asked_for), strict=True):
            assert row == (groups.index(asked) if asked in groups else -1)


@pytest.mark.parametrize("many", [1 << 16, -1000])
def test_pods_find_their_leaf_by_name_in_the_tree(monkeypatch, many):
    monkeypatch.setattr("kai.intake.membership._MANY", many)  # few pairs are looked up in a table, many are sorted
    leaves = Leaves()
    trees = [leaves.tree(tree) for tree in ({"default": 1}, {"a": 1, "b": 3})]
    default, a, b = (leaves.name(name) for name in ("default", "a", "b"))
    tree_of = np.array([*trees, trees[1], trees[0], -1], np.int64)
    names = np.array([default, a, b, b, default], np.int64)
    assert leaves.positions(tree_of, names).tolist() == [1, 1, 3, -1, -1]
    assert len(leaves) == 5


def test_pods_find_leaves_that_came_later():
    leaves = Leaves()
    first = leaves.tree({"a": 1})
    names = [leaves.name("a")]
    assert leaves.positions(np.array([first]), np.array(names)).tolist() == [1]
    second = leaves.tree({"a": 2, "b": 3})
    names += [leaves.name("b"), leaves.name("a")]
    for _ in range(2):
        assert leaves.positions(np.array([second, second, first]), np.array(names)).tolist() == [2, 3, 1]
