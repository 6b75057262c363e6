"""Claims of volumes that wait for their first consumer, on a real API server; the provisioner is played.

The scheduler chooses a node that can have the volume, the binder offers the volume to the claim or asks its
provisioner for one there, and the pod is bound once the volume controller has bound the claim.
"""

import pytest

from kai.api import names
from tests.integration.behaviour import Job
from tests.integration.client import until
from tests.integration.stage import an_object, node, queue, scene

STORAGE = "storage.k8s.io/v1"


@pytest.fixture
def stage(whole):
    with scene(whole) as opened:
        for manifest in (node("n1"), node("n2"), queue("top"), queue("team", "top")):
            opened.create(manifest)
        yield opened


def storage_class(stage, name, provisioner):
    body = {"provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    stage.create(an_object(STORAGE, "StorageClass", name, **body))


def claim(stage, name, storage_class):
    spec = {
        "storageClassName": storage_class,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    stage.create(an_object("v1", "PersistentVolumeClaim", name, spec=spec))


def volume(stage, name, storage_class, on, **given):
    there = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}]}
    spec = {
        "storageClassName": storage_class,
        "capacity": {"storage": "2Gi"},
        "accessModes": ["ReadWriteOnce"],
        "local": {"path": f"/disks/{name}"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [there]}},
    }
    stage.api.create(an_object("v1", "PersistentVolume", name, spec={**spec, **given}))


def claim_of(stage, name):
    return stage.api.get(an_object("v1", "PersistentVolumeClaim", name, metadata={"namespace": stage.space}))


def volume_of(stage, name):
    return stage.api.get(an_object("v1", "PersistentVolume", name))


def submit(stage, name, claimed):
    spec = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claimed}}]}
    for manifest in Job.read(name, {"bare": True, "queue": "team", "spec": spec}).manifests():
        stage.create(manifest)
    return f"{name}-0"


def node_of(stage, pod):
    return stage.pod(pod)["spec"].get("nodeName")


def test_a_pod_starts_where_its_claims_volume_is(stage):
    storage_class(stage, "disks", "kubernetes.io/no-provisioner")
    volume(stage, "disk-of-n2", "disks", on="n2")
    claim(stage, "data", "disks")
    pod = submit(stage, "writer", "data")

    assert until(lambda: node_of(stage, pod), "the pod to be bound") == "n2"
    found = volume_of(stage, "disk-of-n2")["spec"]["claimRef"]
    assert (found["namespace"], found["name"]) == (stage.space, "data")
    assert claim_of(stage, "data")["status"]["phase"] == "Bound"


def test_a_volume_is_provisioned_on_the_chosen_node(stage):
    storage_class(stage, "clouds", "csi.tests.example")
    claim(stage, "data", "clouds")
    pod = submit(stage, "writer", "data")

    def asked_for():
        return claim_of(stage, "data")["metadata"].get("annotations", {}).get(names.VOLUME_NODE)

    chosen = until(asked_for, "the provisioner to be told the node")
    assert chosen in {"n1", "n2"}
    assert node_of(stage, pod) is None
    asking = {"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": stage.space, "name": "data"}
    volume(stage, "made", "clouds", on=chosen, claimRef=asking)  # as the provisioner does
    assert until(lambda: node_of(stage, pod), "the pod to be bound") == chosen


def test_a_pod_waits_with_a_reason_for_a_volume(stage):
    storage_class(stage, "disks", "kubernetes.io/no-provisioner")
    claim(stage, "data", "disks")
    pod = submit(stage, "writer", "data")
    condition = until(lambda: stage.condition(pod), "a condition of the pod")
    assert "persistent volumes to bind" in condition["message"], condition
    assert node_of(stage, pod) is None
    volume(stage, "late", "disks", on="n1")
    assert until(lambda: node_of(stage, pod), "the pod to be bound") == "n1"
