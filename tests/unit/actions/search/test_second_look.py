from unittest import mock

from kai.actions.consolidate import Consolidate
from kai.actions.search.losses import Giver, Room
from kai.actions.search.second_look import MOST_LEFT_OUT, PATIENCE, Looks, SecondLook
from tests.unit.actions.search.stage import opened, row, told

ASKED = (0, 1)


def left_out(looks, asked=ASKED):
    """Return how many looks are left out until one is made."""
    count = 0
    while looks.leaves_out(asked):
        count += 1
    return count


def test_looks_are_left_out_after_some_in_vain_and_ever_more_of_them():
    looks, found = Looks(), []
    for _ in range(PATIENCE + 6):
        found.append(left_out(looks))
        looks.note(ASKED, in_vain=True)
    assert found == [0] * PATIENCE + [1, 3, 7, MOST_LEFT_OUT, MOST_LEFT_OUT, MOST_LEFT_OUT]


def test_a_look_that_finds_something_takes_back_one_in_vain():
    looks = Looks()
    for _ in range(PATIENCE):
        looks.note(ASKED, in_vain=True)
    looks.note(ASKED, in_vain=False)
    assert left_out(looks) == 0
    looks.note(ASKED, in_vain=True)
    assert left_out(looks) == 1


def test_looks_for_groups_that_ask_for_something_else_are_made():
    looks = Looks()
    for _ in range(PATIENCE):
        looks.note(ASKED, in_vain=True)
    assert left_out(looks, (0, 2)) == 0


def test_no_second_look_is_taken_where_all_that_move_must():
    spread = {name: {"each": {"gpu": 1}, "runs_on": [name[-1]]} for name in ("on-a", "on-b")}
    session = opened({**spread, "whole": {"each": {"gpu": 2}}}, {"a": {"gpu": 2}, "b": {"gpu": 2}})
    with mock.patch.object(SecondLook, "look_again") as look:
        Consolidate().run(session)
    assert look.call_count == 0
    assert len(told(session)) == 1


def test_half_of_each_of_two_devices_is_no_device():
    halves = {"members": 2, "minimum": 1, "each": {"fraction": 0.5}, "runs_on": ["n", "n"]}
    session = opened({"one": halves, "two": halves, "whole": {"each": {"gpu": 1}}}, {"n": {"gpu": 2}})
    part = session.portion(row(session, "whole"))
    one, two = (Giver(session, row(session, name)) for name in ("one", "two"))
    room = Room(session, part, part.chunk().tolist(), session.all_nodes * 0)
    assert not room.could_hold({**one.places(1), **two.places(1)})
    assert room.could_hold(one.places(2))
    assert not room.could_hold({})
