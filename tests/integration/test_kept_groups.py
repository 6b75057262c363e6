"""Groups of bare pods that stay in memory, on a real API server, with all roles of kai in one process."""

import json
import subprocess
import sys

import pytest

from tests.integration.client import until
from tests.integration.installation import CRDS, install
from tests.integration.kubelet import RESERVED, Kubelet
from tests.integration.together import GPU, UNLIMITED, add_node, an_object, refused_calls, running
from tests.unit.deploy.rendering import DEPLOY

SPACE = "default"
GROUP = "scheduling.run.ai/v2alpha2"
QUEUE = "scheduling.run.ai/v2"
ALONE = "--pod-groups=needed"


@pytest.fixture(scope="module")
def plane(bare_control_plane):
    install(bare_control_plane, DEPLOY)
    bare_control_plane.define(CRDS)
    admin = bare_control_plane.admin
    admin.ensure(an_object("v1", "Namespace", SPACE))
    for name, parent, quota, more in (
        ("top", "", -1, {}),
        ("guest", "top", 0, {"reclaimMinRuntime": "1h"}),
        ("owner", "top", 4, {}),
    ):
        resources = dict.fromkeys(("cpu", "memory"), UNLIMITED) | {"gpu": {**UNLIMITED, "quota": quota}}
        admin.ensure(an_object(QUEUE, "Queue", name, spec={"parentQueue": parent, "resources": resources, **more}))
    add_node(admin, "n1", {})
    kubelet = Kubelet(admin, bare_control_plane.account(RESERVED, "kai-resource-reservation"))
    kubelet.start()
    yield bare_control_plane
    kubelet.stop()


def submit(admin, name, queue="guest"):
    resources = {"requests": {"cpu": "100m", GPU: "1"}, "limits": {GPU: "1"}}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "none", "resources": resources}]}
    labels = {"kai.scheduler/queue": queue}
    admin.create(an_object("v1", "Pod", name, SPACE, metadata={"labels": labels}, spec=spec))


def the_pod(admin, name):
    return admin.find(an_object("v1", "Pod", name, SPACE)) or {}


def is_bound(admin, name):
    return bool(the_pod(admin, name).get("spec", {}).get("nodeName"))


def groups(admin):
    return sorted(each["metadata"]["name"].split("-")[1] for each in admin.list(GROUP, "PodGroup", SPACE))


def link(admin, name):
    return the_pod(admin, name)["metadata"].get("annotations", {}).get("pod-group-name")


def why(admin, name):
    conditions = the_pod(admin, name).get("status", {}).get("conditions", [])
    return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")


def allocated(admin, name):
    found = admin.get(an_object(QUEUE, "Queue", name))
    return found.get("status", {}).get("allocated", {}).get(GPU, "0")


def answer(plane, *words):
    config = plane.kubeconfig(plane.admin, "admin")
    command = (sys.executable, "-m", "kai", *words, f"--kubeconfig={config}", "--output=json")
    return json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def test_bare_pods_run_without_groups_until_one_is_needed(plane, tmp_path):
    admin, names = plane.admin, [f"p{number}" for number in range(4)]
    with running(plane, tmp_path, ALONE):
        for name in names:
            submit(admin, name)
        until(lambda: all(is_bound(admin, name) for name in names), "all pods to be bound")
        until(lambda: allocated(admin, "guest") == "4", "the queue to count the pods")
        assert groups(admin) == []
        assert [link(admin, name) for name in names] == [None] * 4
        jobs = answer(plane, "jobs")["items"]
        assert {(job["queue"], job["state"]) for job in jobs} == {("guest", "Running")}
    with running(plane, tmp_path, ALONE):
        # The minimum runtime of the pods counts from their start, which the next life has to know.
        submit(admin, "claim", "owner")
        until(lambda: why(admin, "claim"), "the claimant to be told why it waits")
        until(lambda: groups(admin) == ["claim"], "the group of the claimant")
        until(lambda: link(admin, "claim"), "the link of the claimant")
        assert all(is_bound(admin, name) for name in names)
        assert allocated(admin, "guest") == "4"
        admin.patch(an_object(QUEUE, "Queue", "guest"), {"spec": {"reclaimMinRuntime": "1s"}})
        until(lambda: is_bound(admin, "claim"), "the claimant to get a place")
        until(lambda: allocated(admin, "guest") == "3", "the queue to count what is left")
        assert sum(is_bound(admin, name) for name in names) == 3
        assert groups(admin) == ["claim"]
    with running(plane, tmp_path):
        until(lambda: len(groups(admin)) == 4, "groups of all pods where they are written always")
        until(lambda: all(link(admin, name) for name in names if is_bound(admin, name)), "links of all pods")
        # A process that has just begun counts a pod once its group is written.
        until(lambda: allocated(admin, "guest") == "3", "the queue to count them")
    assert refused_calls(plane) == []
