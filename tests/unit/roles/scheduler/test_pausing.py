"""Between turns the scheduler does not rest; once all had theirs, it does as if there were none."""

import pytest

from kai.roles.scheduler.settings import SchedulerSettings
from kai.roles.scheduler.wakeups import MOST_PERIODS, pause_after

SETTINGS = SchedulerSettings(period_seconds=1.0, coalescing_seconds=0.05)


def pause(*, turns=1, idle=1, restless=True, dues=()):
    return pause_after(SETTINGS, turns=turns, idle=idle, restless=restless, dues=dues)


@pytest.mark.parametrize("idle", range(19))
def test_turns_follow_immediately_until_all_groups_were_considered(idle):
    assert pause(turns=19, idle=idle, dues=[0.01]) == SETTINGS.coalescing_seconds


def test_a_round_of_turns_counts_as_one_idle_cycle():
    assert [pause(turns=19, idle=idle) for idle in (19, 37, 38, 57)] == [1.0, 1.0, 2.0, 3.0]


def test_without_turns_cycles_become_rarer_up_to_a_bound():
    assert [pause(idle=idle) for idle in (0, 1, 2, 3, 100)] == [1.0, 1.0, 2.0, 3.0, MOST_PERIODS]


def test_without_waiting_groups_only_due_times_wake():
    assert pause(restless=False) is None
    assert pause(restless=False, dues=[7.0, 4.0]) == 4.0
    assert pause(dues=[0.3, -2.0]) == 0.0
