"""Storage: claims, volumes, classes, drivers, the capacities that drivers report, and volume limits of nodes."""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs

from kai.api.fields import EMPTY, Quantity, Requests, by_content
from kai.api.kubernetes.meta import LabelSelector, ObjectMeta
from kai.api.kubernetes.node import NodeSelector

ClaimPhase: TypeAlias = Literal["", "Pending", "Bound", "Lost"]
BindingMode: TypeAlias = Literal["", "Immediate", "WaitForFirstConsumer"]


@attrs.frozen(kw_only=True)
class VolumeResources:
    """The size that a claim asks for, under ``storage``."""

    requests: Requests = attrs.field(default=EMPTY, eq=by_content)


@attrs.frozen(kw_only=True)
class PersistentVolumeClaimSpec:
    """The spec of a claim. An absent class means the cluster's default, an empty one means none."""

    storage_class_name: str | None = None
    volume_name: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str | None = None
    resources: VolumeResources = VolumeResources()
    selector: LabelSelector | None = None


@attrs.frozen(kw_only=True)
class PersistentVolumeClaimStatus:
    """The status of a claim."""

    phase: ClaimPhase = ""
    capacity: Requests = attrs.field(default=EMPTY, eq=by_content)


@attrs.frozen(kw_only=True)
class PersistentVolumeClaim:
    """A claim of storage."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


@attrs.frozen(kw_only=True)
class PersistentVolumeClaimTemplate:
    """The claim that is created for an ephemeral volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


@attrs.frozen(kw_only=True)
class VolumeNodeAffinity:
    """The nodes from which a volume can be reached."""

    required: NodeSelector | None = None


@attrs.frozen(kw_only=True)
class ObjectReference:
    """A reference to an object of any kind."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


@attrs.frozen(kw_only=True)
class PersistentVolumeCsi:
    """The driver of a volume, and its handle for the volume."""

    driver: str = ""
    volume_handle: str = ""


@attrs.frozen(kw_only=True)
class PersistentVolumeSpec:
    """The spec of a volume."""

    capacity: Requests = attrs.field(default=EMPTY, eq=by_content)
    storage_class_name: str = ""
    access_modes: tuple[str, ...] = ()
    volume_mode: str | None = None
    claim_ref: ObjectReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: PersistentVolumeCsi | None = None


@attrs.frozen(kw_only=True)
class PersistentVolumeStatus:
    """The status of a volume."""

    phase: str = ""


@attrs.frozen(kw_only=True)
class PersistentVolume:
    """A volume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


@attrs.frozen(kw_only=True)
class TopologySelectorRequirement:
    """Values of a node label where a class may provision."""

    key: str
    values: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class TopologySelectorTerm:
    """A conjunction of requirements."""

    match_label_expressions: tuple[TopologySelectorRequirement, ...] = ()


@attrs.frozen(kw_only=True)
class StorageClass:
    """A kind of storage."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: BindingMode = ""
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


@attrs.frozen(kw_only=True)
class CsiDriverSpec:
    """The capabilities of a driver."""

    storage_capacity: bool | None = None


@attrs.frozen(kw_only=True)
class CsiDriver:
    """A storage driver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CsiDriverSpec = CsiDriverSpec()


@attrs.frozen(kw_only=True)
class CsiStorageCapacity:
    """How much storage of a class can still be provisioned for some nodes."""

    metadata: ObjectMeta = ObjectMeta()
    storage_class_name: str = ""
    node_topology: LabelSelector | None = None
    capacity: Quantity | None = None
    maximum_volume_size: Quantity | None = None


@attrs.frozen(kw_only=True)
class CsiNodeResources:
    """The most volumes of a driver that a node can hold; without a count there is no limit."""

    count: int | None = None


@attrs.frozen(kw_only=True)
class CsiNodeDriver:
    """A driver that runs on a node."""

    name: str = ""
    allocatable: CsiNodeResources | None = None


@attrs.frozen(kw_only=True)
class CsiNodeSpec:
    """The storage drivers that run on a node."""

    drivers: tuple[CsiNodeDriver, ...] = ()


@attrs.frozen(kw_only=True)
class CsiNode:
    """The drivers' reports on the node of the same name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CsiNodeSpec = CsiNodeSpec()
