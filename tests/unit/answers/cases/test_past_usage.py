"""Past usage can be written into a case, since a simulation asks no database."""

import attrs
import pytest

from kai.answers.cases.case import read_past_usage, unread
from kai.basics.errors import InputError
from kai.deciding.configuration.past_usage import UsageSettings
from kai.deciding.configuration.profile_reading import default_configuration
from kai.facts.model.groups import Shares
from kai.lab.scenarios.scenario import read_scenario

LONG = {"kind": "scheduling", "now": "2026-01-01T00:00:00Z", "objects": []}
SHORT = {"about": "a", "cluster": {"nodes": {}}, "queues": {}, "groups": {}}


def test_both_forms_of_a_scenario_may_say_it():
    expected = {"a": Shares(gpu=0.5, cpu=1.0)}
    for document in (
        {**LONG, "pastUsage": {"a": {"gpu": 0.5, "cpu": 1}}},
        {**SHORT, "past_usage": {"a": {"gpu": 0.5, "cpu": 1}}},
    ):
        assert read_scenario(document, "s.yaml").past.usage == expected
    assert read_scenario(LONG, "s.yaml").past.usage == {}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], r"s.yaml: pastUsage: found \[\], expected cpu, memory, gpu of each queue"),
        ({"a": 0.5}, "s.yaml: pastUsage.a: found 0.5, expected cpu, memory, gpu as fractions of the cluster"),
        ({"a": {"gpus": 0.5}}, "s.yaml: pastUsage.a: found {gpus: 0.5}, expected cpu, memory, gpu"),
        (
            {"a": {"gpu": "half"}},
            "s.yaml: pastUsage.a.gpu: found 'half', expected a fraction of the cluster, 0 or more",
        ),
        ({"a": {"gpu": -0.5}}, "s.yaml: pastUsage.a.gpu: found -0.5, expected a fraction"),
        ({"a": {"gpu": True}}, "s.yaml: pastUsage.a.gpu: found true, expected a fraction"),
        ({"a": {"gpu": float("nan")}}, "s.yaml: pastUsage.a.gpu: found .nan, expected a fraction"),
    ],
)
def test_what_is_no_past_usage_is_named(value, message):
    with pytest.raises(InputError, match=message):
        read_past_usage(value, "s.yaml", "pastUsage")


def test_a_needed_but_unknown_past_usage_is_noted():
    asks = attrs.evolve(default_configuration(), usage=UsageSettings(address="http://p"), place="c.yaml")
    (note,) = unread(asks, {})
    assert note.startswith("c.yaml: usageDBConfig: a simulation asks no database")
    assert unread(asks, {"a": Shares()}) == unread(default_configuration(), {}) == ()
