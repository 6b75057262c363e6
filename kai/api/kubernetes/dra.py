"""Dynamic resource allocation (resource.k8s.io/v1): claims, slices of devices, device classes.

Older served versions are converted to this shape on reading (`kai.api.codec.structuring`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from kai.api.fields import EMPTY, Count64, Int64, JsonObject, Quantity, Time, by_content, by_json
from kai.api.kubernetes.meta import Condition, ObjectMeta
from kai.api.kubernetes.node import NodeSelector, TaintEffect, Toleration

AllocationMode: TypeAlias = Literal["", "ExactCount", "All"]


@attrs.frozen(kw_only=True)
class CelSelector:
    """A condition on a device, in the Common Expression Language."""

    expression: str = ""


@attrs.frozen(kw_only=True)
class DeviceSelector:
    """A condition on a device."""

    cel: CelSelector | None = None


@attrs.frozen(kw_only=True)
class CapacityRequirements:
    """What a request wants to consume of a device that is shared; kept as it is, by capacity name."""

    requests: JsonObject = attrs.field(default=EMPTY, eq=by_json)


@attrs.frozen(kw_only=True)
class ExactDeviceRequest:
    """Devices of one class. No mode means ``ExactCount``, a count of 0 means 1."""

    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: AllocationMode = ""
    count: Count64 = 0
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequirements | None = None


@attrs.frozen(kw_only=True)
class DeviceSubRequest:
    """One of several ways to satisfy a request."""

    name: str
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: AllocationMode = ""
    count: Count64 = 0
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequirements | None = None


@attrs.frozen(kw_only=True)
class DeviceRequest:
    """One request of a claim: exactly this, or the first of several that can be had."""

    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


@attrs.frozen(kw_only=True)
class DeviceConstraint:
    """An attribute that must be equal on all devices of some requests, or distinct; without requests, of all."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


@attrs.frozen(kw_only=True)
class DeviceClaim:
    """The devices that a claim requests; driver configuration is passed through unread."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[JsonObject, ...] = attrs.field(default=(), eq=by_json)


@attrs.frozen(kw_only=True)
class ResourceClaimSpec:
    """The spec of a claim."""

    devices: DeviceClaim = DeviceClaim()


@attrs.frozen(kw_only=True)
class DeviceRequestAllocationResult:
    """One device of an allocation, for one request."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = None
    consumed_capacity: JsonObject = attrs.field(default=EMPTY, eq=by_json)


@attrs.frozen(kw_only=True)
class DeviceAllocationResult:
    """The devices of an allocation."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[JsonObject, ...] = attrs.field(default=(), eq=by_json)


@attrs.frozen(kw_only=True)
class AllocationResult:
    """What a claim got, and the nodes from which it can be used."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: NodeSelector | None = None
    allocation_timestamp: Time | None = None


@attrs.frozen(kw_only=True)
class ResourceClaimConsumer:
    """A user of a claim, in practice always a pod."""

    api_group: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


@attrs.frozen(kw_only=True)
class AllocatedDeviceStatus:
    """A driver's report on one device of an allocation."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    share_id: str | None = None
    conditions: tuple[Condition, ...] = ()


@attrs.frozen(kw_only=True)
class ResourceClaimStatus:
    """The allocation of a claim, and its users."""

    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumer, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


@attrs.frozen(kw_only=True)
class ResourceClaim:
    """A claim of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


@attrs.frozen(kw_only=True)
class ResourceClaimTemplateSpec:
    """The claim that is made for each pod."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


@attrs.frozen(kw_only=True)
class ResourceClaimTemplate:
    """A template of claims."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimTemplateSpec = ResourceClaimTemplateSpec()


@attrs.frozen(kw_only=True)
class DeviceAttribute:
    """A property of a device; exactly one of the four is set."""

    int_: Int64 | None = None
    bool_: bool | None = None
    string: str | None = None
    version: str | None = None


@attrs.frozen(kw_only=True)
class CapacityRequestPolicyRange:
    """Amounts from ``min`` to ``max``, in steps."""

    min: Quantity | None = None
    max: Quantity | None = None
    step: Quantity | None = None


@attrs.frozen(kw_only=True)
class CapacityRequestPolicy:
    """The amounts of a capacity that one share of a device may take, from a list or a range, and the default."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


@attrs.frozen(kw_only=True)
class DeviceCapacity:
    """The amount of a capacity on a device, and how it is shared."""

    value: Quantity = "0"
    request_policy: CapacityRequestPolicy | None = None


@attrs.frozen(kw_only=True)
class Counter:
    """An amount in a set of counters."""

    value: Quantity = "0"


@attrs.frozen(kw_only=True)
class CounterSet:
    """Amounts that several partitions of a device draw from."""

    name: str
    counters: Mapping[str, Counter] = attrs.field(default=EMPTY, eq=by_content)


@attrs.frozen(kw_only=True)
class DeviceCounterConsumption:
    """The amounts that a device takes from a set of counters when it is allocated."""

    counter_set: str
    counters: Mapping[str, Counter] = attrs.field(default=EMPTY, eq=by_content)


@attrs.frozen(kw_only=True)
class DeviceTaint:
    """A mark on a device that keeps away claims which do not tolerate it."""

    key: str
    value: str = ""
    effect: TaintEffect | Literal["None"] = ""
    time_added: Time | None = None


@attrs.frozen(kw_only=True)
class Device:
    """A device of a slice."""

    name: str
    attributes: Mapping[str, DeviceAttribute] = attrs.field(default=EMPTY, eq=by_content)
    capacity: Mapping[str, DeviceCapacity] = attrs.field(default=EMPTY, eq=by_content)
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None


@attrs.frozen(kw_only=True)
class ResourcePool:
    """The pool of a slice; only slices of the newest generation count."""

    name: str = ""
    generation: Count64 = 0
    resource_slice_count: Count64 = 0


@attrs.frozen(kw_only=True)
class ResourceSliceSpec:
    """Devices of one driver, and the nodes from which they can be used."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


@attrs.frozen(kw_only=True)
class ResourceSlice:
    """A slice of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()


@attrs.frozen(kw_only=True)
class DeviceClassSpec:
    """Which devices belong to a class; with an extended resource name, pods may ask for it without a claim."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[JsonObject, ...] = attrs.field(default=(), eq=by_json)
    extended_resource_name: str | None = None


@attrs.frozen(kw_only=True)
class DeviceClass:
    """A class of devices."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()


@attrs.frozen(kw_only=True)
class DeviceTaintSelector:
    """The devices that a rule taints: they match every set field, so an empty selector selects every device."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


@attrs.frozen(kw_only=True)
class DeviceTaintRuleSpec:
    """A taint, and the devices to put it on; without a selector, none."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint


@attrs.frozen(kw_only=True)
class DeviceTaintRule:
    """A taint that an administrator puts on devices, in addition to their drivers' taints."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec
