"""Cycles in a row: what changes nothing for the next one is not decided again, and the outcome is the same."""

import attrs
import pytest

from kai.answers.offline import run
from kai.answers.offline.run import DECIDING, simulate
from kai.answers.outcomes.plan import answer, plan_of
from kai.basics.progress import heard_by
from kai.deciding.engine.host import Silent
from kai.lab.scenarios.scenario import read_short

CLUSTER = {
    "cluster": {"nodes": {"n1": {"gpu": 2}}},
    "queues": {"root": {"quota": 2}, "a": {"parent": "root", "quota": 2}, "b": {"parent": "root", "quota": 0}},
    "groups": {
        "old": {"queue": "b", "members": 2, "each": {"gpu": 1}, "runs_on": "n1"},
        "new": {"queue": "a", "each": {"gpu": 2}},
    },
}


def case(cycles: int, **more):
    return attrs.evolve(read_short(CLUSTER, "case.yaml"), cycles=cycles, **more)


@pytest.fixture
def decided(monkeypatch):
    """Return the numbers of the cycles that are decided."""
    numbers = []
    decide = run.decide

    def counting(snapshot, profile, number, *more):
        numbers.append(number)
        return decide(snapshot, profile, number, *more)

    monkeypatch.setattr(run, "decide", counting)
    return numbers


def test_unchanged_cycles_are_not_decided_again(decided):
    outcome = simulate(case(500))
    assert len(decided) < 10
    assert [cycle.number for cycle in outcome.cycles] == list(range(1, 501))


@pytest.mark.parametrize("more", [{}, {"stable_cycles": 3}])
def test_the_outcome_is_that_of_deciding_each_time(decided, more):
    short = simulate(case(8, **more))
    skipped = len(decided)
    decided.clear()
    whole = simulate(case(8, **more), observer=Silent())  # who observes is shown every cycle
    assert skipped < len(decided) == 8 + more.get("stable_cycles", 0)
    assert answer(short) == answer(whole)
    assert plan_of(short).document() == plan_of(whole).document()


def test_a_group_with_endless_terminating_pods_is_decided_once(decided):
    outcome = simulate(case(50, keep_terminating=frozenset({"old"})))
    assert len(outcome.cycles) == 50
    assert len(decided) < 10


def test_only_several_cycles_report_progress():
    heard = []
    with heard_by(lambda *told: heard.append(told)):
        simulate(case(1))
        assert heard == []
        simulate(case(3))
    assert heard[0] == (DECIDING, 0, 3, "cycle 1 of 3")
    assert heard[-1] == (DECIDING, 3, 3, "")
