from types import SimpleNamespace

import numpy as np
import pytest

from kai.answers.offline import run as simulated
from kai.cli.command import run
from kai.facts.compiled import pace, warm
from kai.facts.compiled.warm import Warmth
from tests.architecture.source import ROOT

LAB = str(ROOT / "examples" / "lab")


@pytest.fixture
def running(monkeypatch):
    """Remember what is said about how kernels run, in a process that has decided nothing yet and has none cached."""
    said = []
    monkeypatch.setattr(simulated, "_PACE", pace.Pace())
    monkeypatch.setattr(pace, "is_plain", lambda: None if "compiled" not in said else False)
    monkeypatch.setattr(pace, "run_plainly", lambda: said.append("plainly"))
    monkeypatch.setattr(pace, "run_compiled", lambda: said.append("compiled"))
    monkeypatch.setattr(warm, "missing", lambda *_modules: [object()])

    def compiled(*modules, tell):
        assert "kai.plugins.topology.plugin" in modules
        tell(0, 1)
        tell(1, 1)
        return Warmth(98, 1, None)

    monkeypatch.setattr(warm, "warm", compiled)
    return said


def test_a_small_cluster_is_decided_without_compiling_silently(running, capsys):
    assert run(["simulate", LAB]) == 0
    assert set(running) == {"plainly"}
    assert capsys.readouterr().err == ""


def test_large_work_compiles_kernels_once_with_one_line(running, monkeypatch, capsys):
    monkeypatch.setattr(pace, "WORTH_COMPILING", 1)
    assert run(["simulate", LAB, LAB]) == 0
    assert running == ["compiled"]
    assert capsys.readouterr().err == "compiling kernels (once, a minute or two) ...\n"
    running.clear()
    assert run(["simulate", "-q", LAB]) == 0
    assert (running, capsys.readouterr().err) == (["compiled"], "")


def test_deciding_again_and_again_counts_as_work(running):
    assert run(["simulate", "-q", LAB]) == 0
    once = simulated._PACE.done
    assert once > 0
    assert run(["simulate", "-q", "--cycles", "3", LAB]) == 0
    assert simulated._PACE.done > 3 * once


def cycle(scenarios):
    """Return a cycle on 13 nodes and 60 pods, 20 of them waiting, in which searches tried some scenarios."""
    nodes = np.where(np.arange(60) < 20, -1, 0)
    taken = SimpleNamespace(nodes=range(13), pods=range(60), pod_node=nodes)
    return SimpleNamespace(snapshot=taken, scenarios=scenarios)


@pytest.mark.parametrize(
    ("scenarios", "jobs", "runs"),
    [(12, 7, "compiled"), (12, 1, "plainly"), (0, 7, "plainly")],
    ids=["many", "one-job", "no-searches"],
)
def test_trials_with_many_scenarios_load_cached_kernels(running, monkeypatch, scenarios, jobs, runs):
    monkeypatch.setattr(simulated, "_PACE", pace.Pace(simulated.WORTH_LOADING))
    monkeypatch.setattr(warm, "missing", lambda *_modules: [])
    simulated.settle_again(cycle(scenarios), SimpleNamespace(plugins=()), jobs)
    assert running == [runs]


def test_trials_never_compile_kernels(running, monkeypatch):
    monkeypatch.setattr(simulated, "_PACE", pace.Pace(simulated.WORTH_LOADING))
    simulated.settle_again(cycle(10_000), SimpleNamespace(plugins=()), 100)
    assert running == ["plainly"]
