"""The details of a placement on the wire: what a bind request says about devices and zones.

The way back of what ``claims`` and ``numa`` read: intake is the seam between objects and state, in both directions.
"""

import uuid
from collections.abc import Iterable
from typing import Final

from kai.api import bindrequest as api
from kai.api import dra, names, selection
from kai.api.pod import ExtendedResourceMapping, Pod
from kai.api.quantity import canonical
from kai.intake.requests import axis_name, parts_of
from kai.model.claim import AllocatedDevice, DeviceRequest
from kai.model.constraints import NodeTerm, Requirement
from kai.model.placement import Amounts, ClaimPlacement, ExtendedAllocation, NumaPlacement

_SHARES: Final = uuid.uuid5(uuid.NAMESPACE_URL, "kai.scheduler/device-shares")
_EXACT: Final = "ExactCount"


def claim_allocations(placement: ClaimPlacement) -> tuple[api.ResourceClaimAllocation, ...]:
    """Return the devices of each claim that the pod refers to."""
    return tuple(
        api.ResourceClaimAllocation(
            name=each.reference, allocation=allocation_result(each.devices, each.nodes, "/".join(each.claim))
        )
        for each in placement.claims
        if each.reference
    )


def extended_allocation(placement: ClaimPlacement, pod: Pod) -> api.ExtendedResourceClaimAllocation | None:
    """Return the devices for the pod's extended resources, with the claim to be made for them; None for none."""
    extended = placement.extended
    if extended is None:
        return None
    owner = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return api.ExtendedResourceClaimAllocation(
        allocation=allocation_result(extended.devices, extended.nodes, owner),
        device_requests=tuple(_request(each) for each in extended.requests),
        container_mappings=tuple(_mappings(extended, pod)),
    )


def predicted_zones(placement: NumaPlacement) -> tuple[api.NumaZone, ...]:
    """Return the zones that a pod is expected to draw from, with the amounts."""
    pairs = zip(placement.zone_names(), placement.amounts, strict=True)
    return tuple(api.NumaZone(zone=zone, amount=texts(drawn)) for zone, drawn in pairs)


def texts(amounts: Amounts) -> dict[str, str]:
    """Return amounts as quantity texts, by resource; a GPU by its most common name."""
    return {
        (names.NVIDIA_GPU if name == "gpu" else name): canonical(amount, parts_of(name)) for name, amount in amounts
    }


def allocation_result(
    devices: Iterable[AllocatedDevice], nodes: tuple[NodeTerm, ...] | None, claim: str
) -> dra.AllocationResult:
    """Return an allocation; ``claim`` makes the names of shares of devices unique."""
    return dra.AllocationResult(
        devices=dra.DeviceAllocationResult(
            results=tuple(_result(device, f"{claim}/{at}") for at, device in enumerate(devices))
        ),
        node_selector=None
        if nodes is None
        else selection.NodeSelector(node_selector_terms=tuple(_term(term) for term in nodes)),
    )


def _result(device: AllocatedDevice, share: str) -> dra.DeviceRequestAllocationResult:
    named = device.share or (str(uuid.uuid5(_SHARES, "/".join((*device.key, share)))) if device.consumed else "")
    return dra.DeviceRequestAllocationResult(
        request=device.request,
        driver=device.driver,
        pool=device.pool,
        device=device.device,
        admin_access=True if device.admin_access else None,
        share_id=named or None,
        consumed_capacity={name: str(amount) for name, amount in device.consumed},
    )


def _term(term: NodeTerm) -> selection.NodeSelectorTerm:
    return selection.NodeSelectorTerm(
        match_expressions=tuple(_requirement(each) for each in term.labels),
        match_fields=tuple(_requirement(each) for each in term.fields),
    )


def _requirement(source: Requirement) -> selection.NodeSelectorRequirement:
    operator = _OPERATORS[source.operator]
    return selection.NodeSelectorRequirement(key=source.key, operator=operator, values=source.values)


_OPERATORS: Final[dict[str, selection.NodeOperator]] = {
    "In": "In",
    "NotIn": "NotIn",
    "Exists": "Exists",
    "DoesNotExist": "DoesNotExist",
    "Gt": "Gt",
    "Lt": "Lt",
}


def _request(source: DeviceRequest) -> dra.DeviceRequest:
    exactly = dra.ExactDeviceRequest(device_class_name=source.device_class, allocation_mode=_EXACT, count=source.count)
    return dra.DeviceRequest(name=source.name, exactly=exactly)


def _mappings(extended: ExtendedAllocation, pod: Pod) -> Iterable[ExtendedResourceMapping]:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    for at, resource, request in extended.containers:
        container = containers[at]
        named = [name for name in container.resources.requests if axis_name(name) == resource]
        for name in named:
            yield ExtendedResourceMapping(container_name=container.name, resource_name=name, request_name=request)
