import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import attrs
import pytest

from kai.basics.errors import ConfigError, InputError
from kai.basics.progress import heard_by
from kai.lab.virtual.experiments import Experiment, carry_out, carry_out_all, with_value
from kai.lab.virtual.results.result import SimulationResult

CASE = str(Path(__file__).parent / "cases" / "reclaim.yaml")
LAB = str(Path(__file__).parents[4] / "examples" / "lab")
EIGHT_HOURS = 8 * 3600.0


def timeless(result: SimulationResult) -> SimulationResult:
    metrics = {name: metric for name, metric in result.metrics.items() if name != "computing"}
    return attrs.evolve(result, metrics=metrics)


def test_parallel_runs_equal_runs_one_after_another():
    base = Experiment(workload=CASE, until=EIGHT_HOURS)
    experiments = [with_value(base, "plugins.binpack.gpu", value) for value in (True, False)]
    apart, together = carry_out_all(experiments, most=1), carry_out_all(experiments, most=2)
    assert [timeless(each.result) for each in apart] == [timeless(each.result) for each in together]
    assert [each.result.policy for each in together] == ["plugins.binpack.gpu=True", "plugins.binpack.gpu=False"]


def test_parallel_runs_report_progress_up_to_the_end():
    heard: list[tuple[str, int, int, str | None]] = []
    base = Experiment(workload=CASE, until=EIGHT_HOURS)
    with heard_by(lambda *told: heard.append(told)):
        carry_out_all([with_value(base, "seed", seed) for seed in range(3)], most=2)
    told = [(done, total, detail) for what, done, total, detail in heard if what == "simulating 3 runs, 2 at a time"]
    assert told[0] == (0, 3000, "0 ended")
    assert told[-1] == (3000, 3000, "3 ended")
    assert [done for done, _, _ in told] == sorted(done for done, _, _ in told)


def test_the_first_failing_parallel_run_raises_its_error():
    good = Experiment(workload=CASE, until=EIGHT_HOURS)
    missing = [attrs.evolve(good, workload=f"{name}.yaml") for name in ("first", "second")]
    with pytest.raises(InputError, match=r"^first\.yaml"):
        carry_out_all([good, *missing], most=2)


@pytest.mark.parametrize("value", [0, 1, 2])
def test_density_can_be_swept_as_a_weight(value: int):
    swept = with_value(Experiment(workload=CASE, until=EIGHT_HOURS), "plugins.binpack.gpu", value)
    assert carry_out(swept).result.policy == f"plugins.binpack.gpu={value}"


@pytest.mark.parametrize("path", ["queues.a", "plugins.binpack", "parameters.none", "x"])
def test_a_path_that_leads_nowhere_is_refused(path: str):
    with pytest.raises(ConfigError, match=r"expected seed, parameters\.NAME or plugins\.PLUGIN\.OPTION"):
        with_value(Experiment(workload=CASE), path, 1)


@pytest.mark.parametrize("seconds", [1.0, 2.5])
def test_an_interrupt_of_starting_runs_leaves_only_the_code(seconds: float):
    words = ["simulate", LAB, "--until", "365d", "--sweep", "plugins.binpack.gpu=0,1,2", "-q"]
    begin = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from kai.cli.command import run; "
        f"print(flush=True); raise SystemExit(run({words}))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", begin],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=20)
    finally:
        process.kill()
    assert (process.returncode, said.strip()) == (130, "")
