import pytest

from kai.intake import IntakeSettings

KEY = "kai.scheduler/node-pool"


@pytest.mark.parametrize(
    ("settings", "labels", "owned"),
    [
        (IntakeSettings(), {}, True),
        (IntakeSettings(), {KEY: "x"}, False),
        (IntakeSettings(), {KEY: ""}, False),
        (IntakeSettings(node_pool="x"), {KEY: "x"}, True),
        (IntakeSettings(node_pool="x"), {KEY: "y"}, False),
        (IntakeSettings(node_pool="x"), {}, False),
        (IntakeSettings(node_pool_label=""), {KEY: "y"}, True),
        (IntakeSettings(node_pool_label="pool", node_pool="x"), {"pool": "x"}, True),
    ],
)
def test_a_scheduler_owns_what_carries_its_label_or_none_if_it_has_none(settings, labels, owned):
    assert settings.owns(labels) == owned


def test_the_pool_of_an_object_is_its_label():
    assert IntakeSettings().pool({KEY: "x"}) == "x"
    assert IntakeSettings().pool({}) == ""
