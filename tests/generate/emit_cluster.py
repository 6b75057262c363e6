"""Write what is there before any workload: nodes with their zones and devices, queues, classes, storage."""

from collections.abc import Iterator
from datetime import timedelta

from tests.generate.demands import BIG_GPU_CLASS, BIG_GPU_GI, GPU_CLASS, NIC_CLASS
from tests.generate.draft import (
    GPU_DRIVER,
    NIC_DRIVER,
    Device,
    Draft,
    Manifest,
    Node,
    Queue,
    Zone,
    stamp,
)
from tests.generate.groups import PRIORITIES
from tests.generate.structure import TOPOLOGY
from tests.generate.writing import cluster_wide, kubernetes_object, namespaced, quantities

STORAGE_DRIVER = "csi.example.com"


def emit_cluster(draft: Draft) -> Iterator[Manifest]:
    """Write everything that is not part of a workload."""
    for node in draft.nodes:
        yield _node(node)
        if node.zones:
            yield _zones(node)
    if draft.has("topology"):
        levels = [{"nodeLabel": level} for level in draft.levels]
        yield kubernetes_object("kai.scheduler/v1alpha1", "Topology", cluster_wide(TOPOLOGY), spec={"levels": levels})
    for index, queue in enumerate(draft.queues):
        yield _queue(queue, stamp(timedelta(days=1) - timedelta(minutes=index)))
    for name, value in PRIORITIES.items():
        yield kubernetes_object("scheduling.k8s.io/v1", "PriorityClass", cluster_wide(name), value=value)
    if draft.has("dra"):
        yield from _device_classes()
        yield from (piece for node in draft.nodes for piece in _slices(node))
    if draft.volumes:
        yield from _storage(draft)


def _node(node: Node) -> Manifest:
    amounts = quantities(node.capacity)
    spec: Manifest = {"taints": node.taints} if node.taints else {}
    if node.unschedulable:
        spec["unschedulable"] = True
    conditions = [{"type": kind, "status": status} for kind, status in node.conditions.items()]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": conditions}
    return kubernetes_object("v1", "Node", cluster_wide(node.name, labels=node.labels), spec=spec, status=status)


def _zones(node: Node) -> Manifest:
    """Write the zones; what is available in one is what no pod was given of it."""
    attributes = [
        {"name": "topologyManagerPolicy", "value": node.numa_policy},
        {"name": "topologyManagerScope", "value": node.numa_scope},
    ]
    zones = [{"name": zone.name, "type": "Node", "resources": _zone_resources(zone)} for zone in node.zones]
    metadata = cluster_wide(node.name)
    group = "topology.node.k8s.io/v1alpha2"
    return kubernetes_object(group, "NodeResourceTopology", metadata, attributes=attributes, zones=zones)


def _zone_resources(zone: Zone) -> list[Manifest]:
    capacity, free = quantities(zone.capacity), quantities(zone.free)
    return [
        {"name": name, "capacity": amount, "allocatable": amount, "available": free[name]}
        for name, amount in capacity.items()
    ]


def _queue(queue: Queue, created: str) -> Manifest:
    spec: Manifest = {"resources": queue.shares, **queue.runtimes}
    if queue.parent:
        spec["parentQueue"] = queue.parent
    if queue.priority is not None:
        spec["priority"] = queue.priority
    metadata = cluster_wide(queue.name, creationTimestamp=created)
    return kubernetes_object("scheduling.run.ai/v2", "Queue", metadata, spec=spec)


def _device_classes() -> Iterator[Manifest]:
    ours = f'device.driver == "{GPU_DRIVER}"'
    big = f'device.capacity["{GPU_DRIVER}"].memory.compareTo(quantity("{BIG_GPU_GI}Gi")) >= 0'
    conditions = {GPU_CLASS: ours, BIG_GPU_CLASS: f"{ours} && {big}", NIC_CLASS: f'device.driver == "{NIC_DRIVER}"'}
    for name, condition in conditions.items():
        spec = {"selectors": [{"cel": {"expression": condition}}]}
        yield kubernetes_object("resource.k8s.io/v1", "DeviceClass", cluster_wide(name), spec=spec)


def _slices(node: Node) -> Iterator[Manifest]:
    for driver in (GPU_DRIVER, NIC_DRIVER):
        devices = [_device(device) for device in node.devices if device.driver == driver]
        if devices:
            pool = {"name": node.name, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": driver, "nodeName": node.name, "pool": pool, "devices": devices}
            metadata = cluster_wide(f"{node.name}-{driver.partition('.')[0]}")
            yield kubernetes_object("resource.k8s.io/v1", "ResourceSlice", metadata, spec=spec)


def _device(device: Device) -> Manifest:
    written: Manifest = {"name": device.name, "attributes": {"model": {"string": device.model}}}
    if device.memory_gi:
        written["capacity"] = {"memory": {"value": f"{device.memory_gi}Gi"}}
    return written


def _storage(draft: Draft) -> Iterator[Manifest]:
    """Write storage classes, the driver, free local volumes, and how much the driver has left where it counts."""
    waiting, at_once = "WaitForFirstConsumer", "Immediate"
    for name, provisioner, mode in (
        ("fast", STORAGE_DRIVER, waiting),
        ("local", "kubernetes.io/no-provisioner", waiting),
        ("standard", "csi.example.net", at_once),
    ):
        fields = {"provisioner": provisioner, "volumeBindingMode": mode}
        yield kubernetes_object("storage.k8s.io/v1", "StorageClass", cluster_wide(name), **fields)
    spec = {"storageCapacity": draft.has("storage-capacity"), "attachRequired": False}
    yield kubernetes_object("storage.k8s.io/v1", "CSIDriver", cluster_wide(STORAGE_DRIVER), spec=spec)
    if draft.has("storage-capacity"):
        yield from _capacities(draft)


def _capacities(draft: Draft) -> Iterator[Manifest]:
    """Write one capacity for each node, or one for each rack; of some there is none."""
    label = draft.capacity_label
    values = sorted({node.labels[label] for node in draft.nodes if label in node.labels})
    for value in values:
        left = draft.capacities.get(value)
        if left is not None:
            yield kubernetes_object(
                "storage.k8s.io/v1",
                "CSIStorageCapacity",
                namespaced(f"fast-{value}"),
                storageClassName="fast",
                capacity=f"{left}Gi",
                nodeTopology={"matchLabels": {label: value}},
            )
