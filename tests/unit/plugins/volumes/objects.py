"""Volumes, claims and clusters with them, as short calls."""

from kai.facts.model.constraints import NodeTerm, Requirement
from kai.framework.parameters import Parameters
from kai.plugins.volumes import Volumes
from kai.plugins.volumes.objects import StorageCapacity, StorageClass, Volume, VolumeClaim
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


def manifest(made):
    """Return the object of Kubernetes that says what an object of the model says."""
    match made:
        case VolumeClaim():
            return _claim(made)
        case Volume():
            return _volume(made)
        case StorageClass():
            terms = [{"matchLabelExpressions": _expressions(term.labels)} for term in made.allowed_topologies]
            mode = "WaitForFirstConsumer" if made.wait else "Immediate"
            body = {"provisioner": made.provisioner, "volumeBindingMode": mode, "allowedTopologies": terms}
            return _object("storage.k8s.io/v1", "StorageClass", made.name, **body)
        case StorageCapacity():
            body = {"storageClassName": made.storage_class, "capacity": str(made.capacity)}
            if made.nodes is not None:
                body["nodeTopology"] = {"matchExpressions": _expressions(made.nodes.requirements)}
            if made.largest is not None:
                body["maximumVolumeSize"] = str(made.largest)
            namespace, _, name = made.name.rpartition("/")
            return _object("storage.k8s.io/v1", "CSIStorageCapacity", name, namespace=namespace or "csi", **body)


def driver(name):
    return _object("storage.k8s.io/v1", "CSIDriver", name, spec={"storageCapacity": True})


def csi_node(name, **counts):
    """Return what drivers say of a node: how many volumes it can hold, None for a driver without a limit."""
    known = {driver: {} if count is None else {"allocatable": {"count": count}} for driver, count in counts.items()}
    drivers = [{"name": f"{driver}.example.com", "nodeID": name} | rest for driver, rest in known.items()]
    return _object("storage.k8s.io/v1", "CSINode", name, spec={"drivers": drivers})


def _object(version, kind, name, metadata=None, namespace="", **body):
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **(metadata or {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def _expressions(requirements):
    return [{"key": each.key, "operator": each.operator, "values": list(each.values)} for each in requirements]


def _claim(made):
    metadata = {"annotations": {"volume.kubernetes.io/selected-node": made.selected_node} if made.selected_node else {}}
    if made.uid:
        metadata["uid"] = made.uid
    if made.owner_pod:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made.owner_pod}]
    spec = {
        "storageClassName": made.storage_class,
        "volumeName": made.volume,
        "resources": {"requests": {"storage": str(made.size)}},
        "accessModes": list(made.access_modes),
        "volumeMode": "Block" if made.block else "Filesystem",
    }
    if made.selector is not None:
        spec["selector"] = {"matchExpressions": _expressions(made.selector.requirements)}
    return _object(
        "v1",
        "PersistentVolumeClaim",
        made.name,
        _leaving(made, metadata),
        made.namespace,
        spec=spec,
        status={"phase": made.phase},
    )


def _volume(made):
    spec = {
        "storageClassName": made.storage_class,
        "capacity": {"storage": str(made.size)},
        "accessModes": list(made.access_modes),
        "volumeMode": "Block" if made.block else "Filesystem",
    }
    if made.driver:
        spec["csi"] = {"driver": made.driver, "volumeHandle": made.handle}
    if made.claim is not None:
        spec["claimRef"] = dict(zip(("namespace", "name"), made.claim, strict=True)) | {"uid": made.claim_uid}
    if made.node_affinity is not None:
        terms = [
            {"matchExpressions": _expressions(term.labels), "matchFields": _expressions(term.fields)}
            for term in made.node_affinity
        ]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    metadata = _leaving(made, {"labels": dict(made.labels)})
    return _object("v1", "PersistentVolume", made.name, metadata, spec=spec, status={"phase": made.phase})


def _leaving(made, metadata):
    return metadata | {"deletionTimestamp": "2026-01-01T00:00:00Z"} if made.deleting else metadata


def catalog(*objects, drivers=()):
    """Return the objects of a cluster, with drivers that report capacities."""
    return [*map(manifest, objects), *map(driver, sorted(drivers))]


def snapshot_with(manifests, *pods, minimum=1):
    return snapshot_of(*NODES, *manifests, *pods, minimum=minimum)


SHARING = Parameters(schedule_csi_storage=True)


def stage_of(*objects, claims=("data",), drivers=(), share_capacity=True):
    taken = snapshot_with(catalog(*objects, drivers=drivers), mounting("a-0", *claims), pod("b-0"))
    return Stage.of(Volumes(), taken, parameters=Parameters(schedule_csi_storage=share_capacity))
