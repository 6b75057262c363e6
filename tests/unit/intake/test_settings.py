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
def test_a_scheduler_owns_objects_with_its_pool_label(settings, labels, owned):
    assert settings.owns(labels) == owned


def test_the_pool_of_an_object_is_its_label():
    assert IntakeSettings().pool({KEY: "x"}) == "x"
    assert IntakeSettings().pool({}) == ""
