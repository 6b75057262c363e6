"""BindRequest (scheduling.run.ai/v1alpha2): the scheduler's order to the binder to put one pod on one node."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from kai.api.fields import EMPTY, Count, ObjectName, Requests, by_content
from kai.api.kubernetes.dra import AllocationResult, DeviceRequest
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.kubernetes.pod import ExtendedResourceMapping

BindPhase: TypeAlias = Literal["", "Pending", "Succeeded", "Failed"]
CLOSED: Final = frozenset({"Succeeded", "Failed"})
"""Phases of a request that is complete: the binder no longer acts on it."""


@attrs.frozen(kw_only=True, weakref_slot=False)
class ReceivedGpu:
    """How many devices the pod gets, and how much of each: a decimal with two places."""

    count: Count = 0
    portion: str = ""


@attrs.frozen(kw_only=True, weakref_slot=False)
class ResourceClaimAllocation:
    """The devices for one claim of the pod, by its name in the pod."""

    name: str
    allocation: AllocationResult | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class ExtendedResourceClaimAllocation:
    """The devices that serve the pod's extended resources, and the claim to be made for them."""

    allocation: AllocationResult | None = None
    device_requests: tuple[DeviceRequest, ...] = ()
    container_mappings: tuple[ExtendedResourceMapping, ...] = ()


@attrs.frozen(kw_only=True, weakref_slot=False)
class NumaZone:
    """What the pod takes from one NUMA zone of its node."""

    zone: str
    amount: Requests = attrs.field(default=EMPTY, eq=by_content)


@attrs.frozen(kw_only=True, weakref_slot=False)
class BindRequestSpec:
    """What is to be bound, and where."""

    pod_name: ObjectName = ""
    selected_node: ObjectName = ""
    received_resource_type: ObjectName = ""
    """Regular, Fraction or MigInstance; an unknown type stands for whole GPUs or none."""
    received_gpu: ReceivedGpu | None = None
    selected_gpu_groups: tuple[str, ...] = ()
    resource_claim_allocations: tuple[ResourceClaimAllocation, ...] = ()
    extended_resource_claim_allocation: ExtendedResourceClaimAllocation | None = None
    predicted_numa_zones: tuple[NumaZone, ...] = ()
    backoff_limit: Count | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class BindRequestStatus:
    """How far the binder got."""

    phase: BindPhase = ""
    reason: str = ""
    failed_attempts: Count = 0


@attrs.frozen(kw_only=True, weakref_slot=False)
class BindRequest:
    """A bind request."""

    metadata: ObjectMeta = ObjectMeta()
    spec: BindRequestSpec = BindRequestSpec()
    status: BindRequestStatus = BindRequestStatus()


def is_for(request: BindRequest, uid: str) -> bool:
    """Return whether a request is for the pod with a UID: its owner reference decides, as its spec has only a name.

    A request without an owning pod is for any pod of that name.
    """
    meant = [owner.uid for owner in request.metadata.owner_references if owner.kind == "Pod" and owner.uid]
    return not meant or uid in meant
