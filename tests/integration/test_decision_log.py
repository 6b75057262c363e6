"""The decision log and the log of a scheduler on a real API server: what was decided can be found again."""

import json

import pytest

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

    def found(kind):
        return [each for each in read_decisions(str(path)) if each.kind == kind] if path.exists() else []

    with running(plane, tmp_path, f"--decision-log={path}") as daemon:
        plane.admin.create(wanting("fits", 1))
        (bound,) = until(lambda: found("bind"), "a bind in the decision log")
        plane.admin.create(wanting("too-large", 4))
        (refused,) = until(lambda: found("refuse"), "a refusal in the decision log")
        first = json.loads(daemon.log.read_text().splitlines()[0])
    assert (bound.subject.namespace, bound.subject.name, bound.node, bound.queue) == (SPACE, "fits", "n1", "team")
    assert (bound.action, bound.numbers["gpus"], len(bound.input_hash)) == ("allocate", 1.0, 16)
    assert (refused.subject.kind, refused.queue, refused.rule != "") == ("PodGroup", "team", True)
    assert first["event"] == "starting"
    assert {"version", "roles", "server", "account", "profile"} <= first.keys()
