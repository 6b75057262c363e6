from pathlib import Path

import attrs
import pytest

from kai.errors import ConfigError
from kai.virtual.experiments import Experiment, carry_out_all, with_value
from kai.virtual.result import SimulationResult

CASE = str(Path(__file__).parent / "cases" / "reclaim.yaml")
EIGHT_HOURS = 8 * 3600.0


def timeless(result: SimulationResult) -> SimulationResult:
    metrics = {name: metric for name, metric in result.metrics.items() if name != "computing"}
    return attrs.evolve(result, metrics=metrics)


def test_runs_side_by_side_in_processes_are_equal_to_runs_one_after_the_other():
    base = Experiment(workload=CASE, until=EIGHT_HOURS)
    experiments = [with_value(base, "plugins.binpack.gpu", value) for value in (True, False)]
    apart, together = carry_out_all(experiments, most=1), carry_out_all(experiments, most=2)
    assert [timeless(each.result) for each in apart] == [timeless(each.result) for each in together]
    assert [each.result.policy for each in together] == ["plugins.binpack.gpu=True", "plugins.binpack.gpu=False"]


@pytest.mark.parametrize("path", ["queues.a", "plugins.binpack", "parameters.none", "x"])
def test_a_path_that_leads_nowhere_is_refused(path: str):
    with pytest.raises(ConfigError, match=r"expected seed, parameters\.NAME or plugins\.PLUGIN\.OPTION"):
        with_value(Experiment(workload=CASE), path, 1)
