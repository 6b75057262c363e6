"""A trace as Kubernetes objects: the nodes, one queue, and a pod with a group of its own for each arrival."""

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from benchmarks.manifests import NOW, Manifest, stamp
from benchmarks.placement.trace import GPU, NodeShape, PodShape
from benchmarks.workload import UNLIMITED

MODEL = "nvidia.com/gpu.product"
MEMORY_MIB = 16_000
"""What each device is said to have: parts of it in thousandths are whole MiB."""
_QUEUE = "openb"


def cluster(nodes: tuple[NodeShape, ...]) -> Iterator[Manifest]:
    """Make the priority class, the queue and the nodes. Nothing of it is preemptible: what has a place keeps it."""
    yield {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "build"},
        "value": 100,
    }
    everything = {"quota": UNLIMITED, "limit": UNLIMITED, "overQuotaWeight": 1}
    yield {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": _QUEUE, "uid": _QUEUE, "creationTimestamp": stamp(NOW)},
        "spec": {"resources": {"gpu": everything, "cpu": everything, "memory": everything}},
    }
    yield from map(_node, nodes)


def _node(node: NodeShape) -> Manifest:
    amounts = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        "pods": "1000",
        "nvidia.com/gpu": str(node.gpus),
    }
    labels = {MODEL: node.model, "nvidia.com/gpu.count": str(node.gpus), "nvidia.com/gpu.memory": str(MEMORY_MIB)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "uid": node.name, "labels": labels},
        "spec": {},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def arrival(index: int, pod: PodShape, namespace: str) -> tuple[Manifest, Manifest]:
    """Make the group and the pod that come as number ``index``, a millisecond after the one before."""
    metadata = _metadata(index, namespace)
    group: Manifest = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {**metadata, "uid": f"group-{metadata['name']}"},
        "spec": {"queue": _QUEUE, "priorityClassName": "build", "minMember": 1},
    }
    return group, _pod(metadata, pod)


def running(index: int, pod: PodShape, namespace: str, node: str, devices: Sequence[str] | None) -> Manifest:
    """Make the pod of ``arrival`` as it runs on ``node``, with a part of one of ``devices`` if it asks for that."""
    made = _pod(_metadata(index, namespace), pod)
    if devices:
        made["metadata"]["labels"]["runai-gpu-group"] = devices[0]
    made["metadata"]["annotations"]["received-resource-type"] = "Fraction" if devices else "Regular"
    return {**made, "spec": {**made["spec"], "nodeName": node}, "status": {"phase": "Running"}}


def _metadata(index: int, namespace: str) -> dict[str, Any]:
    name, created = pod_name(index), stamp(NOW + timedelta(milliseconds=index))
    return {"name": name, "namespace": namespace, "uid": name, "creationTimestamp": created}


def _pod(metadata: dict[str, Any], pod: PodShape) -> dict[str, Any]:
    annotations = {"pod-group-name": metadata["name"]}
    requests = {"cpu": f"{pod.cpu_milli}m", "memory": f"{pod.memory_mib}Mi"}
    if pod.gpus and pod.gpu_milli < GPU:
        annotations["gpu-fraction"] = str(pod.gpu_milli / GPU)
    elif pod.gpus:
        requests["nvidia.com/gpu"] = str(pod.gpus)
    container = {"name": "main", "image": "registry.example/workload:1", "resources": {"requests": requests}}
    spec: Manifest = {"schedulerName": "kai-scheduler", "priorityClassName": "build", "containers": [container]}
    if pod.models:
        expression = {"key": MODEL, "operator": "In", "values": list(pod.models)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    labels = {"kai.scheduler/queue": _QUEUE}
    made = {**metadata, "labels": labels, "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": made, "spec": spec, "status": {"phase": "Pending"}}


def pod_name(index: int) -> str:
    """Name the pod that comes as number ``index``."""
    return f"pod-{index:06d}"


def index_of(name: str) -> int:
    """Find the number of the pod called ``name``."""
    return int(name.removeprefix("pod-"))
