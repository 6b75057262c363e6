"""What is not there is remembered for a minute, and tenants cannot make the memory grow."""

import pytest

from kai.cluster.requesting.foreign import MOST, SECONDS, Absence


def full(now=0.0):
    absence = Absence()
    for number in range(MOST):
        absence.note(number, now)
    return absence


def test_a_noted_key_is_absent_for_a_minute():
    absence = Absence()
    assert not absence.holds("a", 0.0)
    absence.note("a", 10.0)
    assert absence.holds("a", 10.0)
    assert absence.holds("a", 10.0 + SECONDS - 1)
    assert not absence.holds("a", 10.0 + SECONDS)
    assert not absence.holds("b", 10.0)


def test_what_is_there_again_is_absent_no_longer():
    absence = Absence()
    absence.note("a", 0.0)
    absence.forget("a")
    absence.forget("never absent")
    assert not absence.holds("a", 0.0)


def test_a_repeated_note_restarts_the_minute():
    absence = Absence()
    absence.note("a", 0.0)
    absence.note("a", 50.0)
    assert absence.holds("a", 100.0)


@pytest.mark.parametrize("more", [1, MOST, 10 * MOST])
def test_only_the_first_keys_within_the_limit_are_remembered(more):
    absence = full()
    for number in range(more):
        absence.note(f"more {number}", 1.0)
    assert len(absence) == MOST
    assert absence.holds(0, 1.0)
    assert not absence.holds("more 0", 1.0)


def test_what_is_no_news_makes_room():
    absence = full()
    absence.note("later", SECONDS)
    assert absence.holds("later", SECONDS)
    assert len(absence) == 1


def test_a_remembered_key_is_renewed_even_without_room():
    absence = full()
    absence.note(7, 1.0)
    assert absence.holds(7, SECONDS + 0.5)
    assert len(absence) == MOST
