"""A small cluster: pods of every kind, one that fits, a gang that does not, one in the way."""

from typing import Any, Final

from kai.api.cluster_objects import ClusterObjects, collect
from kai.api.codec.structuring import structure_all

_FREE: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
_NODE: Final = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "4"}


def small_cluster() -> ClusterObjects:
    """Return the cluster."""
    manifests: list[dict[str, Any]] = [_queue("top", ""), _queue("a", "top"), _queue("b", "top")]
    manifests += [_object("v1", "Node", name, "", {"status": {"allocatable": _NODE}}) for name in ("n1", "n2")]
    manifests += [
        *_group("runs", "a", [_pod("runs-0", "runs", gpus=4, node="n1"), _pod("runs-1", "runs", gpus=4, node="n2")]),
        *_group("waits", "b", [_pod(f"waits-{at}", "waits", gpus=2) for at in range(3)], minimum=3),
        *_group("shares", "b", [_pod("shares-0", "shares", fraction="0.5")]),
        *_group("plain", "a", [_pod("plain-0", "plain")]),
    ]
    return collect(structure_all(manifests).objects)


def _object(version: str, kind: str, name: str, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
    metadata = {"name": name, "uid": f"{kind}-{name}", **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, **body, "metadata": {**metadata, **body.get("metadata", {})}}


def _queue(name: str, parent: str) -> dict[str, Any]:
    spec = {"parentQueue": parent, "resources": dict.fromkeys(("cpu", "memory", "gpu"), _FREE)}
    return _object("scheduling.run.ai/v2", "Queue", name, "", {"spec": spec})


def _group(name: str, queue: str, pods: list[dict[str, Any]], minimum: int = 1) -> list[dict[str, Any]]:
    spec = {"queue": queue, "minMember": minimum}
    return [_object("scheduling.run.ai/v2alpha2", "PodGroup", name, "warm", {"spec": spec}), *pods]


def _pod(name: str, group: str, *, gpus: int = 0, fraction: str = "", node: str = "") -> dict[str, Any]:
    requests = {"cpu": "1", "memory": "1Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    annotations = {"pod-group-name": group, **({"gpu-fraction": fraction} if fraction else {})}
    container = {"name": "main", "resources": {"requests": requests}}
    spec = {"schedulerName": "kai-scheduler", "containers": [container], **({"nodeName": node} if node else {})}
    body = {"spec": spec, "metadata": {"annotations": annotations}}
    return _object("v1", "Pod", name, "warm", {**body, "status": {"phase": "Running" if node else "Pending"}})
