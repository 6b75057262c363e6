"""Resource claims and devices (dynamic resource allocation): facts from intake, and parts of placements."""

from kai.basics.kubernetes_version import NEWEST, V1_37, KubernetesVersion
from kai.facts.model.claim import (
    CAPACITY_PARTS,
    AllocatedDevice,
    Claim,
    ClaimCatalog,
    Device,
    DeviceClass,
    DeviceConfig,
    DeviceConstraint,
    DeviceRequest,
    DeviceSlice,
    DeviceToleration,
    SharePolicy,
    backing_classes,
    qualified,
)
from kai.facts.model.partitions import Gpu, Gpus, gpus_of, is_gpu
from kai.facts.model.placement import (
    AllocatedConfig,
    ClaimAllocation,
    ClaimPlacement,
    ContainerMappings,
    DeviceAllocation,
    ExtendedAllocation,
)
from kai.facts.model.pod import ClaimReference
from kai.facts.model.units import backed_name, parts_of

__all__ = [
    "CAPACITY_PARTS",
    "NEWEST",
    "V1_37",
    "AllocatedConfig",
    "AllocatedDevice",
    "Claim",
    "ClaimAllocation",
    "ClaimCatalog",
    "ClaimPlacement",
    "ClaimReference",
    "ContainerMappings",
    "Device",
    "DeviceAllocation",
    "DeviceClass",
    "DeviceConfig",
    "DeviceConstraint",
    "DeviceRequest",
    "DeviceSlice",
    "DeviceToleration",
    "ExtendedAllocation",
    "Gpu",
    "Gpus",
    "KubernetesVersion",
    "SharePolicy",
    "backed_name",
    "backing_classes",
    "gpus_of",
    "is_gpu",
    "parts_of",
    "qualified",
]
