import numpy as np

from kai.testing import snapshot
from kai.testing.views import open_session

ONE = {"each": {"gpu": 1}}


def classes_of(groups, queues=None):
    """Return the class of each group by name."""
    session = open_session(snapshot({"n": {"gpu": 8}}, groups, queues))
    names = [group.name for group in session.snapshot.groups]
    found = session.equivalence.classes(np.arange(len(names)))
    assert found.tolist() == session.equivalence.classes(np.arange(len(names))).tolist()
    return dict(zip(names, found.tolist(), strict=True))


def test_groups_that_differ_only_in_names_share_a_class():
    found = classes_of({"a": ONE, "b": ONE, "c": {**ONE, "members": 2, "minimum": 2}})
    assert found["a"] == found["b"] >= 0
    assert found["c"] not in (found["a"], -1)


def test_amounts_and_how_many_are_needed_make_a_class():
    gang = {**ONE, "members": 3, "minimum": 3}
    found = classes_of({"a": ONE, "b": {"each": {"gpu": 2}}, "c": gang, "d": {**gang, "minimum": 1}})
    assert len(set(found.values())) == 4


def test_queues_make_a_class():
    queues = {"left": {"quota": 4}, "right": {"quota": 4}}
    found = classes_of({"a": {**ONE, "queue": "left"}, "b": {**ONE, "queue": "right"}}, queues)
    assert found["a"] != found["b"]


def test_groups_with_pods_on_nodes_are_not_compared():
    found = classes_of({"a": ONE, "b": {**ONE, "runs_on": ["n"]}})
    assert found["a"] >= 0
    assert found["b"] == -1


def test_nobody_asks_about_nothing():
    session = open_session(snapshot({"n": {"gpu": 8}}))
    assert session.equivalence.classes(np.zeros(0, np.int64)).tolist() == []
