import pytest

from kai.api.codec.structuring import structure_as
from kai.api.conventions.budgets import (
    bad_budgets,
    budgets_in,
    longest_days,
    usable_budgets,
    weight_of,
    weighted,
)
from kai.api.conventions.gpu_sharing import is_of_model
from kai.api.scheduling.queue import Queue, QueueBudget


def budget(**fields):
    return structure_as(QueueBudget, {"name": "month", "amount": 5, **fields})


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"amount": -1}, "amount: found -1, expected GPU-hours from 0 to 1e+09"),
        ({"carryOver": 2}, "carryOver: found 2, expected a number from 0 to 1"),
        ({"slice": "10s"}, "slice: found 10s, expected a duration from 1m to 720h"),
        (
            {"period": "@every 1h"},
            "period: found '@every 1h', expected monthly, weekly, daily, once",
        ),
        ({"timeZone": "Berlin"}, "timeZone: found 'Berlin', expected an IANA time zone such as"),
        ({"until": "2026-01-01T00:00:00Z"}, "until: found an instant, expected none with the period monthly"),
        ({"weights": [{"model": "", "weight": 1}]}, 'weights[0].model: found "", expected a GPU model'),
        ({"weights": [{"model": "H100", "weight": -1}]}, "weights[0].weight: found -1, expected a number from 0 to"),
    ],
)
def test_a_budget_that_cannot_be_used_names_its_field(fields, said):
    (found,) = bad_budgets([budget(**fields)])
    assert str(found).startswith(f"spec.budgets[0].{said}")
    manifest = {"spec": {"budgets": [{"name": "month", "amount": 5, **fields}]}}
    assert [str(each) for each in bad_budgets(budgets_in(manifest))] == [str(found)]
    queue = structure_as(Queue, {"metadata": {"name": "q"}, **manifest})
    assert list(usable_budgets(queue)) == []


def test_two_budgets_of_one_name_are_refused():
    (found,) = bad_budgets([budget(), budget()])
    assert str(found) == "spec.budgets[1].name: found 'month', expected a name that no earlier budget has"


def test_anything_in_a_manifest_is_read_without_an_error():
    for odd in (None, 3, "x", [], {"amount": "many", "weights": 3, "slice": 5, "from": "soon", "refund": None}):
        assert isinstance(budgets_in({"spec": {"budgets": [odd]}}), tuple)


def test_a_model_matches_whole_by_pattern_or_word():
    model = "NVIDIA-H100-80GB-HBM3"
    assert all(is_of_model(model, each) for each in (model, "nvidia-h100-*", "h100", "HBM3"))
    assert not any(is_of_model(model, each) for each in ("", "H10", "A100", "80"))
    assert is_of_model("NVIDIA-GeForce-RTX-4090", "rtx-4090")
    assert not is_of_model("NVIDIA-A100-SXM4-40GB", "a100-mig-1g.5gb")
    dear = budget(weights=[{"model": "H100", "weight": 2.5}, {"model": "*", "weight": 0.5}])
    assert (weight_of(dear, model), weight_of(dear, "L4"), weight_of(budget(), model)) == (2500, 500, 1000)


def test_parts_of_gpus_are_never_charged_too_little():
    assert [weighted(gpus, 2_500) for gpus in (0, 1, 100, 1_000)] == [0, 3, 250, 2_500]


@pytest.mark.parametrize(
    ("fields", "days"),
    [
        ({}, 31),
        ({"period": "daily"}, 1),
        ({"period": "0 0 1 1 *"}, 366),
        ({"period": "0 0 1 */6 *"}, 184),
        ({"period": "once"}, 0),
        ({"period": "once", "from": "2026-01-01T00:00:00Z", "until": "2026-05-01T00:00:00Z"}, 120),
    ],
)
def test_the_longest_period_is_that_of_the_schedule(fields, days):
    assert longest_days(budget(**fields)) == days
