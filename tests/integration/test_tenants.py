"""What tenants may not gain by editing their own objects, where nothing but kai itself stands against it.

The admission policies that `deploy` ships are not installed here. Each test does what anybody can do who may write pods
and pod groups of a namespace; what was granted at the binding must hold against all of it.
"""

import pytest

from tests.integration.behaviour import Job, Part
from tests.integration.client import until
from tests.integration.installation import install
from tests.integration.stage import BIND_REQUEST, POD_GROUP, an_object, node, queue, scene, staged
from tests.unit.deploy.rendering import DEPLOY

POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
GROUP = "runai-gpu-group"
GRANTED = "kai.scheduler/granted"
POOL = "kai.scheduler/node-pool"


@pytest.fixture(scope="module")
def cluster(bare_control_plane, tmp_path_factory):
    """Run all roles in one process, without policies."""
    install(bare_control_plane, DEPLOY, but=POLICIES)
    assert not bare_control_plane.admin.list("admissionregistration.k8s.io/v1", POLICIES[0])
    with staged(bare_control_plane, tmp_path_factory.mktemp("tenants")) as stage:
        stage.start("kai")
        yield stage


@pytest.fixture
def stage(cluster):
    with scene(cluster) as opened:
        yield opened


def add(stage, name, *, group_queue="team", **part):
    """Have a tenant make a job of one pod; return the name of the pod."""
    job = Job(name=name, part=Part(**part), queue=group_queue)
    for manifest in job.manifests():
        stage.create(manifest)
    return f"{name}-0"


def is_running(stage, pod):
    return stage.pod(pod)["status"].get("phase") == "Running"


def edit(stage, kind, name, version="v1", **part):
    stage.change({"apiVersion": version, "kind": kind, **part, "metadata": {"name": name, **part.get("metadata", {})}})


def await_running(stage, *pods):
    for pod in pods:
        until(lambda pod=pod: is_running(stage, pod), f"pod {pod} to run")


def request(stage, pod):
    return stage.get(BIND_REQUEST, "BindRequest", pod)


def furnish(stage, *nodes, **limits):
    for manifest in (*nodes, queue("team", **limits), queue("other")):
        stage.create(manifest)


def test_a_pod_that_drops_its_label_keeps_its_gpu_reserved(stage):
    furnish(stage, node("n1", gpu=1))
    sharer = add(stage, "sharer", fraction="0.9")
    await_running(stage, sharer)
    until(lambda: request(stage, sharer).get("status", {}).get("phase") == "Succeeded", "the request to be finished")
    (reservation,) = stage.reservations()
    edit(stage, "Pod", sharer, metadata={"labels": {GROUP: None}})
    await_running(stage, add(stage, "canary"))  # each bind sweeps its node first
    assert [each["metadata"]["uid"] for each in stage.reservations()] == [reservation["metadata"]["uid"]]
    whole = add(stage, "whole", gpu=1)
    stage.settle()
    assert not stage.pod(whole)["spec"].get("nodeName")


def test_a_grant_that_is_made_unreadable_is_written_again_and_frees_no_gpu(stage):
    furnish(stage, node("n1", gpu=1))
    sharer = add(stage, "sharer", fraction="0.9")
    await_running(stage, sharer)
    until(lambda: request(stage, sharer).get("status", {}).get("phase") == "Succeeded", "the request to be finished")
    (reservation,) = stage.reservations()
    granted = stage.pod(sharer)["metadata"]["annotations"][GRANTED]
    edit(stage, "Pod", sharer, metadata={"labels": {GROUP: None}, "annotations": {GRANTED: "x", "gpu-fraction": None}})
    await_running(stage, add(stage, "canary"))  # each bind sweeps its node first
    until(lambda: stage.pod(sharer)["metadata"]["annotations"][GRANTED] == granted, "the grant to be written again")
    assert [each["metadata"]["uid"] for each in stage.reservations()] == [reservation["metadata"]["uid"]]


def test_a_label_on_a_pod_of_nobody_holds_no_reservation(stage):
    furnish(stage, node("n1", gpu=1))
    sharer = add(stage, "sharer", fraction="0.1")
    await_running(stage, sharer)
    label = {GROUP: stage.pod(sharer)["metadata"]["labels"][GROUP]}
    foreign = Part(labels=label, spec={"schedulerName": "another"}).pod("foreign")
    stage.create(foreign)
    stage.delete("v1", "Pod", sharer)
    until(lambda: not stage.reservations(), "the reservation to go")
    await_running(stage, add(stage, "whole", gpu=1))


def test_a_label_of_reservations_elsewhere_hides_no_gpu(stage):
    furnish(stage, node("n1", gpu=1))
    label = {"app": "kai-resource-reservation"}
    named = add(stage, "named", gpu=1, labels=label)
    await_running(stage, named)
    whole = add(stage, "whole", gpu=1)
    sharer = add(stage, "sharer", fraction="0.5")
    await_running(stage, add(stage, "canary"))
    stage.settle()
    assert stage.reservations() == []
    assert stage.events(reason="BindingError") == []  # the scheduler knows, no binder had to say so
    assert not any(stage.pod(name)["spec"].get("nodeName") for name in (whole, sharer))


def test_a_pod_that_another_scheduler_bound_uses_no_share_of_a_gpu(stage):
    furnish(stage, node("n1", gpu=1))
    first = add(stage, "first", fraction="0.5")
    await_running(stage, first)
    label = {GROUP: stage.pod(first)["metadata"]["labels"][GROUP]}
    foreign = Part(labels=label, fraction="0.5", spec={"schedulerName": "another"}, node="n1").pod("foreign")
    stage.create(foreign)
    stage.settle()
    second = add(stage, "second", fraction="0.5")
    await_running(stage, second)
    assert stage.pod(second)["metadata"]["labels"][GROUP] == label[GROUP]


def test_a_share_that_is_edited_down_makes_no_room_on_its_gpu(stage):
    furnish(stage, node("n1", gpu=2))
    first = add(stage, "first", fraction="0.9")
    await_running(stage, first)
    edit(stage, "Pod", first, metadata={"annotations": {"gpu-fraction": "0.1"}})
    stage.settle()
    second = add(stage, "second", fraction="0.9")
    await_running(stage, second)
    groups = [stage.pod(name)["metadata"]["labels"][GROUP] for name in (first, second)]
    assert len(set(groups)) == 2
    assert stage.events(reason="BindingError") == []


@pytest.mark.parametrize("edited", ["queue", "pool"])
def test_a_limit_holds_when_the_group_is_moved_after_the_bind(stage, edited):
    furnish(stage, node("n1", gpu=8), gpu={"limit": 2})
    held = add(stage, "held", gpu=2)
    await_running(stage, held)
    if edited == "queue":
        edit(stage, "PodGroup", "held", POD_GROUP, spec={"queue": "other"})
    else:
        edit(stage, "Pod", held, metadata={"labels": {POOL: "elsewhere"}})
        edit(stage, "PodGroup", "held", POD_GROUP, metadata={"labels": {POOL: "elsewhere"}})
    more = add(stage, "more", gpu=2)
    await_running(stage, add(stage, "canary"))
    stage.settle()
    assert not stage.pod(more)["spec"].get("nodeName")
    stage.delete("v1", "Pod", held)
    await_running(stage, more)


def test_a_limit_holds_when_the_group_is_deleted_after_the_bind(stage):
    furnish(stage, node("n1", gpu=8), gpu={"limit": 2})
    held = add(stage, "held", gpu=2)
    await_running(stage, held)
    stage.delete(POD_GROUP, "PodGroup", "held")
    more = add(stage, "more", gpu=2)
    await_running(stage, add(stage, "canary"))
    stage.settle()
    assert not stage.pod(more)["spec"].get("nodeName")
    stage.delete("v1", "Pod", held)
    await_running(stage, more)


def test_a_stranger_completes_no_gang_of_another_namespace(stage):
    furnish(stage, node("n1", gpu=8))
    job = Job(name="train", part=Part(pods=2, gpu=1), min=2)
    group, first, second = job.manifests()
    stage.create(group)
    stage.create(first)
    stranger = {**second, "metadata": {**second["metadata"], "namespace": "default"}}
    stage.api.ensure(an_object("v1", "Namespace", "default"))
    made = stage.api.create(stranger)
    try:
        await_running(stage, add(stage, "canary"))
        stage.settle()
        assert not stage.pod("train-0")["spec"].get("nodeName")
    finally:
        stage.api.delete(made, gracePeriodSeconds=0)
    stage.create(second)
    await_running(stage, "train-0", "train-1")


def test_a_config_map_of_others_survives(stage):
    furnish(stage, node("n1", gpu=1))
    theirs = stage.create(an_object("v1", "ConfigMap", "prod-settings-0", data={"password": "1"}))
    wanting = add(stage, "wanting", fraction="0.5", annotations={"runai/shared-gpu-configmap": "prod-settings"})
    (told, *_) = until(lambda: stage.events(wanting, "BindingError"), "the pod to be told")
    assert "prod-settings-0" in told["message"]
    stage.delete("v1", "Pod", wanting)
    until(lambda: not stage.reservations(), "the reservation to go")
    found = stage.get("v1", "ConfigMap", "prod-settings-0")
    assert (found["data"], found["metadata"]["uid"]) == (theirs["data"], theirs["metadata"]["uid"])


def half_again(stage, **metadata):
    """Run a pod on half a GPU, take it away and make another of its name; the bind request of the first one stays."""
    job = Job(name="half", part=Part(fraction="0.5"))
    for manifest in job.manifests():
        stage.create(manifest)
    await_running(stage, "half-0")
    until(lambda: request(stage, "half-0").get("status", {}).get("phase") == "Succeeded", "the request to be finished")
    if metadata:
        edit(stage, "BindRequest", "half-0", BIND_REQUEST, metadata=metadata)
    stage.delete("v1", "Pod", "half-0")
    until(lambda: not stage.pods("half"), "the pod to go")
    stage.create(job.pod(0))


def test_a_namesake_of_a_pod_that_had_a_bind_request_is_decided(stage):
    furnish(stage, node("n1", gpu=1))
    half_again(stage)
    await_running(stage, "half-0")


def test_a_pod_is_told_that_an_earlier_bind_request_cannot_go(stage):
    furnish(stage, node("n1", gpu=1))
    half_again(stage, finalizers=["tests/stuck"])
    (told, *_) = until(lambda: stage.events("half-0", "FailedBinding"), "the pod to be told")
    assert "tests/stuck" in told["message"]
    edit(stage, "BindRequest", "half-0", BIND_REQUEST, metadata={"finalizers": None})
    await_running(stage, "half-0")
