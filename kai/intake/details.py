"""The details of a placement on the wire: forms of the records in which plugins tell a bind request what they chose.

The way back of what intake reads: it is the seam between objects and state, in both directions.
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.kubernetes import dra, selection
from kai.api.kubernetes.pod import ExtendedResourceMapping, Pod
from kai.model.amounts import Amounts, backed_name, parts_of
from kai.model.claim import CAPACITY_PARTS, AllocatedDevice, DeviceRequest, DeviceToleration
from kai.model.constraints import NodeTerm, Requirement
from kai.model.placement import AllocatedConfig, ContainerMappings, DeviceAllocation, Quantities
from kai.quantity import Style, canonical

_SHARES: Final = uuid.uuid5(uuid.NAMESPACE_URL, "kai.scheduler/device-shares")
_ZONES: Final = "predictedNUMAZones"
_EXACT: Final = "ExactCount"
_KIBI: Final = 1024


def fields(request: Mapping[str, object], pod: Pod | None = None) -> dict[str, object]:
    """Return what plugins tell, of a placement of ``pod`` or of a node, as fields that JSON has.

    Of a placement they are fields of the bind request's spec.
    """
    return {name: _written(value, pod) for name, value in request.items()}


def _written(value: object, pod: Pod | None) -> object:
    match value:
        case Quantities():
            return texts(value.amounts)
        case DeviceAllocation():
            return unstructure(allocation_result(value.devices, value.nodes, value.claim, value.config))
        case DeviceRequest():
            return unstructure(_request(value))
        case ContainerMappings() if pod is not None:
            return [unstructure(each) for each in _mappings(value, pod)]
        case Mapping():
            return fields(value, pod)
        case tuple() | list():
            return [_written(each, pod) for each in value]
        case _:
            return value


def annotations(request: Mapping[str, object], pod: Pod) -> dict[str, str]:
    """Return what the binder writes on ``pod`` of what plugins tell of its placement."""
    zones = _written(request.get(_ZONES, ()), pod)
    return {names.NUMA_PREDICTED: json.dumps(zones)} if zones else {}


def texts(amounts: Amounts) -> dict[str, str]:
    """Return amounts as quantity texts, by resource; a GPU by its most common name."""
    return {
        (names.NVIDIA_GPU if name == "gpu" else name): canonical(amount, parts_of(name)) for name, amount in amounts
    }


def allocation_result(
    devices: Iterable[AllocatedDevice],
    nodes: tuple[NodeTerm, ...] | None,
    claim: str,
    config: Iterable[AllocatedConfig] = (),
) -> dra.AllocationResult:
    """Return an allocation; ``claim`` makes the names of shares of devices unique."""
    return dra.AllocationResult(
        devices=dra.DeviceAllocationResult(
            results=tuple(_result(device, f"{claim}/{at}") for at, device in enumerate(devices)),
            config=tuple(map(_config, config)),
        ),
        node_selector=None
        if nodes is None
        else selection.NodeSelector(node_selector_terms=tuple(_term(term) for term in nodes)),
    )


def _result(device: AllocatedDevice, share: str) -> dra.DeviceRequestAllocationResult:
    named = device.share or (str(uuid.uuid5(_SHARES, "/".join((*device.key, share)))) if device.shared else "")
    return dra.DeviceRequestAllocationResult(
        request=device.request,
        driver=device.driver,
        pool=device.pool,
        device=device.device,
        admin_access=True if device.admin_access else None,
        tolerations=tuple(map(_toleration, device.tolerations)),
        share_id=named or None,
        consumed_capacity={name: _quantity(amount) for name, amount in device.consumed},
    )


def _toleration(source: DeviceToleration) -> selection.Toleration:
    return selection.Toleration(
        key=source.key,
        operator=cast("selection.TolerationOperator", source.operator),
        value=source.value,
        effect=cast("selection.TaintEffect", source.effect),
        toleration_seconds=source.seconds,
    )


def _config(source: AllocatedConfig) -> dict[str, Any]:
    """Return a configuration as the kubelet's plugins of drivers read it; without requests it is for all of them."""
    told = {"requests": list(source.config.requests)} if source.config.requests else {}
    return {"source": "FromClass" if source.of_class else "FromClaim", **told, **json.loads(source.config.body)}


def _quantity(amount: int) -> str:
    """Return an amount as the API server writes it: what it returns is compared with what the request said."""
    style: Style = "decimal" if amount % (_KIBI * CAPACITY_PARTS) else "binary"
    return canonical(amount, CAPACITY_PARTS, style=style)


def _term(term: NodeTerm) -> selection.NodeSelectorTerm:
    return selection.NodeSelectorTerm(
        match_expressions=tuple(_requirement(each) for each in term.labels),
        match_fields=tuple(_requirement(each) for each in term.fields),
    )


def _requirement(source: Requirement) -> selection.NodeSelectorRequirement:
    operator = cast("selection.NodeOperator", source.operator)
    return selection.NodeSelectorRequirement(key=source.key, operator=operator, values=source.values)


def _request(source: DeviceRequest) -> dra.DeviceRequest:
    exactly = dra.ExactDeviceRequest(device_class_name=source.device_class, allocation_mode=_EXACT, count=source.count)
    return dra.DeviceRequest(name=source.name, exactly=exactly)


def _mappings(source: ContainerMappings, pod: Pod) -> Iterable[ExtendedResourceMapping]:
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    for at, resource, request in source.containers:
        container = containers[at]
        named = [name for name in container.resources.requests if backed_name(name) == resource]
        for name in named:
            yield ExtendedResourceMapping(container_name=container.name, resource_name=name, request_name=request)
