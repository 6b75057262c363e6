"""What a bind request says of the devices of a pod's claims."""

from collections.abc import Mapping, Sequence

from kai.framework import NodeRow, Pod, PodRow
from kai.framework.claims import ClaimPlacement, ContainerMappings, DeviceAllocation


def encode(pods: Sequence[Pod], pod: PodRow, node: NodeRow, detail: object) -> Mapping[str, object]:
    """Return the devices of claims that the pod refers to, and of the claim to be made for extended resources."""
    del node
    if not isinstance(detail, ClaimPlacement):
        return {}
    claims = [
        {
            "name": each.reference,
            "allocation": DeviceAllocation(claim="/".join(each.claim), devices=each.devices, nodes=each.nodes),
        }
        for each in detail.claims
        if each.reference
    ]
    fields: dict[str, object] = {"resourceClaimAllocations": claims} if claims else {}
    extended = detail.extended
    if extended is not None:
        fields["extendedResourceClaimAllocation"] = {
            "allocation": DeviceAllocation(claim=pods[pod].key, devices=extended.devices, nodes=extended.nodes),
            "deviceRequests": extended.requests,
            "containerMappings": ContainerMappings(extended.containers),
        }
    return fields


__all__ = ["encode"]
