"""What a person reads from a running cluster with the rights of an own account: jobs, queues and nodes, and refusals.

No scheduler runs here: the commands decide on a copy, so they answer whatever schedules the cluster.
"""

import json

import pytest

from kai.cli.command import run
from tests.integration.behaviour import Job, Part
from tests.integration.client import Refused, until
from tests.integration.stage import Stage, an_object, node, queue, staged

READER = "reader"
RBAC = "rbac.authorization.k8s.io/v1"
READS = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}]


@pytest.fixture(scope="module")
def stage(control_plane, tmp_path_factory):
    """Furnish a cluster in which one job runs and another waits."""
    with staged(control_plane, tmp_path_factory.mktemp("reading")) as stage:
        stage.open()
        for manifest in (
            node("n1", gpu=4, labels={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}),
            queue("company", gpu={"quota": 4}),
            queue("team", parent="company", gpu={"quota": 4, "limit": 4}),
            *Job(name="runs", part=Part(gpu=3, node="n1"), queue="team").manifests(),
            *Job(name="waits", part=Part(gpu=2), queue="team").manifests(),
        ):
            stage.create(manifest)
        until(lambda: stage.pod("runs-0")["status"].get("phase") == "Running", "the pod to run")
        yield stage
        stage.clear()


def account(stage: Stage, name: str, rules: list[dict[str, list[str]]]) -> str:
    """Make an account with these rights; return the path of its kubeconfig."""
    subject = {"kind": "ServiceAccount", "name": name, "namespace": stage.space}
    stage.create(an_object("v1", "ServiceAccount", name))
    for manifest in (
        an_object(RBAC, "ClusterRole", name, rules=rules),
        an_object(
            RBAC,
            "ClusterRoleBinding",
            name,
            subjects=[subject],
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        ),
    ):
        try:
            stage.api.create(manifest)
        except Refused:
            stage.api.apply(manifest)
    return str(stage.plane.kubeconfig(stage.plane.account(stage.space, name), name))


@pytest.fixture(scope="module")
def reader(stage):
    path = account(stage, READER, READS)
    until(lambda: run(["jobs", "--kubeconfig", path, "-q", "-o", "name"]) == 0, "the right to list")
    return path


def shown(capsys, *arguments, code=0):
    assert run(list(arguments)) == code
    return capsys.readouterr()


def test_jobs_of_a_cluster_are_listed_with_reasons(stage, reader, capsys):
    lines = shown(capsys, "jobs", "--kubeconfig", reader, "-n", stage.space).out.splitlines()
    runs, waits = (line.split() for line in lines[1:])
    assert [*runs[:2], *runs[3:6]] == ["runs", "team", "3", "1/1", "Running"]
    assert [*waits[:2], *waits[3:6], *waits[7:9]] == ["waits", "team", "2", "0/1", "Waits", "1", "OverLimit"]


def test_the_contexts_namespace_applies_unless_all_are_requested(stage, reader, capsys):
    assert "2 jobs of other namespaces not shown (-A)" in shown(capsys, "jobs", "--kubeconfig", reader).out
    assert len(shown(capsys, "jobs", "--kubeconfig", reader, "-A").out.splitlines()) == 3


def test_documents_say_where_they_come_from(reader, capsys):
    document = json.loads(shown(capsys, "queues", "--kubeconfig", reader, "-o", "json").out)
    assert document["source"]["type"] == "live"
    assert document["source"]["cluster"] == "test"
    assert int(document["source"]["revision"]) > 0
    (team,) = [item for item in document["items"] if item["name"] == "team"]
    assert (team["gpus"]["used"], team["gpus"]["requested"]) == (3.0, 5.0)


def test_nodes_of_a_running_cluster_are_drawn(reader, capsys):
    lines = shown(capsys, "nodes", "--kubeconfig", reader).out.splitlines()
    assert lines[1].split() == ["n1", "H100", "T█", "T█", "T█", "·", "1", "-"]


def test_reading_only_lists(stage, reader, capsys):
    shown(capsys, "jobs", "--kubeconfig", reader)
    events = stage.plane.audited(f"system:serviceaccount:{stage.space}:{READER}")
    asked = {(event["verb"], event["requestURI"]) for event in events}
    assert {verb for verb, address in asked if address != "/version"} == {"list"}
    assert ("get", "/version") in asked, "pods and devices count as that version of Kubernetes counts them"


def test_a_missing_right_is_named_and_leaves_with_3(stage, capsys):
    path = account(stage, "stranger", [])
    error = shown(capsys, "jobs", "--kubeconfig", path, code=3).err.splitlines()[0]
    user = f"system:serviceaccount:{stage.space}:stranger"
    assert error.startswith("error: not allowed to list ")
    assert error.endswith(f' in all namespaces as "{user}" in the cluster of context "test"')


@pytest.fixture
def tenant(stage):
    """Make an account that may read pods and pod groups of one namespace; a scheduler wrote why a job waits."""
    stage.create(an_object("v1", "ServiceAccount", "tenant"))
    own = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": ["scheduling.run.ai"], "resources": ["podgroups"], "verbs": ["get", "list"]},
    ]
    stage.create(an_object(RBAC, "Role", "tenant", rules=own))
    subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": stage.space}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "tenant"}
    stage.create(an_object(RBAC, "RoleBinding", "tenant", subjects=[subject], roleRef=role))
    condition = {
        "type": "UnschedulableOnNodePool",
        "nodePool": "default",
        "reason": "Unschedulable",
        "message": "m",
        "status": "True",
        "transitionID": "1",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reasons": [{"reason": "OverLimit", "message": "team quota has reached the allowable limit of GPUs."}],
    }
    group = stage.get("scheduling.run.ai/v2alpha2", "PodGroup", "waits")
    stage.api.patch(group, {"status": {"schedulingConditions": [condition]}}, subresource="status")
    path = str(stage.plane.kubeconfig(stage.plane.account(stage.space, "tenant"), "tenant"))
    own_jobs = ["jobs", "--kubeconfig", path, "-n", stage.space, "-q", "-o", "name"]
    until(lambda: run(own_jobs) == 0, "the right to list")
    return path


def test_users_of_one_namespace_read_their_jobs_conditions(stage, tenant, capsys):
    where = ["--kubeconfig", tenant, "-n", stage.space]
    capsys.readouterr()
    said = shown(capsys, "jobs", *where)
    runs, waits = (line.split() for line in said.out.splitlines()[1:])
    assert [*runs[:2], *runs[3:6]] == ["runs", "team", "3", "1/1", "Running"]
    assert [*waits[:2], *waits[3:6], waits[8]] == ["waits", "team", "2", "0/1", "Waits", "OverLimit"]
    assert said.err.splitlines()[-1] == "source: own conditions only (cannot list nodes); suggestions not verified"
    document = json.loads(shown(capsys, "why", "waits", *where, "-o", "json").out)
    assert (document["source"]["type"], document["source"]["complete"]) == ("conditions", False)
    assert (document["reason"]["code"], document["suggestions"]) == ("OverLimit", [])
    for command in ("queues", "nodes"):
        error = shown(capsys, command, *where, code=3).err.splitlines()[0]
        assert error.startswith("error: not allowed to list nodes in all namespaces as ")


def test_a_cluster_can_be_queried_as_another_user(stage, capsys):
    admin = str(stage.plane.kubeconfig(stage.api, "admin"))
    error = shown(capsys, "jobs", "--kubeconfig", admin, "--as", "jane", code=3).err.splitlines()[0]
    assert 'as "jane" in the cluster of context "test"' in error
