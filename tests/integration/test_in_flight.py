"""What people change while pods wait, are bound and run: queues of groups, claims, containers for debugging, labels."""

import itertools

import pytest

from kai.api import names
from tests.integration.behaviour import Job
from tests.integration.client import STRATEGIC, Refused
from tests.integration.stage import POD_GROUP, an_object, node, queue, scene, when

DRA = "resource.k8s.io/v1"
GPUS = "nvidia.com/gpu"


@pytest.fixture
def stage(whole):
    with scene(whole) as opened:
        queues = queue("top"), queue("team", "top"), queue("other", "top")
        for manifest in (node("n1", gpu=4), *queues):
            opened.create(manifest)
        yield opened


def submit(stage, name, **text):
    for manifest in Job.read(name, text).manifests():
        stage.create(manifest)


def runs(stage, name, count):
    when(lambda: len(stage.running(name)) == count, f"{count} pods of {name} to run")


def is_told(stage, pod, text):
    when(lambda: text in (stage.condition(pod) or {}).get("message", ""), f"{pod} to be told: {text}")


def allocated(stage, name):
    return stage.queue_status(name).get("allocated", {}).get(GPUS, "0")


def test_a_moved_group_counts_for_its_queue_once_rebound(stage):
    submit(stage, "ring", queue="team", pods=2, gpu=1)
    runs(stage, "ring", 2)
    when(lambda: allocated(stage, "team") == "2", "the queue to count both")
    stage.change(an_object(POD_GROUP, "PodGroup", "ring", spec={"queue": "other"}))
    stage.settle()
    # A pod that follows while one of the old ones runs is on their account as well.
    stage.delete("v1", "Pod", "ring-0")
    when(lambda: stage.find("v1", "Pod", "ring-0") is None, "the pod to go")
    stage.create(Job.read("ring", {"queue": "team", "pods": 2, "gpu": 1}).pod(0))
    runs(stage, "ring", 2)
    stage.settle()
    assert (allocated(stage, "team"), allocated(stage, "other")) == ("2", "0")
    for number in range(2):
        stage.delete("v1", "Pod", f"ring-{number}")
    when(lambda: not stage.pods("ring"), "all pods to go")
    for number in range(2):
        stage.create(Job.read("ring", {"queue": "other", "pods": 2, "gpu": 1}).pod(number))
    runs(stage, "ring", 2)
    when(lambda: allocated(stage, "other") == "2", "the new queue to count both")
    when(lambda: allocated(stage, "team") == "0", "the old queue to count none")


def test_debug_containers_change_no_running_or_waiting_pod(stage):
    submit(stage, "runs", queue="team", bare=True, gpu=1)
    runs(stage, "runs", 1)
    stage.change(an_object("v1", "Node", "n1", spec={"unschedulable": True}))
    submit(stage, "waits", queue="team", bare=True, gpu=1)
    is_told(stage, "waits-0", "unschedulable")
    for name in ("runs-0", "waits-0"):
        added = {"name": "debugger", "image": "none", "targetContainerName": "main"}
        patch = {"spec": {"ephemeralContainers": [added]}}
        stage.api.patch(stage.pod(name), patch, subresource="ephemeralcontainers", content_type=STRATEGIC)
    stage.change(an_object("v1", "Node", "n1", spec={"unschedulable": None}))
    runs(stage, "waits", 1)
    when(lambda: allocated(stage, "team") == "2", "each pod to count one GPU")
    assert not stage.events(reason="BindingError")


def test_pods_that_are_labelled_while_they_are_bound_start(stage):
    for number in range(4):
        submit(stage, f"job-{number}", queue="team", pods=1, min=1, gpu=1)
    values = itertools.count()

    def are_running():
        for pod in stage.waiting():
            stage.api.patch(pod, {"metadata": {"labels": {"team/edited": str(next(values))}}})
        return len(stage.running()) == 4

    when(are_running, "four pods to run that are labelled again and again")


def test_an_autoscaled_deployment_runs_the_requested_replicas(stage):
    container = {"name": "main", "image": "none", "resources": {"limits": {GPUS: "1"}}}
    template = {
        "metadata": {"labels": {"app": "web", names.QUEUE: "team", "priorityClassName": "train"}},
        "spec": {"schedulerName": "kai-scheduler", "terminationGracePeriodSeconds": 0, "containers": [container]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    web = stage.create(an_object("apps/v1", "Deployment", "web", spec=spec))
    for replicas in (4, 1, 3, 0, 4, 2):
        stage.api.patch(web, {"spec": {"replicas": replicas}}, subresource="scale")
    when(lambda: len(stage.pods()) == len(stage.running()) == 2, "two pods to run, and no others")
    when(lambda: len(stage.api.list(POD_GROUP, "PodGroup", stage.space)) == 2, "groups of pods that are gone to go")
    when(lambda: allocated(stage, "team") == "2", "the queue to count two")
    stage.api.delete(web, propagationPolicy="Background")
    when(lambda: not stage.pods(), "the pods to go")


def test_a_restricted_namespace_gets_its_gpu_shares(stage):
    enforced = {"pod-security.kubernetes.io/enforce": "restricted"}
    stage.change({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": stage.space, "labels": enforced}})
    own = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    none = {"securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
    for name in ("one", "two"):
        submit(stage, name, queue="team", bare=True, fraction=0.5, spec={"securityContext": own}, container=none)
        runs(stage, name, 1)
    assert len(stage.reservations()) == 1
    with pytest.raises(Refused, match="restricted"):
        submit(stage, "open", queue="team", bare=True, fraction=0.5)


class TestClaims:
    """A claim that is named by a pod, and deleted while the pod waits."""

    @pytest.fixture(autouse=True)
    def devices(self, stage):
        driver = "gpu.nvidia.com"
        chosen = {"selectors": [{"cel": {"expression": f'device.driver == "{driver}"'}}]}
        pool = {"name": "n1", "generation": 1, "resourceSliceCount": 1}
        slice_ = {"driver": driver, "nodeName": "n1", "pool": pool, "devices": [{"name": "gpu-0"}]}
        stage.create(an_object(DRA, "DeviceClass", driver, spec=chosen))
        stage.create(an_object(DRA, "ResourceSlice", "n1-gpus", spec=slice_))

    def claim(self, stage):
        exactly = {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 1}
        labels, asked = {names.QUEUE: "team"}, {"requests": [{"name": "gpu", "exactly": exactly}]}
        stage.create(an_object(DRA, "ResourceClaim", "one", metadata={"labels": labels}, spec={"devices": asked}))

    def test_a_claim_recreated_before_the_bind_gets_its_device(self, stage):
        stage.change(an_object("v1", "Node", "n1", spec={"unschedulable": True}))
        self.claim(stage)
        submit(
            stage, "user", queue="team", bare=True, spec={"resourceClaims": [{"name": "g", "resourceClaimName": "one"}]}
        )
        is_told(stage, "user-0", "unschedulable")
        stage.delete(DRA, "ResourceClaim", "one")
        stage.change(an_object("v1", "Node", "n1", spec={"unschedulable": None}))
        is_told(stage, "user-0", "one: not found")
        self.claim(stage)
        runs(stage, "user", 1)
        assert stage.get(DRA, "ResourceClaim", "one")["status"]["reservedFor"][0]["name"] == "user-0"
