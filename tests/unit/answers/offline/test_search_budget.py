import attrs
import pytest

from kai.answers.offline import run as search_budget
from kai.answers.offline.run import PASSED_FOR_ONE, Counted, Searches, budget_of, simulate
from kai.answers.outcomes.overview import overview
from kai.answers.why.explanation import Explainer
from kai.answers.why.suggestions import LEAST_FOR_ONE, MOST_FOR_ONE, WORTH, allowance
from kai.cli.command import run
from kai.deciding.engine.host import BudgetAnswer, Unlimited
from kai.lab.scenarios.scenario import read_short

NOTHING = Searches(of_all=0, of_one=0)
RECLAIM = {
    "about": "a queue takes back what is its own",
    "cluster": {"nodes": {"n1": {"gpu": 4}, "n2": {"gpu": 4}}},
    "queues": {"a": {"quota": 4}, "b": {"quota": 4}},
    "groups": {
        "old": {"queue": "a", "each": {"gpu": 1}, "members": 8, "minimum": 1, "runs_on": ["n1"] * 4 + ["n2"] * 4},
        "new": {"queue": "b", "each": {"gpu": 1}, "members": 2},
    },
    "run": ["allocate", "reclaim"],
}


def case():
    return read_short(RECLAIM, "reclaim")


def test_searches_are_bounded_per_generator_and_per_cycle():
    counted = Counted(Searches(of_all=3, of_one=2))
    assert counted.begin_group() is BudgetAnswer.GO
    counted.begin_generator("one")
    assert [counted.grant() for _ in range(3)] == [BudgetAnswer.GO, BudgetAnswer.GO, BudgetAnswer.NEXT_GENERATOR]
    assert counted.has_ended
    counted.begin_generator("two")
    assert [counted.grant() for _ in range(2)] == [BudgetAnswer.GO, BudgetAnswer.STOP]
    assert counted.begin_group() is BudgetAnswer.STOP


def test_a_search_that_needs_less_is_not_cut_short():
    counted = Counted(Searches(of_all=2, of_one=2))
    counted.begin_group()
    counted.begin_generator("one")
    assert [counted.grant(), counted.grant()] == [BudgetAnswer.GO, BudgetAnswer.GO]
    assert not counted.has_ended


def test_skipped_scenarios_count_a_part_of_one():
    """A generator may propose thousands that failed before: a search ends there, too."""
    counted = Counted(Searches(of_all=3, of_one=2))
    counted.begin_group()
    counted.begin_generator("one")
    answers = [counted.pass_over() for _ in range(2 * PASSED_FOR_ONE + 1)]
    assert answers == [BudgetAnswer.GO] * (2 * PASSED_FOR_ONE) + [BudgetAnswer.NEXT_GENERATOR]
    counted.begin_generator("two")
    assert [counted.grant(), counted.pass_over()] == [BudgetAnswer.GO, BudgetAnswer.STOP]
    assert counted.begin_group() is BudgetAnswer.STOP


def test_without_a_limit_everything_is_tried():
    assert isinstance(budget_of(None), Unlimited)


@pytest.mark.parametrize(("searches", "evicted", "cut"), [(None, 2, False), (NOTHING, 0, True)])
def test_victims_are_searched_for_as_far_as_is_allowed(searches, evicted, cut):
    outcome = simulate(case(), searches=searches)
    assert (len(overview(outcome).evictions), outcome.last.was_cut_short) == (evicted, cut)


def test_a_change_not_fully_tried_is_not_called_vain(monkeypatch):
    outcome = simulate(case(), searches=NOTHING)
    seen = overview(outcome)
    (job,) = [each for each in seen.jobs if each.name == "new"]
    monkeypatch.setattr("kai.answers.why.explanation.TRYING", NOTHING)
    assert not Explainer(outcome, seen).explain(job).suggestions.all_tried
    thorough = simulate(case())
    assert thorough.searches is None


def test_a_larger_cluster_is_decided_on_again_less_often():
    assert allowance(1) == allowance(1, size=111) == MOST_FOR_ONE
    assert allowance(1, size=WORTH // 11) == 11
    assert allowance(1, size=100 * WORTH) == LEAST_FOR_ONE


SAID = "not all evictions were tried: a job that waits may start at the expense of others; kai simulate tries all"


def test_a_reading_command_notes_an_incomplete_search_last(tmp_path, monkeypatch, capsys):
    path = str(tmp_path / "lab.zip")
    assert run(["snapshot", path, "-q", "--from", "examples/lab"]) == 0
    assert run(["jobs", "--from", path]) == 0
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(search_budget, "READING", attrs.evolve(NOTHING))
    assert run(["jobs", "--from", path]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == SAID
    assert run(["replay", path, "--expect"]) == 0
    assert SAID not in capsys.readouterr().err
