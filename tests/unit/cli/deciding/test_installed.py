import json

import pytest

from kai.cli.command import run
from tests.doubles.list_server import listing

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n1"},
    "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "9"}},
}


def shard(name="default", **spec):
    metadata = {"name": name}
    return {"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": metadata, "spec": spec}


def config_map(name, text, **labels):
    metadata = {"name": name, "namespace": "kai-scheduler", "labels": labels}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"config.yaml": text}}


OURS = config_map("kai-configuration", "with: {spread: {}}", **{"app.kubernetes.io/part-of": "kai"})
THEIRS = config_map("kai-scheduler-default", "actions: allocate")
CONFIG = {
    "apiVersion": "kai.scheduler/v1",
    "kind": "Config",
    "metadata": {"name": "kai-config"},
    "spec": {"global": {"schedulerName": "theirs"}},
}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr("kai.cluster.requesting.listing._PATIENCE", (0.0, 0.0))


@pytest.fixture
def asked(tmp_path, capsys):
    """Return what is said last about a cluster with these objects, and the snapshot that is taken of it."""

    def ask(*objects, flags=(), refusals=(), code=0):
        with listing([NODE, *objects]) as server:
            server.refusals.update(refusals)
            path = server.kubeconfig(tmp_path)
            assert run(["jobs", "--kubeconfig", path, *flags]) == code
            said = capsys.readouterr().err.splitlines()
            if code:
                return said, {}
            assert run(["snapshot", str(tmp_path / "now.zip"), "-o", "json", "--kubeconfig", path, *flags]) == 0
        capsys.readouterr()
        assert run(["simulate", str(tmp_path / "now.zip"), "-o", "json"]) == 0
        capsys.readouterr()
        return said[-1], _written(tmp_path / "now.zip")

    return ask


def _written(path):
    import zipfile

    return json.loads(zipfile.ZipFile(path).read("snapshot.json"))


def test_a_cluster_without_configuration_uses_the_default(asked):
    said, written = asked()
    assert said == "source: prod · configuration: default"
    assert "config" not in written["kai"]


def test_the_config_map_of_the_chart_decides(asked):
    said, written = asked(OURS, THEIRS, shard(placementStrategy={"gpu": "spread"}))
    assert said == "source: prod · configuration: configmap kai-scheduler/kai-configuration"
    assert written["kai"]["config"] == {"with": {"spread": {}}}


def test_a_shard_decides_with_the_values_of_the_config(asked):
    said, written = asked(shard("pool-b"), shard("default", partitionLabelValue="a"), CONFIG, THEIRS)
    assert said == (
        "source: prod · configuration: schedulingshard default (also there: schedulingshard pool-b; --config chooses)"
    )
    assert written["schedulerParams"]["schedulerName"] == "theirs"
    assert written["schedulerParams"]["partitionParams"]["NodePoolLabelValue"] == "a"


def test_an_operator_config_map_decides_without_served_shards(asked):
    said, written = asked(THEIRS)
    assert said == "source: prod · configuration: configmap kai-scheduler/kai-scheduler-default"
    assert written["config"]["actions"] == "allocate"


def test_a_configuration_file_overrides_that_of_the_cluster(asked, tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("actions: [allocate]")
    said, written = asked(OURS, flags=("--config", str(mine)))
    assert said == f"source: prod · configuration: {mine}"
    assert written["kai"]["config"] == {"actions": ["allocate"]}


def test_a_configuration_that_may_not_be_seen_is_said(asked):
    said, _ = asked(OURS, refusals={"schedulingshards": (403, 'User "jane" cannot list resource "schedulingshards"')})
    assert said.startswith("source: prod · configuration: configmap kai-scheduler/kai-configuration")
    refused = {"schedulingshards": (403, "no"), "configs": (403, "no")}
    said, _ = asked(refusals=refused)
    assert said.startswith("source: prod · configuration: default (that of the cluster is hidden: ")


def test_an_unusable_configuration_is_named_by_its_object(asked):
    broken = config_map("kai-configuration", "plugins: {nosuch: {}}", **{"app.kubernetes.io/part-of": "kai"})
    said, _ = asked(broken, code=4)
    assert said[0].startswith("error: configmap kai-scheduler/kai-configuration: plugins.nosuch: found 'nosuch'")


def test_a_file_decides_on_a_folder_too(tmp_path, capsys):
    mine = tmp_path / "mine.yaml"
    mine.write_text("actions: [stalegangeviction]")
    assert run(["jobs", "--from", "examples/lab", "--config", str(mine), "--state", "starts"]) == 0
    assert "llm-sft-a" not in capsys.readouterr().out


@pytest.mark.parametrize("metadata", [{"name": "x", "labels": 7}, {"name": "x", "labels": ["a"]}])
def test_what_is_no_configuration_is_passed_over(asked, metadata):
    odd = {**config_map("x", "y"), "metadata": {**metadata, "namespace": "kai-scheduler"}, "data": 3}
    assert asked(odd)[0].endswith("configuration: default")


def test_no_file_called_minus_is_written(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["snapshot", "-", "-f", "x.yaml"]) == 2
    told = "error: FILE: found -, expected the path of a file: a snapshot is an archive\n"
    assert capsys.readouterr().err.startswith(told)
    assert list(tmp_path.iterdir()) == []


def deployment(*words, name="kai", **labels):
    container = {"name": "kai", "image": "kai", "args": ["run", *words]}
    metadata = {"name": name, "namespace": "kai-scheduler", "labels": {"app.kubernetes.io/part-of": "kai", **labels}}
    return {"metadata": metadata, "spec": {"template": {"spec": {"containers": [container]}}}}


@pytest.fixture
def running(tmp_path, capsys):
    """Return what is said last about a cluster in which Deployments run, and the snapshot that is taken of it."""

    def ask(*deployments, objects=(), refusals=()):
        with listing([NODE, *objects]) as server:
            server.lists["apps/v1/deployments"] = list(deployments)
            server.refusals.update(refusals)
            path = server.kubeconfig(tmp_path)
            assert run(["jobs", "--kubeconfig", path]) == 0
            said = capsys.readouterr().err.splitlines()
            assert run(["snapshot", str(tmp_path / "now.zip"), "-q", "--kubeconfig", path]) == 0
        capsys.readouterr()
        return said[-1], _written(tmp_path / "now.zip")["schedulerParams"]

    return ask


def test_flags_of_the_service_decide_as_well(running):
    said, written = running(deployment("--queue-access=required", "--partition-label-value", "west", "--dashboard"))
    assert said == (
        "source: prod · configuration: default · "
        "flags of the service: --partition-label-value=west --queue-access=required"
    )
    assert written["queueAccess"] == "required"
    assert written["partitionParams"]["NodePoolLabelValue"] == "west"


def test_service_flags_are_read_beside_the_cluster_configuration(running):
    said, written = running(deployment("--config", "/etc/kai/config.yaml", "--queue-access=required"), objects=[OURS])
    assert said == (
        "source: prod · configuration: configmap kai-scheduler/kai-configuration · "
        "flags of the service: --queue-access=required"
    )
    assert written["queueAccess"] == "required"


@pytest.mark.parametrize(
    "other",
    [deployment("binder"), deployment("scheduler", "--shadow", "--queue-access=required")],
)
def test_flags_of_what_does_not_decide_are_not_read(running, other):
    assert running(other)[0] == "source: prod · configuration: default"


def test_forbidden_deployments_leave_the_service_flags_unknown(running):
    forbidden = (
        403,
        'User "ann" cannot list resource "deployments" in API group "apps" in the namespace "kai-scheduler"',
    )
    said, _ = running(refusals={"deployments": forbidden})
    assert said.endswith("(flags of the service are unknown: list deployments)")


def test_a_command_line_that_cannot_be_read_is_told(running):
    said, _ = running(deployment("--no-such-flag=1"))
    assert said.endswith("(flags of the service are unknown: its command line cannot be read)")
