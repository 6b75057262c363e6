"""What a scheduler on a real API server writes down: what was decided can be found again, and no secret of a tenant."""

import base64
import io
import json
import zipfile

import pytest

from kai.cli.command import run
from kai.cluster.process.decisions import read_decisions
from tests.integration.client import until
from tests.integration.controlplane import ControlPlane
from tests.integration.installation import install
from tests.integration.processes import NAMESPACE, fetch
from tests.integration.processes import running as running_program
from tests.integration.together import add_node, add_queues, an_object, running
from tests.unit.deploy.rendering import DEPLOY

SPACE = "decisions"


@pytest.fixture(scope="module")
def plane(bare_control_plane: ControlPlane) -> ControlPlane:
    install(bare_control_plane, DEPLOY)
    bare_control_plane.admin.create(an_object("v1", "Namespace", SPACE))
    add_node(bare_control_plane.admin, "n1", {}, gpus=1)
    add_queues(bare_control_plane.admin)
    return bare_control_plane


def wanting(name, gpus):
    """Return a pod of queue team that wants GPUs."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec = {
        "schedulerName": "kai-scheduler",
        "containers": [{"name": "main", "image": "x", "resources": resources}],
    }
    return an_object("v1", "Pod", name, SPACE, metadata={"labels": {"kai.scheduler/queue": "team"}}, spec=spec)


def test_decisions_and_the_start_are_logged(plane, tmp_path):
    path = tmp_path / "decisions.jsonl"

    def found(kind, name):
        known = read_decisions(str(path)) if path.exists() else ()
        return [each for each in known if each.kind == kind and name in f"{each.job} {each.subject.name}"]

    with running(plane, tmp_path, f"--decision-log={path}") as daemon:
        plane.admin.create(wanting("fits", 1))
        (bound,) = until(lambda: found("bind", "fits"), "a bind in the decision log")
        plane.admin.create(wanting("too-large", 4))
        (refused,) = until(lambda: found("refuse", "too-large"), "a refusal in the decision log")
        first = json.loads(daemon.log.read_text().splitlines()[0])
    assert (bound.subject.namespace, bound.subject.name, bound.node, bound.queue) == (SPACE, "fits", "n1", "team")
    assert (bound.action, bound.numbers["gpus"], len(bound.input_hash)) == ("allocate", 1.0, 16)
    assert (refused.subject.kind, refused.queue, refused.rule != "") == ("PodGroup", "team", True)
    assert first["event"] == "starting"
    assert {"version", "roles", "server", "account", "profile"} <= first.keys()


def test_a_live_cluster_is_written_down_and_decided_again(plane, tmp_path, capsys):
    group = {"queue": "team", "minMember": 1}
    made = plane.admin.create(an_object("scheduling.run.ai/v2alpha2", "PodGroup", "one", SPACE, spec=group))
    pod = wanting("one-0", 1)
    pod["metadata"]["annotations"] = {"pod-group-name": "one", "team.example/note": "not for others"}
    created = plane.admin.create(pod)
    kubeconfig = str(plane.kubeconfig(plane.admin, "person"))
    file = tmp_path / "now.zip"
    assert run(["snapshot", str(file), "--kubeconfig", kubeconfig, "--redact=names"]) == 0
    plane.admin.delete(created, gracePeriodSeconds=0)
    plane.admin.delete(made)
    text = zipfile.ZipFile(file).read("snapshot.json").decode()
    assert "not for others" not in text
    assert SPACE not in text
    capsys.readouterr()
    assert run(["replay", str(file), "--expect", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["expected"]["equal"] is True


CANARIES = ("canary-in-environment", "canary-applied", "canary-in-map", "canary-in-secret")
NOTE = "canary-in-annotation"


def secretive(name, gpus):
    """Return a pod with a secret wherever people leave one."""
    pod = wanting(name, gpus)
    applied = json.dumps({"env": "canary-applied"})
    pod["metadata"]["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": applied, "mine/note": NOTE}
    (container,) = pod["spec"]["containers"]
    container["env"] = [
        {"name": "PASSWORD", "value": "canary-in-environment"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "a"}}},
    ]
    container["envFrom"] = [{"configMapRef": {"name": "settings"}}]
    container["args"] = ["--password=canary-in-environment"]
    return pod


def test_no_secret_of_tenants_or_kai_is_written(plane, tmp_path):
    admin, path = plane.admin, tmp_path / "decisions.jsonl"
    hidden = base64.b64encode(b"canary-in-secret").decode()
    admin.create(an_object("v1", "Secret", "keys", SPACE, data={"a": hidden}))
    admin.create(an_object("v1", "ConfigMap", "settings", SPACE, data={"a": "canary-in-map"}))
    account = plane.account(NAMESPACE, "kai")
    with running_program(plane, account, tmp_path, "secretive", flags=(f"--decision-log={path}",)) as program:
        admin.create(secretive("binds", 0))
        admin.create(secretive("waits", 4))
        until(lambda: admin.get(an_object("v1", "Pod", "binds", SPACE))["spec"].get("nodeName"), "a bind")
        until(lambda: path.exists() and "waits" in path.read_text(), "a refusal in the decision log")
        until(lambda: admin.list("v1", "Event", SPACE), "events")
        archive = zipfile.ZipFile(io.BytesIO(fetch(program.plugins_port, "/get-snapshot")))
        order = fetch(program.plugins_port, "/get-job-order").decode()
        metrics = fetch(program.metrics_port, "/metrics").decode()
    told = {
        "log": program.daemon.log.read_text(),
        "decision log": path.read_text(),
        "metrics": metrics,
        "job order": order,
        "events": json.dumps(admin.list("v1", "Event", SPACE)),
        "pod groups": json.dumps([each.get("status") for each in admin.list("scheduling.run.ai/v2alpha2", "PodGroup")]),
    }
    snapshot = archive.read("snapshot.json").decode()
    assert "binds" in snapshot
    for canary in (*CANARIES, hidden, account.token, account.token.rpartition(".")[2]):
        assert [place for place, text in {**told, "snapshot": snapshot}.items() if canary in text] == []
    assert [place for place, text in told.items() if NOTE in text] == []
    assert path.stat().st_mode & 0o077 == 0
