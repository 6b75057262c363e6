"""A gang of which too few pods fit is told what keeps the next one from each node."""

import pytest

from tests.unit.deciding.explain.test_words import told

TWO = {"n1": {"gpu": 8}, "n2": {"gpu": 8}}
RUNS = {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1"}
ZONES = {name: {"gpu": gpus, "labels": {"zone": zone}} for name, gpus, zone in (("n1", 8, "z1"), ("n2", 1, "z2"))}
DISKS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "disks"},
    "provisioner": "csi.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}
CLASS = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "nic"}}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "g"}},
}


IN_USE = "pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"


def limits(*nodes):
    for name in nodes:
        driver = {"name": "csi.example.com", "nodeID": name, "topologyKeys": [], "allocatable": {"count": 1}}
        yield {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "CSINode",
            "metadata": {"name": name},
            "spec": {"drivers": [driver]},
        }


def slices(*nodes):
    for name in nodes:
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {
                "driver": "nic",
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [{"name": "nic-0"}],
            },
        }


def disk(name, mode="ReadWriteOnce", volume=""):
    bound = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}} if volume else {}
    spec = {"accessModes": [mode], "storageClassName": "disks", "resources": {"requests": {"storage": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default", "uid": name, **bound},
        "spec": {**spec, **({"volumeName": volume} if volume else {})},
        "status": {"phase": "Bound" if volume else "Pending"},
    }


def owned(pod):
    claim = disk(f"{pod}-v")
    claim["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": pod, "controller": True}
    ]
    return claim


TEMPLATE = {
    "volumeClaimTemplate": {
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "disks",
            "resources": {"requests": {"storage": "1Gi"}},
        }
    }
}
VOLUME = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "home"},
    "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOncePod"], "storageClassName": "disks"},
    "status": {"phase": "Bound"},
}


def asking(**requests):
    resources = {name.replace("_", "/"): amount for name, amount in requests.items()}
    return {"containers": [{"name": "main", "resources": {"requests": resources, "limits": resources}}]}


@pytest.mark.parametrize(
    ("nodes", "objects", "gang", "text"),
    [
        (TWO, (), {"members": 4, "each": {"gpu": 4}}, "only 3 fit now: 2 nodes lack GPUs"),
        (TWO, (), {"members": 2, "each": {"gpu": 8}}, "only 1 fits now: 2 nodes lack GPUs"),
        (
            {**TWO, "n3": {"gpu": 8, "taints": ["team=x:NoSchedule"]}},
            (),
            {"members": 4, "each": {"gpu": 4}},
            "only 3 fit now: 2 nodes lack GPUs, 1 node had untolerated taint {team: x}",
        ),
        (
            ZONES,
            (),
            {"members": 4, "each": {"gpu": 1}, "labels": {"app": "g"}, "spec": {"topologySpreadConstraints": [SPREAD]}},
            "only 3 fit now: 1 node didn't match pod topology spread constraints, 1 node lacks GPUs",
        ),
        (
            TWO,
            (),
            {
                "members": 3,
                "spec": {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 8080}]}]},
            },
            "only 2 fit now: 2 nodes didn't have free ports for the requested pod ports",
        ),
        (
            TWO,
            (DISKS, *limits(*TWO), *(owned(f"g-{at}") for at in range(3))),
            {"members": 3, "spec": {"volumes": [{"name": "v", "ephemeral": TEMPLATE}]}},
            "only 2 fit now: 2 nodes exceed max volume count",
        ),
        (
            TWO,
            (DISKS, disk("home", "ReadWriteOncePod", "home"), VOLUME),
            {"members": 2, "spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "home"}}]}},
            f"only 1 fits now: 2 nodes have {IN_USE}",
        ),
        (
            TWO,
            (CLASS, *slices(*TWO)),
            {"members": 3, "spec": asking(**{"deviceclass.resource.kubernetes.io_nic": "1"})},
            "only 2 fit now: 2 nodes cannot allocate all DRA claims",
        ),
        (
            {"n1": {"gpu": 8, "pods": 3}, "n2": {"gpu": 8, "cordoned": True}, "n3": {"gpu": 8, "cordoned": True}},
            (),
            {"members": 3, "each": {"gpu": 1}},
            "only 2 fit now: 2 nodes are unschedulable, 1 node lacks places for pods",
        ),
    ],
)
def test_a_gang_that_cannot_start_names_what_blocks_it(nodes, objects, gang, text):
    cluster = {"cluster": {"nodes": nodes, "objects": list(objects)}}
    found = told({"runs": RUNS, "g": {"queue": "a", **gang}}, **cluster)
    assert found == f"GangDoesNotFit: its {gang['members']} pods must start together, and {text}"
