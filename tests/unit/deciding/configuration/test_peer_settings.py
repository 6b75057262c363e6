import pytest

from kai.basics.errors import ConfigError
from kai.deciding.configuration.peer import Settings
from kai.framework.parameters import Parameters

DEFAULT = Parameters()


def test_what_a_scenario_does_not_say_is_the_default():
    assert Settings({}, "s.yaml").parameters(DEFAULT) == DEFAULT


def test_what_a_snapshot_leaves_out_is_zero():
    read = Settings({}, "s.zip", zeroed=True).parameters(DEFAULT)
    assert read.max_consolidation_preemptees == 0
    assert not read.allow_consolidating_reclaim
    assert not read.use_scheduling_signatures
    assert read.default_staleness_grace_seconds == 0.0
    assert read.scheduler_name == "kai-scheduler"


def test_snapshot_settings_use_nanoseconds_and_their_own_names():
    values = {"globalDefaultStalenessGracePeriod": 60_000_000_000, "maxNumberConsolidationPreemptees": -5}
    read = Settings(values, "s.zip", zeroed=True).parameters(DEFAULT)
    assert read.default_staleness_grace_seconds == 60.0
    assert read.max_consolidation_preemptees == -1


def test_a_scenario_writes_durations_as_text():
    read = Settings({"defaultStalenessGracePeriod": "-1s", "maxConsolidationPreemptees": 2}, "s.yaml").parameters(
        DEFAULT
    )
    assert (read.default_staleness_grace_seconds, read.max_consolidation_preemptees) == (-1.0, 2)


@pytest.mark.parametrize(
    "values",
    [
        {"allowConsolidatingReclaim": "yes"},
        {"maxConsolidationPreemptees": 1.5},
        {"schedulerName": 5},
        {"defaultStalenessGracePeriod": "later"},
        {"defaultStalenessGracePeriod": 1.5},
    ],
)
def test_a_value_of_the_wrong_type_is_named(values):
    (name,) = values
    with pytest.raises(ConfigError, match=f"s.yaml.{name}: found"):
        Settings(values, "s.yaml").parameters(DEFAULT)
