"""Volumes, claims and clusters with them, as short calls."""

import attrs

from kai.model.constraints import NodeTerm, Requirement
from kai.model.volume import StorageCapacity, StorageClass, Volume, VolumeCatalog, VolumeClaim
from kai.plugins.volumes import Volumes
from tests.unit.plugins.stage import Stage, node, pod, snapshot_of

NODES = (node("n1", {"zone": "east"}), node("n2", {"zone": "east"}), node("n3", {"zone": "west"}))
EAST = Requirement("zone", "In", ("east",))
ONLY_EAST = (NodeTerm((EAST,)),)
AT_ONCE = StorageClass(name="now", provisioner="csi.example.com", wait=False)
LOCAL = StorageClass(name="local", provisioner="kubernetes.io/no-provisioner", wait=True)
LATER = StorageClass(name="later", provisioner="csi.example.com", wait=True)
GI = 2**30


def on(name):
    return (NodeTerm((Requirement("kubernetes.io/hostname", "In", (name,)),)),)


def claim(name="data", kind="later", **parts):
    return VolumeClaim(
        **{"namespace": "default", "name": name, "storage_class": kind, "size": GI, "phase": "Pending"} | parts
    )


def volume(name, kind="local", **parts):
    return Volume(**{"name": name, "storage_class": kind, "size": GI} | parts)


def bound(name="data", **parts):
    return claim(name, phase="Bound", volume="v", **parts)


def mounting(name, *claims, **parts):
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": each}} for each in claims]
    return pod(name, volumes=volumes, **parts)


def catalog(*objects, **parts):
    return VolumeCatalog(
        claims={(each.namespace, each.name): each for each in objects if isinstance(each, VolumeClaim)},
        volumes={each.name: each for each in objects if isinstance(each, Volume)},
        classes={each.name: each for each in objects if isinstance(each, StorageClass)},
        capacities=tuple(each for each in objects if isinstance(each, StorageCapacity)),
        **parts,
    )


def snapshot_with(volumes, *pods, minimum=1):
    snapshot = snapshot_of(*NODES, *pods, minimum=minimum)
    return attrs.evolve(snapshot, catalog=attrs.evolve(snapshot.catalog, volumes=volumes))


def stage_of(*objects, claims=("data",), **parts):
    return Stage.of(Volumes(), snapshot_with(catalog(*objects, **parts), mounting("a-0", *claims), pod("b-0")))
