"""Resource claims and devices (dynamic resource allocation): what intake reads of them, and what a placement holds."""

from kai.model.claim import (
    AllocatedDevice,
    Claim,
    ClaimCatalog,
    Device,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSlice,
    SharePolicy,
    qualified,
)
from kai.model.placement import (
    ClaimAllocation,
    ClaimPlacement,
    ContainerMappings,
    DeviceAllocation,
    ExtendedAllocation,
)
from kai.model.pod import ClaimReference

__all__ = [
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
    "DeviceConstraint",
    "DeviceRequest",
    "DeviceSlice",
    "ExtendedAllocation",
    "SharePolicy",
    "qualified",
]
