"""A shadow on a real API server, with the rights that it ships with, beside all roles of kai that do the work."""

import json
import re

import pytest

from tests.integration import processes
from tests.integration.client import Refused, until
from tests.integration.controlplane import ControlPlane
from tests.integration.installation import install
from tests.integration.together import NAMESPACE, add_node, add_queues, an_object, running
from tests.unit.deploy.rendering import DEPLOY

SPACE = "shadowed"
GROUPS = "scheduling.run.ai/v2alpha2"


@pytest.fixture(scope="module")
def plane(bare_control_plane: ControlPlane) -> ControlPlane:
    install(bare_control_plane, DEPLOY)
    install(bare_control_plane, DEPLOY / "overlays" / "shadow")
    bare_control_plane.admin.create(an_object("v1", "Namespace", SPACE))
    add_node(bare_control_plane.admin, "n1", {}, gpus=2)
    add_queues(bare_control_plane.admin)
    return bare_control_plane


def add_job(admin, name, gpus):
    """Create a group of one pod that wants GPUs."""
    admin.create(an_object(GROUPS, "PodGroup", name, SPACE, spec={"queue": "team", "minMember": 1}))
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "x", "resources": resources}]}
    admin.create(
        an_object("v1", "Pod", f"{name}-0", SPACE, metadata={"annotations": {"pod-group-name": name}}, spec=spec)
    )


def test_a_shadow_compares_decisions_and_writes_nothing(plane, tmp_path):
    account = plane.account(NAMESPACE, "kai-shadow")
    with pytest.raises(Refused, match="Forbidden"):
        account.create(an_object("v1", "ConfigMap", "none", SPACE))
    for name in ("one", "two"):
        add_job(plane.admin, name, 1)
    add_job(plane.admin, "too-large", 4)
    flags = ("--shadow", "--shadow-patience=1h", "--leader-elect")  # as the shard of another may ask
    with processes.running(plane, account, tmp_path, "shadow", "scheduler", flags=flags) as shadow:

        def document():
            return json.loads(processes.fetch(shadow.plugins_port, "/api/v1/shadow"))

        until(lambda: shadow.cycles() >= 2, "the shadow's cycles")
        pod = plane.admin.get(an_object("v1", "Pod", "one-0", SPACE))
        assert "nodeName" not in pod["spec"]
        assert document()["decided"] == 0
        with running(plane, tmp_path):
            found = until(lambda: document() if document()["decided"] == 2 else None, "two binds that were compared")
        assert (found["summary"], found["differences"]) == ("2 of 2 decisions equal", [])
        text = processes.fetch(shadow.metrics_port, "/metrics").decode()
        assert 'kai_shadow_decisions_total{decision="bind",outcome="equal"} 2.0' in text
        calls = re.findall(r'^kai_api_requests_total\{code="(\d+)",resource="\S*",verb="(\w+)"\}', text, re.MULTILINE)
        assert not {verb for _, verb in calls} - {"get", "list", "watch"}
    lines = [json.loads(line) for line in shadow.daemon.log.read_text().splitlines() if line.startswith("{")]
    # A cycle that is under way when the process is asked to end may be logged after the summary.
    events = [each["event"] for each in lines if each["event"] != "cycle"]
    assert events[-1] in {"shadow: since the start", "ending"}
