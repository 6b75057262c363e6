"""Small objects for the tests of the intake, read from manifests as a cluster would deliver them."""

from typing import Any

from kai.api.cluster_objects import ClusterObjects, collect
from kai.api.codec.structuring import structure_all
from kai.facts.model.claim import RawObject
from kai.facts.state.snapshot import Snapshot
from kai.intake import IntakeSettings, take_snapshot

NOW = 1_000_000.0


def _manifest(kind: str, version: str, name: str, namespace: str | None, body: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", **body.pop("metadata", {})}
    if namespace is not None:
        metadata.setdefault("namespace", namespace)
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **body}


def pod(name: str, *, group: str = "", phase: str = "Pending", node: str = "", **body: Any) -> dict[str, Any]:
    """Make a pod; ``requests`` are those of its one container, ``spec`` and ``metadata`` are merged in."""
    requests, labels = body.pop("requests", {}), body.pop("labels", {})
    annotations = {**({"pod-group-name": group} if group else {}), **body.pop("annotations", {})}
    container = {"name": "main", "resources": {"requests": requests}}
    spec = {"schedulerName": "kai-scheduler", "containers": [container], **body.pop("spec", {})}
    if node:
        spec["nodeName"] = node
    status = {"phase": phase, **body.pop("status", {})}
    metadata = {"labels": labels, "annotations": annotations, **body.pop("metadata", {})}
    return _manifest("Pod", "v1", name, "default", {"spec": spec, "status": status, "metadata": metadata, **body})


def node(name: str, *, allocatable: dict[str, str] | None = None, **body: Any) -> dict[str, Any]:
    """Make a node of 8 CPUs, 32 GiB and 110 pods, unless told otherwise."""
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"} if allocatable is None else allocatable
    metadata = {"labels": body.pop("labels", {})}
    status = {"allocatable": amounts, **body.pop("status", {})}
    return _manifest("Node", "v1", name, None, {"status": status, "metadata": metadata, **body})


def queue(name: str, *, parent: str = "", metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Make a queue."""
    if parent:
        spec["parentQueue"] = parent
    return _manifest("Queue", "scheduling.run.ai/v2", name, None, {"spec": spec, "metadata": metadata or {}})


def group(
    name: str, *, metadata: dict[str, Any] | None = None, status: dict[str, Any] | None = None, **spec: Any
) -> dict[str, Any]:
    """Make a pod group."""
    body = {"spec": {"queue": "q", **spec}, "metadata": metadata or {}, "status": status or {}}
    return _manifest("PodGroup", "scheduling.run.ai/v2alpha2", name, "default", body)


def bind_request(name: str, node: str, **body: Any) -> dict[str, Any]:
    """Make a bind request for the pod of the same name."""
    spec = {"podName": name, "selectedNode": node, **body.pop("spec", {})}
    return _manifest("BindRequest", "scheduling.run.ai/v1alpha2", name, "default", {"spec": spec, **body})


def other(kind: str, version: str, name: str, *, namespace: str | None = None, **body: Any) -> dict[str, Any]:
    """Make an object of any other kind."""
    return _manifest(kind, version, name, namespace, body)


def objects(*manifests: dict[str, Any]) -> ClusterObjects:
    """Read manifests."""
    return collect(structure_all(manifests).objects)


def taken(*manifests: dict[str, Any], **settings: Any) -> Snapshot:
    """Take the snapshot of a cluster of ``manifests`` at ``NOW``."""
    return take_snapshot(objects(*manifests), NOW, IntakeSettings(**settings))


def _plain(raw: RawObject) -> tuple[Any, ...]:
    return raw.key, dict(raw.labels), dict(raw.annotations), raw.content


def picture(snapshot: Snapshot) -> dict[str, Any]:
    """Return all of a snapshot in plain values, to compare two of them to the last bit."""
    plain = {name: getattr(snapshot, name) for name in ("now", "axis", "nodes", "pods", "shapes", "groups", "queues")}
    columns = ("pod_shape", "pod_group", "pod_subgroup", "pod_status", "pod_node", "pod_reservation")
    return {
        **plain,
        **{name: getattr(snapshot, name).tolist() for name in columns},
        "devices": dict(snapshot.pod_devices),
        "bind requests": {row: _plain(each) for row, each in snapshot.bind_requests.items()},
        "catalog": snapshot.catalog,
        "foreign": {kind: [_plain(each) for each in found] for kind, found in snapshot.foreign.items()},
        "labels": [dict(each.labels) for each in (*snapshot.nodes, *snapshot.pods, *snapshot.groups)],
        "allocatable": [dict(each.allocatable) for each in snapshot.nodes],
        "signatures": [each.signature for each in snapshot.pods],
    }
