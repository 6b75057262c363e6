"""What changes between two outcomes."""

import attrs
import pytest

from kai.lab.comparing.comparison import JobState, Side, compare_sides, jain, side_of_document

RUNS = JobState(state="Running", nodes=("n1",), queue="q", reason="", placed=2, wanted=2)
WAITS = JobState(state="Waits", nodes=(), queue="q", reason="OverLimit", placed=0, wanted=2)
PLACE = {"kind": "place", "cycle": 1, "pod": "x/a-0", "node": "n1"}
SIDE = Side(
    title="one",
    jobs={"x/a": RUNS, "x/b": WAITS},
    figures={"jobs running": 1.0, "jobs waiting": 1.0, "pods evicted": 0.0, "pods held": 1.0, "queue q": 2.0},
    decisions=(PLACE,),
)


def test_a_side_is_equal_to_itself():
    found = compare_sides(SIDE, attrs.evolve(SIDE, title="two"))
    assert found.is_equal
    assert (found.a, found.b, found.first_divergence) == ("one", "two", None)


@pytest.mark.parametrize(
    ("name", "value", "better"),
    [
        ("jobs running", 2.0, "b"),
        ("jobs waiting", 2.0, "a"),
        ("pods evicted", 3.0, "a"),
        ("pods held", 2.0, "unclear"),
        ("queue q", 3.0, "unclear"),
        ("jobs running", 1.0, "equal"),
    ],
)
def test_a_changed_figure_names_the_better_side_where_known(name, value, better):
    other = attrs.evolve(SIDE, figures={**SIDE.figures, name: value})
    (metric,) = [each for each in compare_sides(SIDE, other).metrics if each.name == name]
    assert metric.better == better
    assert metric.change == value - SIDE.figures[name]


def test_a_missing_figure_is_unclear_and_makes_sides_unequal():
    found = compare_sides(SIDE, attrs.evolve(SIDE, figures={"jobs running": 1.0}))
    assert {each.name: each.better for each in found.metrics}["pods evicted"] == "unclear"
    assert not found.is_equal


def test_differing_jobs_and_those_of_one_side_are_listed():
    other = attrs.evolve(SIDE, jobs={"x/a": attrs.evolve(RUNS, nodes=("n2",)), "x/c": RUNS})
    found = compare_sides(SIDE, other)
    assert [(each.job, each.a is None, each.b is None) for each in found.jobs] == [
        ("x/a", False, False),
        ("x/b", False, True),
        ("x/c", True, False),
    ]


def test_the_first_divergence_shows_both_decisions_of_its_cycle():
    evict = {"kind": "evict", "cycle": 1, "pod": "x/a-0", "node": "n1", "aggressor": "x/b"}
    later = {"kind": "place", "cycle": 2, "pod": "w/z-0", "node": "n1"}
    found = compare_sides(attrs.evolve(SIDE, decisions=(PLACE, later)), attrs.evolve(SIDE, decisions=(evict,)))
    first = found.first_divergence
    assert (first.cycle, first.decision_a, first.decision_b) == (1, PLACE, evict)


def test_results_that_were_written_down_are_sides():
    document = {
        "kind": "SimulationResult",
        "jobs": [
            {
                "name": "a",
                "namespace": "x",
                "state": "Waits",
                "nodes": [],
                "queue": "q",
                "pods": {"wanted": 2, "placed": 0},
                "reason": {"code": "OverLimit"},
            }
        ],
        "queues": [
            {"name": "top", "leaf": False, "gpus": {"used": 4, "fairShare": 4, "requested": 4}},
            {"name": "q", "leaf": True, "gpus": {"used": 4, "fairShare": 8, "requested": 8}},
        ],
    }
    side = side_of_document("old", document)
    assert side.jobs["x/a"] == attrs.evolve(WAITS, wanted=2)
    assert side.figures == {
        "jobs running": 0.0,
        "jobs waiting": 1.0,
        "GPUs allocated": 4.0,
        "fairness (Jain)": 1.0,
        "queue q": 4.0,
    }
    assert side.decisions is None


def test_plans_that_were_written_down_are_sides():
    side = side_of_document("old", {"kind": "Plan", "place": [{"cycle": 1, "pod": "x/a-0", "node": "n1"}], "evict": []})
    assert side.figures["pods started"] == 1.0
    assert side.decisions == ({"cycle": 1, "pod": "x/a-0", "node": "n1", "kind": "place"},)


def test_jains_index_is_one_for_equals_and_falls_otherwise():
    assert jain([2.0, 2.0, 2.0]) == pytest.approx(1.0)
    assert jain([3.0, 0.0, 0.0]) == pytest.approx(1 / 3)
    assert jain([]) == jain([0.0]) == 1.0


@pytest.mark.parametrize("change", [{"queue": "other"}, {"reason": "NoRoom"}, {"wanted": 3}])
def test_a_job_with_another_queue_or_reason_is_listed(change):
    other = attrs.evolve(SIDE, jobs={**SIDE.jobs, "x/b": attrs.evolve(WAITS, **change)})
    assert [each.job for each in compare_sides(SIDE, other).jobs] == ["x/b"]


@pytest.mark.parametrize("change", [{"slots": ["1"]}, {"share": 0.5}, {"cause": "reclaim"}])
def test_a_decision_with_another_device_share_or_cause_differs(change):
    other = attrs.evolve(SIDE, decisions=({**PLACE, **change},))
    assert compare_sides(SIDE, other).first_divergence is not None


def test_the_name_of_an_opened_device_is_no_difference():
    sides = [attrs.evolve(SIDE, decisions=({**PLACE, "slots": [name]},)) for name in ("+a", "+b")]
    assert compare_sides(*sides).is_equal
