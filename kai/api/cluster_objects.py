"""ClusterObjects: everything that a snapshot is made of, as one frozen value.

The store of the service, a scenario, a directory of manifests and the peer's snapshot all produce it, so that tests
enter the engine by the same interface as production.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs

from kai.api.kinds import BY_CLASS, ApiObject, title
from kai.api.kubernetes.dra import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from kai.api.kubernetes.meta import ConfigMap, Foreign, Namespace, PodDisruptionBudget, PriorityClass
from kai.api.kubernetes.node import Node, NodeResourceTopology
from kai.api.kubernetes.pod import Pod
from kai.api.kubernetes.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue, Topology
from kai.basics.errors import InputError


@attrs.frozen(kw_only=True)
class ClusterObjects:
    """The objects of a cluster at one moment, in no meaningful order; no two of a kind have the same name."""

    nodes: tuple[Node, ...] = ()
    pods: Sequence[Pod] = ()
    pod_groups: Sequence[PodGroup] = ()
    queues: tuple[Queue, ...] = ()
    priority_classes: tuple[PriorityClass, ...] = ()
    bind_requests: tuple[BindRequest, ...] = ()
    topologies: tuple[Topology, ...] = ()
    config_maps: tuple[ConfigMap, ...] = ()
    namespaces: tuple[Namespace, ...] = ()
    pod_disruption_budgets: tuple[PodDisruptionBudget, ...] = ()
    persistent_volume_claims: tuple[PersistentVolumeClaim, ...] = ()
    persistent_volumes: tuple[PersistentVolume, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    csi_drivers: tuple[CsiDriver, ...] = ()
    csi_nodes: tuple[CsiNode, ...] = ()
    csi_storage_capacities: tuple[CsiStorageCapacity, ...] = ()
    resource_claims: tuple[ResourceClaim, ...] = ()
    resource_claim_templates: tuple[ResourceClaimTemplate, ...] = ()
    resource_slices: tuple[ResourceSlice, ...] = ()
    device_classes: tuple[DeviceClass, ...] = ()
    device_taint_rules: tuple[DeviceTaintRule, ...] = ()
    node_resource_topologies: tuple[NodeResourceTopology, ...] = ()
    foreign: Sequence[Foreign] = ()
    """Objects of all kinds that only plugins read."""


FIELD_OF: Final[dict[type[ApiObject], str]] = {
    Node: "nodes",
    Pod: "pods",
    PodGroup: "pod_groups",
    Queue: "queues",
    PriorityClass: "priority_classes",
    BindRequest: "bind_requests",
    Topology: "topologies",
    ConfigMap: "config_maps",
    Namespace: "namespaces",
    PodDisruptionBudget: "pod_disruption_budgets",
    PersistentVolumeClaim: "persistent_volume_claims",
    PersistentVolume: "persistent_volumes",
    StorageClass: "storage_classes",
    CsiDriver: "csi_drivers",
    CsiNode: "csi_nodes",
    CsiStorageCapacity: "csi_storage_capacities",
    ResourceClaim: "resource_claims",
    ResourceClaimTemplate: "resource_claim_templates",
    ResourceSlice: "resource_slices",
    DeviceClass: "device_classes",
    DeviceTaintRule: "device_taint_rules",
    NodeResourceTopology: "node_resource_topologies",
}
"""The field of ClusterObjects that holds objects of a class; configuration (shards) is not part of a cluster."""


def collect(objects: Iterable[ApiObject]) -> ClusterObjects:
    """Sort objects into ClusterObjects, in their order; drop objects of kinds that no snapshot needs.

    Raises: InputError for an object without a name, and for a second one of the same kind, namespace and name.
    """
    fields: dict[str, list[ApiObject]] = {}
    seen: set[tuple[type[ApiObject], str, str]] = set()
    errors: list[InputError] = []
    for obj in objects:
        cls = type(obj)
        metadata = obj.metadata
        if not metadata.name:
            errors.append(InputError.about(title(obj), "metadata.name", found=None, wanted="a name"))
            continue
        key = (cls, metadata.namespace if BY_CLASS[cls].namespaced else "", metadata.name)
        if key in seen:
            wanted = "one object of this kind and name"
            errors.append(InputError.about(title(obj), "metadata.name", found="a second one", wanted=wanted))
            continue
        seen.add(key)
        field = "foreign" if issubclass(cls, Foreign) else FIELD_OF.get(cls)
        if field is not None:
            fields.setdefault(field, []).append(obj)
    if errors:
        raise InputError.joined(errors)
    # The table above decides which class goes into which field; mypy cannot check that.
    chosen: dict[str, Any] = {field: tuple(members) for field, members in fields.items()}
    return ClusterObjects(**chosen)
