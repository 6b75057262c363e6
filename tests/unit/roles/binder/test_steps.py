import pytest

from kai.basics.errors import ConfigError
from kai.roles.binder.steps import StepOptions, resolve_steps


def order(**options):
    return [step.name for step in resolve_steps(options)]


def test_by_default_volumes_come_before_claims_before_shared_gpus():
    assert order() == ["volumebinding", "dynamicresources", "gpusharing"]


def test_a_higher_priority_runs_earlier_and_names_break_ties():
    assert order(gpusharing=StepOptions(priority=999)) == ["gpusharing", "volumebinding", "dynamicresources"]
    same = {name: StepOptions(priority=1) for name in ("volumebinding", "dynamicresources", "gpusharing")}
    assert order(**same) == ["dynamicresources", "gpusharing", "volumebinding"]


def test_a_step_can_be_switched_off():
    assert order(volumebinding=StepOptions(enabled=False)) == ["dynamicresources", "gpusharing"]


def test_the_memory_limit_runs_after_the_config_maps():
    assert order(hamicore=StepOptions(enabled=True))[-1] == "hamicore"


@pytest.mark.parametrize(
    "options",
    [
        {"hamicore": StepOptions(enabled=True), "gpusharing": StepOptions(enabled=False)},
        {"hamicore": StepOptions(enabled=True, priority=100)},
    ],
)
def test_the_memory_limit_without_those_maps_does_not_start(options):
    with pytest.raises(
        ConfigError, match=r"plugins.hamicore: found 'enabled', expected gpusharing enabled with a higher"
    ):
        resolve_steps(options)


def test_arguments_reach_the_steps():
    steps = resolve_steps(
        {
            "volumebinding": StepOptions(arguments={"bindTimeoutSeconds": "7"}),
            "gpusharing": StepOptions(arguments={"cdiEnabled": "True"}),
        },
    )
    assert steps[0].timeout_seconds == 7.0
    assert steps[2].uses_cdi is True


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"volume-binding": StepOptions()}, "plugins.volume-binding: found 'volume-binding', expected one of"),
        ({"volumebinding": StepOptions(arguments={})}, "bindTimeoutSeconds: found nothing, expected a whole number"),
        ({"volumebinding": StepOptions(arguments={"bindTimeoutSeconds": "soon"})}, "found 'soon'"),
        ({"dynamicresources": StepOptions(arguments={"bindTimeoutSeconds": "-1"})}, "found '-1'"),
        ({"gpusharing": StepOptions(arguments={"cdiEnabled": "maybe"})}, "found 'maybe', expected true or false"),
    ],
)
def test_a_wrong_configuration_stops_the_start(options, message):
    with pytest.raises(ConfigError) as caught:
        resolve_steps(options)
    assert message in str(caught.value)
