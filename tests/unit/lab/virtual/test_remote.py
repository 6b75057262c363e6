"""Experiments through a real Dask scheduler with workers on this machine."""

import pickle
import socket
from pathlib import Path

import attrs
import pytest

from kai.answers.documents.document import DISTRIBUTION, installed
from kai.basics.errors import ConfigError, InputError, UnreachableError
from kai.lab.virtual import remote
from kai.lab.virtual.experiments import Experiment, carry_out, with_value
from kai.lab.virtual.remote import Parcel, carry_out_on, carry_out_there
from kai.lab.virtual.results.result import SimulationResult
from kai.manifests import Finding, RefusedError

CASE = str(Path(__file__).parent / "cases" / "reclaim.yaml")
EIGHT_HOURS = 8 * 3600.0
HERE = installed(DISTRIBUTION)


def timeless(result: SimulationResult) -> SimulationResult:
    metrics = {name: metric for name, metric in result.metrics.items() if name != "computing"}
    return attrs.evolve(result, metrics=metrics)


@pytest.fixture(scope="module")
def scheduler():
    """Start a scheduler and one worker; yield the address."""
    distributed = pytest.importorskip("distributed", reason="the extra dask is not installed")
    cluster = distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=True,  # kernels are made ready by one thread of a process
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address=":0",
        worker_dashboard_address=":0",
    )
    with cluster:
        yield cluster.scheduler_address.replace("tcp://", "dask://")


def test_results_from_workers_equal_local_ones_exactly(scheduler: str):
    base = Experiment(workload=CASE, until=EIGHT_HOURS)
    experiments = [with_value(base, "plugins.binpack.gpu", value) for value in (True, False)]
    there = carry_out_on(scheduler, experiments, HERE)
    assert [timeless(each.result) for each in there] == [timeless(carry_out(each).result) for each in experiments]


def test_a_workers_error_names_the_file_as_given_here(scheduler: str, tmp_path: Path):
    path = tmp_path / "bad.yaml"
    path.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: [x]}\n", encoding="utf-8")
    experiment = Experiment(workload=str(path), until=60.0)
    with pytest.raises(InputError) as there:
        carry_out_on(scheduler, [experiment], HERE)
    with pytest.raises(InputError) as here:
        carry_out(experiment)
    assert str(there.value) == str(here.value)
    assert str(path) in str(there.value)


def test_a_scheduler_without_workers_is_told():
    class Client:
        def run(self, *_, **__):
            return {}

    with pytest.raises(UnreachableError, match="found no worker at this Dask scheduler"):
        remote._check_workers(Client(), "dask://x:1", HERE)


def test_a_scheduler_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("distributed", reason="the extra dask is not installed")
    monkeypatch.setattr(remote, "_PATIENCE", "100ms")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"dask://127.0.0.1:{held.getsockname()[1]}"
        with pytest.raises(
            UnreachableError, match=f"--on {address}: found no Dask scheduler, expected one that answers"
        ):
            carry_out_on(address, [Experiment(workload=CASE)], HERE)


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("0.0.1", "worker tcp://a: found kai-scheduler 0.0.1, expected"),
        (ModuleNotFoundError("kai"), "worker tcp://a: found no kai-scheduler, expected"),
    ],
)
def test_a_worker_without_kai_or_its_version_is_refused(version: object, said: str):
    class Client:
        def run(self, *_, **__):
            return {"tcp://a": version}

    with pytest.raises(ConfigError, match=said):
        remote._check_workers(Client(), "dask://x:1", HERE)


def test_dask_is_an_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with pytest.raises(ConfigError, match=r"pip install 'kai-scheduler\[dask\]'$"):
        carry_out_on("dask://x:1", [], HERE)


@pytest.mark.parametrize("place", [CASE, str(Path(__file__).parents[4] / "examples" / "lab")])
def test_files_travel_with_an_experiment(place: str):
    parcel = pickle.loads(pickle.dumps(Parcel.of(place)))  # noqa: S301 - what was made a line ago
    experiment = Experiment(workload=place, until=60.0)
    assert timeless(carry_out_there(experiment, parcel, None).result) == timeless(carry_out(experiment).result)


def test_findings_come_back_from_another_process():
    error = RefusedError([Finding(code="R001", message="x", file="a", line=1, column=1)])
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - what was made a line ago
    assert (type(again), again.findings, str(again)) == (RefusedError, error.findings, str(error))
