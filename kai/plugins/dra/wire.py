"""What a bind request says of the devices of a pod's claims."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from kai.framework import NodeRow, Pod, PodRow
from kai.framework.claims import (
    AllocatedConfig,
    AllocatedDevice,
    Claim,
    ClaimCatalog,
    ClaimPlacement,
    ContainerMappings,
    DeviceAllocation,
    DeviceClass,
    DeviceRequest,
)


def encode(
    pods: Sequence[Pod], catalog: ClaimCatalog, pod: PodRow, node: NodeRow, detail: object
) -> Mapping[str, object]:
    """Return the devices of claims that the pod refers to, and of the claim to be made for extended resources."""
    del node
    if not isinstance(detail, ClaimPlacement):
        return {}
    claims = [
        {
            "name": each.reference,
            "allocation": DeviceAllocation(
                claim="/".join(each.claim),
                devices=each.devices,
                nodes=each.nodes,
                config=_config(catalog, catalog.claims.get(each.claim), each.devices),
            ),
        }
        for each in detail.claims
        if each.reference
    ]
    fields: dict[str, object] = {"resourceClaimAllocations": claims} if claims else {}
    extended = detail.extended
    if extended is not None:
        implied = Claim(namespace="", name="", uid="", requests=extended.requests)
        fields["extendedResourceClaimAllocation"] = {
            "allocation": DeviceAllocation(
                claim=pods[pod].key,
                devices=extended.devices,
                nodes=extended.nodes,
                config=_config(catalog, implied, extended.devices),
            ),
            "deviceRequests": extended.requests,
            "containerMappings": ContainerMappings(extended.containers),
        }
    return fields


def _config(
    catalog: ClaimCatalog, claim: Claim | None, devices: Iterable[AllocatedDevice]
) -> tuple[AllocatedConfig, ...]:
    return () if claim is None else configuration(claim, catalog.classes, devices)


def configuration(
    claim: Claim, classes: Mapping[str, DeviceClass], devices: Iterable[AllocatedDevice]
) -> tuple[AllocatedConfig, ...]:
    """Return what drivers are told with the ``devices`` of ``claim``: first what classes say, then what the claim says.

    A class says it for all requests that were served from it; what is for other requests or alternatives is left out.
    """
    names: dict[str, list[str]] = {}
    served: set[str] = set()
    for name, way in _ways(claim, {device.request for device in devices}):
        names.setdefault(way.device_class, []).append(name)
        served |= {name, name.partition("/")[0]}
    found = [
        AllocatedConfig(config=attrs.evolve(each, requests=tuple(requests)), of_class=True)
        for device_class, requests in names.items()
        if device_class in classes
        for each in classes[device_class].config
    ]
    own = (each for each in claim.config if not each.requests or not served.isdisjoint(each.requests))
    return (*found, *(AllocatedConfig(config=each, of_class=False) for each in own))


def _ways(claim: Claim, served: set[str]) -> Iterator[tuple[str, DeviceRequest]]:
    """Yield the name under which devices serve each request, and the request or its alternative that they serve."""
    for request in claim.requests:
        for way in request.alternatives or (request,):
            name = f"{request.name}/{way.name}" if request.alternatives else request.name
            if name in served:
                yield name, way


__all__ = ["configuration", "encode"]
