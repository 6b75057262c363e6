"""The decision log and the log of a scheduler on a real API server: what was decided can be found again."""

import json
import zipfile

import pytest

from kai.cli.command import run
from kai.telemetry.decisions import read_decisions
from tests.integration.client import until
from tests.integration.controlplane import ControlPlane
from tests.integration.installation import install
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


def test_what_is_decided_stands_in_the_decision_log_and_the_log_says_who_began(plane, tmp_path):
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
