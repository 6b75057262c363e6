import numpy as np
import pytest

from kai.engine.cycle import SILENT
from kai.engine.heaps import GroupHeap
from kai.engine.session import Session
from kai.testing import RecordingSink, default_profile_with, snapshot


def filled(depth):
    taken = snapshot(nodes={"n": {"gpu": 1}}, groups={name: {"each": {"gpu": 1}} for name in "abc"})
    session = Session(taken, default_profile_with(), RecordingSink(), SILENT)
    heap = GroupHeap(session, depth=depth)
    heap.fill(session.waiting_groups())
    return heap


@pytest.mark.parametrize(("depth", "kept"), [(-1, [0, 1, 2]), (2, [0, 1])])
def test_a_heap_of_groups_that_are_all_closed_is_empty_afterwards_and_says_who_was_in_it(depth, kept):
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
