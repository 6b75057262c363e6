"""Switching from KAI-Scheduler to kai and back, with everything in flight.

The objects are as the peer leaves them when its programs are stopped in the middle of their work: a job that runs, a
GPU that two pods share, a bind that was ordered and not carried out, a group whose pods wait, and a lease that nobody
gave back. kai must carry on with all of it, move nothing, and leave behind what the peer reads when it comes back.
"""

import datetime as dt

import pytest
import yaml

from tests.integration.client import STRATEGIC, until
from tests.integration.installation import install
from tests.integration.kubelet import DEVICE, RESERVED, Kubelet
from tests.integration.together import (
    GPU,
    add_node,
    add_queues,
    an_object,
    refused_calls,
    running,
)
from tests.unit.deploy.rendering import DEPLOY

NAMESPACE = "default"
GANG = "e921a79f-cc30-40a7-a0d2-43c35c5a80e4"
HOLDER = "kai-scheduler-default-6d5f7c9b8-x2x4z_0b6e7f9a-6f0e-4a57-9a53-7c2f4a1f3f11"
# One beginning of a term is counted; a busy machine must not make it two.
LEADING = ("--leader-elect", "--leader-elect-lease-duration=120s", "--leader-elect-renew-deadline=90s")
LEASE = an_object("coordination.k8s.io/v1", "Lease", "kai-scheduler", "kai-scheduler")


def a_pod(name, group, *, gpus="1", node="", labels=None, annotations=None):
    requests = {"cpu": "100m", **({GPU: gpus} if gpus else {})}
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": requests, "limits": {GPU: gpus} if gpus else {}},
    }
    spec = {"schedulerName": "kai-scheduler", "containers": [container], **({"nodeName": node} if node else {})}
    metadata = {
        "labels": {"kai.scheduler/queue": "team", **(labels or {})},
        "annotations": {"pod-group-name": group, **(annotations or {})},
    }
    return an_object("v1", "Pod", name, NAMESPACE, metadata=metadata, spec=spec)


def a_group(admin, name, members):
    """Make a group as the peer's pod grouper does, of a workload that is not here any more."""
    owner = {"name": name, "uid": "f0", "group": "batch", "version": "v1", "kind": "Job"}
    metadata = {"annotations": {"kai.scheduler/top-owner-metadata": yaml.safe_dump(owner)}, "labels": {"user": "ann"}}
    spec = {"minMember": members, "queue": "team", "priorityClassName": "train", "markUnschedulable": False}
    return admin.create(
        an_object("scheduling.run.ai/v2alpha2", "PodGroup", name, NAMESPACE, metadata=metadata, spec=spec)
    )


def a_bind_request(admin, pod, node):
    """Make a bind request as the peer's scheduler does; its binder did not come to it."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    metadata = {"labels": {"selected-node": node}, "ownerReferences": [owner]}
    spec = {
        "podName": pod["metadata"]["name"],
        "selectedNode": node,
        "receivedResourceType": "Regular",
        "receivedGPU": {"count": 1, "portion": "1.00"},
    }
    return admin.create(
        an_object(
            "scheduling.run.ai/v1alpha2",
            "BindRequest",
            pod["metadata"]["name"],
            NAMESPACE,
            metadata=metadata,
            spec=spec,
        )
    )


def a_lease(admin):
    now = dt.datetime.now(dt.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    spec = {
        "holderIdentity": HOLDER,
        "leaseDurationSeconds": 5,
        "acquireTime": now,
        "renewTime": now,
        "leaseTransitions": 3,
    }
    return admin.create({**LEASE, "spec": spec})


@pytest.fixture(scope="module")
def admin(bare_control_plane):
    """Return the administrator's view of a cluster in which the peer was stopped a moment ago."""
    plane = bare_control_plane
    install(plane, DEPLOY)
    admin = plane.admin
    admin.ensure(an_object("v1", "Namespace", NAMESPACE))
    add_queues(admin)
    for name in ("n0", "n1"):
        add_node(admin, name, {}, gpus=8)
    a_group(admin, "pg-running", 2)
    for number in range(2):
        received = {"received-resource-type": "Regular"}
        admin.create(a_pod(f"running-{number}", "pg-running", gpus="2", node="n0", annotations=received))
    secure = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    holding = {
        "name": "resource-reservation",
        "image": "reserve:peer",
        "resources": {"requests": {GPU: "1"}, "limits": {GPU: "1"}},
        "securityContext": secure,
    }
    labels = {"app": "kai-resource-reservation", "runai-gpu-group": GANG}
    spec = {"nodeName": "n1", "containers": [holding]}
    admin.create(an_object("v1", "Pod", "gpu-reservation-n1", RESERVED, metadata={"labels": labels}, spec=spec))
    for number in range(2):
        a_group(admin, f"pg-shared-{number}", 1)
        shared = {"gpu-fraction": "0.5", "received-resource-type": "Fraction"}
        shared["runai/shared-gpu-configmap"] = f"shared-{number}-abc1234-shared-gpu"
        labels = {"runai-gpu-group": GANG}
        admin.create(
            a_pod(f"shared-{number}", f"pg-shared-{number}", gpus="", node="n1", labels=labels, annotations=shared)
        )
    a_group(admin, "pg-arriving", 1)
    a_bind_request(admin, admin.create(a_pod("arriving", "pg-arriving")), "n1")
    a_group(admin, "pg-waiting", 2)
    for number in range(2):
        admin.create(a_pod(f"waiting-{number}", "pg-waiting"))
    kubelet = Kubelet(admin, plane.account(RESERVED, "kai-resource-reservation"))
    kubelet.start()
    until(lambda: all(phase(admin, name) == "Running" for name in ("running-1", "shared-1")), "pods to run")
    until(lambda: DEVICE in reservation(admin)["metadata"].get("annotations", {}), "the GPU of the reservation")
    yield admin
    kubelet.stop()


def the(admin, name):
    return admin.get(an_object("v1", "Pod", name, NAMESPACE))


def phase(admin, name):
    return the(admin, name)["status"].get("phase")


def reservation(admin):
    (found,) = admin.list("v1", "Pod", RESERVED)
    return found


def places(admin):
    """Return where every pod is, and which pod it is."""
    found = [*admin.list("v1", "Pod", NAMESPACE), *admin.list("v1", "Pod", RESERVED)]
    return {each["metadata"]["name"]: (each["metadata"]["uid"], each["spec"].get("nodeName")) for each in found}


def groups(admin):
    found = admin.list("scheduling.run.ai/v2alpha2", "PodGroup", NAMESPACE)
    return {each["metadata"]["name"]: (each["metadata"]["uid"], each["spec"]) for each in found}


def group_of(admin, pod):
    """Return the group of a pod, None if it is not there."""
    name = the(admin, pod)["metadata"].get("annotations", {}).get("pod-group-name")
    return admin.find(an_object("scheduling.run.ai/v2alpha2", "PodGroup", name, NAMESPACE)) if name else None


def phases(admin):
    requests = admin.list("scheduling.run.ai/v1alpha2", "BindRequest", NAMESPACE)
    return {each["metadata"]["name"]: each.get("status", {}).get("phase") for each in requests}


def test_kai_continues_after_the_peer_and_stays_compatible(bare_control_plane, admin, tmp_path):
    plane, before, groups_before = bare_control_plane, places(admin), groups(admin)
    placed = {name: place for name, place in before.items() if place[1]}
    assert placed.keys() == {"running-0", "running-1", "shared-0", "shared-1", "gpu-reservation-n1"}
    a_lease(admin)
    with running(plane, tmp_path, *LEADING, "--bind-requests=always"):
        until(lambda: the(admin, "waiting-1")["spec"].get("nodeName"), "the waiting pods to start")
        until(lambda: the(admin, "arriving")["spec"].get("nodeName"), "the ordered bind to be done")
        lease = admin.get(LEASE)["spec"]
        assert lease["holderIdentity"] not in {HOLDER, ""}  # nothing was done while the other might have been at work
        assert lease["leaseTransitions"] == 4
        after = places(admin)
        assert after["arriving"][1] == "n1"  # as the peer had decided
        assert {name: after[name] for name in placed} == placed
        assert {name: spec for name, spec in groups(admin).items() if name in groups_before} == groups_before

        new = a_pod("late", "")
        del new["metadata"]["annotations"]
        admin.create(new)
        until(lambda: the(admin, "late")["spec"].get("nodeName"), "a new pod to start")
        ended = dict.fromkeys(("arriving", "waiting-0", "waiting-1", "late"), "Succeeded")
        until(lambda: phases(admin) == ended, "all bind requests to end")
        # A pod without an owner may be bound before its group is written.
        until(lambda: group_of(admin, "late") is not None, "the group of the new pod")

    # What is left for the peer: a lease that is free, bind requests that ended, groups under its names.
    assert admin.get(LEASE)["spec"].get("holderIdentity", "") == ""
    assert phases(admin) == ended
    late, group = the(admin, "late"), group_of(admin, "late")
    assert group["metadata"]["name"] == f"pg-late-{late['metadata']['uid']}"
    owner = yaml.safe_load(group["metadata"]["annotations"]["kai.scheduler/top-owner-metadata"])
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Pod", "late", late["metadata"]["uid"])
    assert refused_calls(plane) == []
    removed = [event for event in plane.audited() if event["verb"] == "delete" or "/eviction" in event["requestURI"]]
    assert [event["requestURI"] for event in removed] == []


def test_the_peer_can_change_what_kai_wrote(bare_control_plane, admin):
    """The peer writes whole statuses; a field of ours must not keep it from doing so."""
    for queue in admin.list("scheduling.run.ai/v2", "Queue"):
        status = {"childQueues": queue.get("status", {}).get("childQueues", []), "allocated": {GPU: "0"}}
        admin.request("PUT", admin.path(queue, "status"), {**queue, "status": status})
    for pod in admin.list("v1", "Pod", NAMESPACE):
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        admin.patch(pod, {"status": {"conditions": [condition]}}, subresource="status", content_type=STRATEGIC)
