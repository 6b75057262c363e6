"""An attempt that is cut off anywhere, any number of times, ends where an undisturbed one does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.plans import WRITES, Reason, Ref, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.roles.binder import BindVerdict, sweep_everything
from kai.roles.binder.attempt import attempt
from tests.doubles.plans import carry_out
from tests.unit.roles.binder.clusters import (
    BINDER,
    SETTINGS,
    cluster,
    device_plugin,
    node,
    sharing_pod,
    sharing_request,
    try_once,
)

CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "claim", "namespace": "ns"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "nic", "count": 1}}]}},
}
ALLOCATION = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "n1", "device": "nic-0"}]}}
VOLUME_CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "ns"},
    "spec": {
        "storageClassName": "local",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    },
}
VOLUME = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "v"},
    "spec": {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "2Gi"}},
    "status": {"phase": "Available"},
}
STORAGE_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "local"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}


def controllers(server, request):
    """What a cluster does on its own: devices are given, offered volumes are bound."""
    device_plugin(server, request)
    if request.ref.cls.__name__ == "PersistentVolumeClaim":
        ref = server.get("PersistentVolume", "v")["spec"].get("claimRef")
        if ref is not None:
            patch = {
                "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {"volumeName": "v"},
            }
            server.change("PersistentVolumeClaim", request.ref.name, request.ref.namespace, patch)


def everything(**status_of_node):
    """A pod that needs two shared GPUs, a device by claim, an extended resource by claim and a volume."""
    wanting = sharing_pod(
        devices=2,
        requests={"cpu": "1", "example.com/nic": "1"},
        resourceClaims=[{"name": "nic", "resourceClaimName": "claim"}],
        volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}],
    )
    request = sharing_request(
        groups=("g1", "g2"),
        resourceClaimAllocations=[{"name": "nic", "allocation": ALLOCATION}],
        extendedResourceClaimAllocation={
            "allocation": ALLOCATION,
            "deviceRequests": [{"name": "r", "exactly": {"deviceClassName": "nic", "count": 1}}],
            "containerMappings": [{"containerName": "main", "resourceName": "example.com/nic", "requestName": "r"}],
        },
    )
    manifests = [node(), wanting, request, CLAIM, VOLUME_CLAIM, VOLUME, STORAGE_CLASS]
    server = cluster(*manifests, settle=controllers)
    if status_of_node:
        server.change("Node", "n1", "", {"status": {"allocatable": status_of_node}})
    return server


def finish(server):
    """Start over, as a new process does: sweep everything, then attempt until the request is finished."""
    server.held.clear()
    server.fault = lambda _: None
    server.lost = lambda _: False
    carry_out(sweep_everything(SETTINGS), server.perform)
    for _ in range(5):
        if try_once(server).verdict is BindVerdict.NOTHING_TO_DO:
            return server.state()
    raise AssertionError("the request is never finished")


def undisturbed(**status_of_node):
    server = everything(**status_of_node)
    return finish(server), len(server.requests)


# A pod that is bound, and one that is refused at the last moment, so that all of it is undone.
COURSES = [{}, {"cpu": "100m"}]


def run_until(server, count):
    """Perform so many requests of an attempt, then drop it as a crash does."""
    plan = attempt(BINDER, Ref(BindRequest, "p", "ns"))
    reply = None
    try:
        for _ in range(count):
            reply = server.perform(plan.send(reply))
    except StopIteration:
        pass
    plan.close()


def test_undisturbed_courses_bind_or_fail_as_expected():
    bound, _ = undisturbed()
    assert bound["Pod", "ns", "p"]["spec"]["nodeName"] == "n1"
    assert bound["ResourceClaim", "ns", "claim"]["status"]["reservedFor"][0]["name"] == "p"
    assert bound["PersistentVolumeClaim", "ns", "data"]["spec"]["volumeName"] == "v"
    failed, _ = undisturbed(cpu="100m")
    assert failed["BindRequest", "ns", "p"]["status"]["phase"] == "Failed"
    assert [key for key in failed if key[0] in {"ConfigMap", "ResourceClaim"}] == [("ResourceClaim", "ns", "claim")]
    assert failed["ResourceClaim", "ns", "claim"].get("status", {}) == {}
    assert [key for key in failed if key[0] == "Pod"] == [("Pod", "ns", "p")]


@pytest.mark.parametrize("course", COURSES)
def test_a_crash_after_any_request_changes_no_outcome(course):
    expected, requests = undisturbed(**course)
    for count in range(requests):
        server = everything(**course)
        run_until(server, count)
        assert finish(server) == expected, f"crashed after request {count}"


@pytest.mark.parametrize("course", COURSES)
def test_a_lost_answer_to_any_write_changes_no_outcome(course):
    expected, _ = undisturbed(**course)
    counting = everything(**course)
    try_once(counting)
    for lost in range(len(counting.writes)):
        server = everything(**course)
        server.lost = lambda request, server=server, lost=lost: (
            isinstance(request, WRITES) and len(server.writes) == lost + 1
        )
        try_once(server)
        assert finish(server) == expected, f"lost the answer to write {lost}"


@pytest.mark.parametrize("course", COURSES)
def test_an_outage_at_any_request_changes_no_outcome(course):
    expected, requests = undisturbed(**course)
    for count in range(requests):
        server = everything(**course)

        def fault(_, server=server, count=count):
            return Refusal(reason=Reason.UNAVAILABLE) if len(server.requests) == count + 1 else None

        server.fault = fault
        try_once(server)
        assert finish(server) == expected, f"no answer to request {count}"


@given(st.lists(st.integers(0, 60), max_size=6), st.sampled_from(COURSES))
def test_any_number_of_crashes_ends_in_the_same_state(crashes, course):
    server = everything(**course)
    for count in crashes:
        server.held.clear()
        run_until(server, count)
    assert finish(server) == undisturbed(**course)[0]


def test_an_attempt_at_what_is_done_writes_nothing_twice():
    server = everything()
    finish(server)
    before = len(server.writes)
    server.change("BindRequest", "p", "ns", {"status": {"phase": None}})
    assert try_once(server).verdict is BindVerdict.BOUND
    assert len(server.writes) == before + 1
