import numpy as np
import pytest

from kai.deciding.engine.cycle import SILENT
from kai.deciding.engine.heaps import GroupHeap
from kai.deciding.engine.session import Session
from kai.testing import RecordingSink, default_profile_with, snapshot


def opened():
    taken = snapshot(nodes={"n": {"gpu": 1}}, groups={name: {"each": {"gpu": 1}} for name in "abc"})
    return Session(taken, default_profile_with(), RecordingSink(), SILENT)


def filled(depth, session=None, groups=None, *, again=False):
    session = session or opened()
    heap = GroupHeap(session, depth=depth)
    heap.fill(session.waiting_groups() if groups is None else groups, again=again)
    return heap


def popped(heap):
    return [portion.group for portion in iter(heap.pop, None)]


@pytest.mark.parametrize(("depth", "kept"), [(-1, [0, 1, 2]), (2, [0, 1])])
def test_a_heap_of_closed_groups_empties_and_names_them(depth, kept):
    heap = filled(depth)
    portion, dropped = heap.pop_open(np.ones(3, np.bool_))
    assert portion is None
    assert sorted(dropped.tolist()) == kept
    assert heap.pop() is None


def test_only_groups_before_the_first_open_one_are_dropped():
    heap = filled(-1)
    portion, dropped = heap.pop_open(np.array([True, False, True]))
    assert portion.group == 1
    assert dropped.tolist() == [0]
    assert heap.pop().group == 2


def test_an_unchanged_heap_is_refilled_from_the_last_one(monkeypatch):
    session = opened()
    first = filled(-1, session, again=True)
    assert popped(first) == [0, 1, 2]
    monkeypatch.setattr("kai.deciding.engine.heaps.fill", None)  # nothing is pushed anew
    assert popped(filled(-1, session, again=True)) == [0, 1, 2]


@pytest.mark.parametrize("other", ["groups", "depth", "status"])
def test_a_heap_is_filled_anew_after_a_change(other):
    session = opened()
    assert popped(filled(-1, session, again=True)) == [0, 1, 2]
    groups = np.array([0, 2]) if other == "groups" else session.waiting_groups()
    if other == "status":
        with session.statement("allocate") as statement:
            pods = session.portion(0).chunk()
            assert statement.place_pods(pods, session.all_nodes, session.no_extra, promise=False) == 1
            statement.commit()
        assert session.filled.changes != session.changes()
        groups = session.waiting_groups()
    wanted = {"groups": [0, 2], "depth": [0, 1], "status": [1, 2]}[other]
    assert popped(filled(2 if other == "depth" else -1, session, groups, again=True)) == wanted
