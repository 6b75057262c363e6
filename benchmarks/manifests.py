"""Turn a workload into Kubernetes objects, one at a time.

Objects come in the order of ``KINDS`` and are made as they are asked for, so that a cluster of 140,000 pods costs no
more memory than one pod. What identical objects share is built once and referred to, never changed: a caller may read a
manifest and encode it, nothing else.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from benchmarks import devices as made
from benchmarks.devices import Devices
from benchmarks.workload import (
    HOST_LABEL,
    RACK_LABEL,
    TOPOLOGY,
    UNLIMITED,
    ZONE_LABEL,
    Nodes,
    Pending,
    QueueShape,
    Running,
    Workload,
)

Manifest: TypeAlias = dict[str, object]

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
NAMESPACE = "perf"

_NAMESPACES = 200
_QUEUES_SINCE = NOW - timedelta(days=1)
_STARTED = NOW - timedelta(hours=2)
_RUNNING_SINCE = _STARTED - timedelta(minutes=10)
_PENDING_SINCE = NOW - timedelta(minutes=10)

_UNLIMITED_SHARE = {"quota": UNLIMITED, "limit": UNLIMITED, "overQuotaWeight": 1}


def stamp(moment: datetime) -> str:
    """Write ``moment`` as RFC 3339, to the millisecond where it has any."""
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{moment.microsecond // 1000:03d}Z" if moment.microsecond else f"{text}Z"


def priority_classes(_: Workload) -> Iterator[Manifest]:
    """Make the two priority classes; groups of the lower one are preemptible."""
    for name, value in (("train", 50), ("build", 100)):
        yield priority_class(name, value)


def priority_class(name: str, value: int) -> Manifest:
    """Make one priority class."""
    metadata = {"name": name}
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": metadata, "value": value}


def topologies(workload: Workload) -> Iterator[Manifest]:
    """Make the topology where the nodes have racks."""
    if workload.nodes.rack_size:
        levels = [{"nodeLabel": label} for label in (ZONE_LABEL, RACK_LABEL, HOST_LABEL)]
        yield {
            "apiVersion": "kai.scheduler/v1alpha1",
            "kind": "Topology",
            "metadata": {"name": TOPOLOGY},
            "spec": {"levels": levels},
        }


def queues(workload: Workload) -> Iterator[Manifest]:
    """Make the queues, parents first, each a second younger than the one before."""
    for index, queue in enumerate(workload.queues):
        yield _queue(queue, _QUEUES_SINCE + timedelta(seconds=index))


def _queue(queue: QueueShape, created: datetime) -> Manifest:
    spec: Manifest = {
        "resources": {
            "gpu": {"quota": queue.gpu_quota, "limit": queue.gpu_limit, "overQuotaWeight": queue.weight},
            "cpu": _UNLIMITED_SHARE,
            "memory": _UNLIMITED_SHARE,
        },
    }
    if queue.parent:
        spec["parentQueue"] = queue.parent
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": queue.name, "uid": queue.name, "creationTimestamp": stamp(created)},
        "spec": spec,
    }


def nodes(workload: Workload) -> Iterator[Manifest]:
    """Make the nodes in name order."""
    shape = workload.nodes
    amounts = {"cpu": "128", "memory": "1024Gi", "pods": "110", "ephemeral-storage": "1024Gi"}
    if shape.gpus:
        amounts["nvidia.com/gpu"] = str(shape.gpus)
    conditions = [{"type": "Ready", "status": "True"}]
    kinds = [
        {"capacity": had, "allocatable": had, "conditions": conditions}
        for had in (amounts | _offered(workload, index) for index in range(3))
    ]
    for index in range(shape.count):
        name, status = node_name(index), kinds[index % 3]
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "uid": name, "labels": _node_labels(shape, index) | _mig_labels(workload)},
            "spec": {},
            "status": status,
        }


def _offered(workload: Workload, node: int) -> dict[str, str]:
    return {} if workload.devices is None else made.resources_of_node(workload.devices, node)


def _mig_labels(workload: Workload) -> dict[str, str]:
    if workload.devices is not Devices.MIG:
        return {}
    return {"nvidia.com/mig.strategy": "mixed", "nvidia.com/gpu.count": "8", "nvidia.com/gpu.memory": "81920"}


def numa_topologies(workload: Workload) -> Iterator[Manifest]:
    """Make the NUMA zones of the nodes, if they have any: equal parts of what a node has."""
    shape = workload.nodes
    if not shape.numa:
        return
    has = {"cpu": 128 // shape.numa, "memory": f"{1024 // shape.numa}Gi", "nvidia.com/gpu": shape.gpus // shape.numa}
    resources = [
        {"name": name, "capacity": str(amount), "allocatable": str(amount), "available": str(amount)}
        for name, amount in has.items()
    ]
    zones = [{"name": f"node-{zone}", "type": "Node", "resources": resources} for zone in range(shape.numa)]
    settings = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}
    for index in range(shape.count):
        yield {
            "apiVersion": "topology.node.k8s.io/v1alpha2",
            "kind": "NodeResourceTopology",
            "metadata": {"name": node_name(index)},
            "attributes": [{"name": name, "value": value} for name, value in settings.items()],
            "zones": zones,
        }


def _drawn(workload: Workload, index: int) -> Manifest:
    """Return the record of the NUMA zone that the running pod ``index`` draws from."""
    zone = index % workload.nodes.gpus * workload.nodes.numa // workload.nodes.gpus
    drawn = {"cpu": "1", "memory": "4Gi", "nvidia.com/gpu": "1"}
    return {"kai.scheduler/numa-placement-predicted": json.dumps([{"zone": f"node-{zone}", "amount": drawn}])}


def device_classes(workload: Workload) -> Iterator[Manifest]:
    """Make the device class, if there are devices."""
    if workload.devices is not None:
        yield from made.classes(workload.devices)


def resource_slices(workload: Workload) -> Iterator[Manifest]:
    """Make the devices of the nodes, if they have any."""
    if workload.devices is not None:
        yield from made.slices(workload.devices, [node_name(index) for index in range(workload.nodes.count)])


def resource_claims(workload: Workload) -> Iterator[Manifest]:
    """Make the claims of pods that wait."""
    pending, wanted = workload.pending, workload.devices
    if pending is None or wanted is None or not wanted.has_claims:
        return
    for index in range(pending.groups):
        queue = pending.queues[index % len(pending.queues)]
        for member in range(pending.pods):
            name = f"{waiting_name(index)}-{member:03d}"
            yield made.claim(wanted, _waiting(name, index, pending), queue)


def node_name(index: int) -> str:
    """Name node ``index``; names sort as indices do."""
    return f"node-{index:05d}"


def node_index(name: str) -> int:
    """Find the index of the node called ``name``."""
    return int(name.removeprefix("node-"))


def _node_labels(shape: Nodes, index: int) -> dict[str, str]:
    labels = {
        HOST_LABEL: node_name(index),
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "gpu-server" if shape.gpus else "cpu-server",
    }
    if shape.gpus:
        labels["nvidia.com/gpu.count"] = str(shape.gpus)
        labels["nvidia.com/gpu.memory"] = "81920"
        labels["nvidia.com/gpu.product"] = "NVIDIA-H100-80GB-HBM3"
    labels |= {
        label: f"{label.partition('/')[2]}-{index // size:03d}"
        for label, size in ((RACK_LABEL, shape.rack_size), (ZONE_LABEL, shape.zone_size))
        if size
    }
    return labels


def pod_groups(workload: Workload) -> Iterator[Manifest]:
    """Make the pod groups, those that run before those that wait, each a millisecond younger."""
    if workload.running:
        started: Manifest = {"annotations": {"kai.scheduler/last-start-timestamp": stamp(_STARTED)}}
        for index in range(workload.running.groups):
            metadata = _metadata(running_name(index), _RUNNING_SINCE, index) | started
            yield _pod_group(metadata, workload.running.queues, index, {"minMember": 1})
    if workload.pending:
        yield from _pending_groups(workload.pending)


def _pending_groups(pending: Pending) -> Iterator[Manifest]:
    size: Manifest = {**_sub_groups(pending), **_topology_constraint(pending)}
    for index in range(pending.groups):
        yield _pod_group(_waiting(waiting_name(index), index, pending), pending.queues, index, size)


def _pod_group(metadata: Manifest, queue_names: tuple[str, ...], index: int, size: Manifest) -> Manifest:
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": metadata,
        "spec": {"queue": queue_names[index % len(queue_names)], "priorityClassName": "train", **size},
    }


def _sub_groups(pending: Pending) -> Manifest:
    if not pending.subgroups:
        return {"minMember": pending.pods}
    within = {"topologyConstraint": {"topology": TOPOLOGY, "requiredTopologyLevel": RACK_LABEL}}
    each = pending.pods // pending.subgroups
    parts = [{"name": f"part-{part}", "minMember": each, **within} for part in range(pending.subgroups)]
    return {"minSubGroup": pending.subgroups, "subGroups": parts}


def _topology_constraint(pending: Pending) -> Manifest:
    wanted = {"requiredTopologyLevel": pending.required_level, "preferredTopologyLevel": pending.preferred_level}
    levels = {key: level for key, level in wanted.items() if level}
    return {"topologyConstraint": {"topology": TOPOLOGY, **levels}} if levels else {}


def _metadata(name: str, since: datetime, index: int) -> Manifest:
    """Name an object that was made ``index`` milliseconds after ``since``."""
    created = since + timedelta(milliseconds=index)
    return {"name": name, "namespace": NAMESPACE, "uid": name, "creationTimestamp": stamp(created)}


def pods(workload: Workload) -> Iterator[Manifest]:
    """Make the pods, those that run before those that wait."""
    yield from running_pods(workload)
    if workload.pending:
        yield from _waiting_pods(workload, workload.pending)


def running_node(workload: Workload, index: int) -> int:
    """Return the index of the node of the running pod ``index``."""
    if workload.devices is Devices.MIG:
        return made.node_of_slice(index)
    return 0 if workload.running is None else workload.running.node_of(index, workload.nodes)


def _running_pods(workload: Workload, running: Running) -> Iterator[Manifest]:
    wanted = workload.devices
    spec = _pod_spec(running.gpus)
    scheduled = [{"type": "PodScheduled", "status": "True"}]
    status: Manifest = {"phase": "Running", "startTime": stamp(_STARTED), "conditions": scheduled}
    for index in range(running.groups):
        on = running_node(workload, index)
        spec = spec if wanted is None else _pod_spec(running.gpus, more=made.resources_of_pod(wanted, on))
        node = node_name(on)
        group = running_name(index)
        metadata = _metadata(f"{group}-000", _RUNNING_SINCE, index)
        metadata |= _membership(group, running.queues[index % len(running.queues)])
        received = {"pod-group-name": group, "received-resource-type": "Regular"}
        metadata["annotations"] = {**received, **_drawn(workload, index)} if workload.nodes.numa else received
        if running.fraction:
            parts = {"gpu-fraction": running.fraction, "received-resource-type": "Fraction"}
            metadata["annotations"] = {"pod-group-name": group, **parts}
            device = {"runai-gpu-group": f"gpu-{index // 2}"}
            metadata["labels"] = {**_labels(group, running.queues[index % len(running.queues)]), **device}
        yield _pod(metadata, {**spec, "nodeName": node}, status | _quality(workload))


def _quality(workload: Workload) -> Manifest:
    return {"qosClass": "Guaranteed"} if workload.nodes.numa else {}


def _waiting_pods(workload: Workload, pending: Pending) -> Iterator[Manifest]:
    wanted = workload.devices
    kinds = [
        _pod_spec(pending.gpus, more={} if wanted is None else made.resources_of_pod(wanted, profile))
        for profile in range(3)
    ]
    part_of = _pod_spec(0)
    status: Manifest = {"phase": "Pending", **_quality(workload)}
    for index in range(pending.groups):
        group = waiting_name(index)
        queue = pending.queues[index % len(pending.queues)]
        membership = _membership(group, queue)
        fraction = pending.share_of(index)
        membership["annotations"] = {"pod-group-name": group, **({"gpu-fraction": fraction} if fraction else {})}
        spec = _pod_spec(pending.gpus, f"{1000 + index}m") if pending.differ else kinds[index % 3]
        spec = part_of if pending.mixed and fraction else spec
        for member in range(pending.pods):
            name = f"{group}-{member:03d}"
            own = made.reference(name) if wanted is not None and wanted.has_claims else {}
            if pending.subgroups:
                part = f"part-{member * pending.subgroups // pending.pods}"
                membership["labels"] = {**_labels(group, queue), "kai.scheduler/subgroup-name": part}
            if pending.app:
                app = f"app-{index // pending.app}"
                membership["labels"] = {**_labels(group, queue), "svc": app}
                own |= _keeping(pending.keeps, app)
            yield _pod(_waiting(name, index, pending) | membership, spec | own, status)


def _keeping(how: str, app: str) -> Manifest:
    """Return how a pod keeps to others of its app."""
    alike = {"labelSelector": {"matchLabels": {"svc": app}}}
    if how == "spread":
        rule = {"maxSkew": 1, "topologyKey": ZONE_LABEL, "whenUnsatisfiable": "DoNotSchedule", **alike}
        return {"topologySpreadConstraints": [rule]}
    terms = [{"topologyKey": HOST_LABEL, **alike}]
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}


def _waiting(name: str, index: int, pending: Pending) -> Manifest:
    """Name an object of a group that waits. Groups that differ have many namespaces, since kai bounds what one asks."""
    place = index // pending.app if pending.app else index
    many = pending.differ or pending.app
    own = {"namespace": f"{NAMESPACE}-{place % _NAMESPACES:03d}"} if many else {}
    return _metadata(name, _PENDING_SINCE, index) | own


def _membership(group: str, queue: str) -> Manifest:
    """Say in metadata that a pod belongs to the Job, the group and the queue it does."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": group, "uid": f"job-{group}", "controller": True}
    return {"labels": _labels(group, queue), "ownerReferences": [owner]}


def _labels(group: str, queue: str) -> dict[str, str]:
    return {"kai.scheduler/queue": queue, "app": group}


def _pod(metadata: Manifest, spec: Manifest, status: object) -> Manifest:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _pod_spec(gpus: int, cpu: str = "1", more: dict[str, str] | None = None) -> Manifest:
    amounts = {"cpu": cpu, "memory": "4Gi", **(more or {})}
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus)
    image = "registry.example/workload:1"
    container = {"name": "main", "image": image, "resources": {"requests": amounts, "limits": amounts}}
    return {"schedulerName": "kai-scheduler", "priorityClassName": "train", "containers": [container]}


def running_name(index: int) -> str:
    """Name the group ``index`` of those that run."""
    return f"running-{index:06d}"


def waiting_name(index: int) -> str:
    """Name the group ``index`` of those that wait."""
    return f"waiting-{index:06d}"


KINDS: dict[str, Callable[[Workload], Iterator[Manifest]]] = {
    "priority-classes": priority_classes,
    "topologies": topologies,
    "queues": queues,
    "nodes": nodes,
    "numa-topologies": numa_topologies,
    "device-classes": device_classes,
    "resource-slices": resource_slices,
    "resource-claims": resource_claims,
    "pod-groups": pod_groups,
    "pods": pods,
}


def manifests(workload: Workload) -> Iterator[Manifest]:
    """Make every object of ``workload``, kind by kind."""
    for make in KINDS.values():
        yield from make(workload)


def newcomers(workload: Workload) -> Iterator[Manifest]:
    """Make what arrives at a cluster that is known already: the claims, groups and pods that wait."""
    if workload.pending:
        yield from resource_claims(workload)
        yield from _pending_groups(workload.pending)
        yield from _waiting_pods(workload, workload.pending)


def running_pods(workload: Workload) -> Iterator[Manifest]:
    """Make the pods that run."""
    if workload.running:
        yield from _running_pods(workload, workload.running)
