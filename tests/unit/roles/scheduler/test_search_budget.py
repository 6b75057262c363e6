"""Search budgets count seconds, and what they answered is kept."""

import pytest

from kai.deciding.engine.host import BudgetAnswer
from kai.framework.parameters import SearchBudgets
from kai.roles.scheduler.cycle.cycle_input import Timed
from kai.roles.scheduler.cycle.stream import AbandonedError


class Clock:
    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time


def budget(**limits):
    clock = Clock()
    chosen = {"action": {"default": 10.0}, "group": 4.0, "generator": {"default": 2.0}, **limits}
    return Timed(SearchBudgets(**chosen), clock), clock


def test_generator_then_group_then_action_run_out_of_time():
    timed, clock = budget()
    timed.begin_action("reclaim")
    assert timed.begin_group() is BudgetAnswer.GO
    timed.begin_generator("one")
    assert timed.grant() is BudgetAnswer.GO
    clock.time = 2.0
    assert timed.grant() is BudgetAnswer.NEXT_GENERATOR
    timed.begin_generator("two")
    clock.time = 4.0
    assert timed.grant() is BudgetAnswer.STOP
    clock.time = 10.0
    assert timed.begin_group() is BudgetAnswer.STOP
    timed.begin_action("preempt")
    assert timed.begin_group() is BudgetAnswer.GO
    spent = timed.finish()
    assert spent["reclaim"].scenarios == {"one": 1}
    assert spent["reclaim"].seconds == {"one": 2.0, "two": 2.0}
    assert (spent["reclaim"].groups, spent["reclaim"].stopped, spent["reclaim"].refused_groups) == (1, 1, 1)


def test_every_group_gets_the_least_time():
    timed, clock = budget(group_minimum=1.0)
    timed.begin_action("reclaim")
    clock.time = 11.0
    assert timed.begin_group() is BudgetAnswer.GO
    timed.begin_generator("one")
    assert timed.grant() is BudgetAnswer.GO
    clock.time = 12.0
    assert timed.grant() is BudgetAnswer.STOP
    assert timed.finish()["reclaim"].reduced_groups == 1


def test_zero_is_no_limit():
    timed, clock = budget(action={"default": 0.0}, group=0.0, generator={"default": 0.0})
    timed.begin_action("reclaim")
    assert timed.begin_group() is BudgetAnswer.GO
    timed.begin_generator("one")
    clock.time = 1e9
    assert timed.grant() is BudgetAnswer.GO


def test_answers_are_kept_in_their_order():
    timed, clock = budget()
    timed.begin_action("reclaim")
    answers = [timed.begin_group()]
    timed.begin_generator("one")
    for time in (0.5, 1.0, 2.5, 3.0, 5.0):
        clock.time = time
        answers.append(timed.grant())
    assert answers == [BudgetAnswer(what) for what, count in timed.grants for _ in range(count)]
    assert timed.grants == (("go", 3), ("next generator", 2), ("stop", 1))


def test_a_stopped_cycle_ends_at_the_next_question():
    def stop():
        raise AbandonedError("the cycle was stopped")

    timed = Timed(SearchBudgets(), Clock(), check=stop)
    timed.begin_action("reclaim")
    timed.begin_generator("one")
    for question in (timed.go_on, timed.begin_group, timed.grant, timed.pass_over):
        with pytest.raises(AbandonedError):
            question()
    assert timed.grants == ()


def test_only_a_part_of_the_groups_is_served():
    clock = Clock()
    timed = Timed(SearchBudgets(), clock, part_seconds=1.0)
    timed.begin_action("allocate")
    answers = [timed.go_on()]
    clock.time = 1.0
    answers.append(timed.go_on())
    timed.begin_action("reclaim")
    answers += [timed.go_on(), timed.begin_group()]
    assert answers == [BudgetAnswer.GO, BudgetAnswer.STOP, BudgetAnswer.GO, BudgetAnswer.STOP]
    assert timed.grants == (("go", 1), ("stop", 1), ("go", 1), ("stop", 1))


def test_an_unlimited_budget_keeps_no_grants():
    timed, clock = budget()
    timed.begin_action("allocate")
    clock.time = 1e9
    assert (timed.go_on(), timed.grants) == (BudgetAnswer.GO, ())


def test_skipped_scenarios_take_time_but_are_not_counted():
    timed, clock = budget()
    timed.begin_action("reclaim")
    timed.begin_group()
    timed.begin_generator("one")
    assert timed.pass_over() is BudgetAnswer.GO
    clock.time = 2.0
    assert timed.pass_over() is BudgetAnswer.NEXT_GENERATOR
    clock.time = 4.0
    assert timed.pass_over() is BudgetAnswer.STOP
    assert timed.finish()["reclaim"].scenarios == {}
    assert timed.grants == (("go", 2), ("next generator", 1), ("stop", 1))
