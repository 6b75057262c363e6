"""What a bind request says of claims: those that the pod refers to, and the one for extended resources."""

from kai.model.claim import AllocatedDevice, DeviceRequest
from kai.model.placement import ClaimAllocation, ClaimPlacement, ContainerMappings, DeviceAllocation, ExtendedAllocation
from kai.model.pod import Pod
from kai.plugins.dra.wire import encode

GPU = AllocatedDevice(request="r", driver="gpu.example.com", pool="n1", device="d0")
PODS = (Pod(name="p", namespace="default", uid="p", created=0.0),)


def test_claims_that_the_pod_refers_to_are_named_as_in_the_pod():
    claims = tuple(
        ClaimAllocation(reference=name, claim=("default", f"c-{name}"), devices=(GPU,)) for name in ("gpu", "")
    )
    allocation = DeviceAllocation(claim="default/c-gpu", devices=(GPU,), nodes=None)
    assert encode(PODS, 0, 0, ClaimPlacement(claims=claims)) == {
        "resourceClaimAllocations": [{"name": "gpu", "allocation": allocation}]
    }


def test_the_claim_for_extended_resources_is_told_with_its_requests_and_containers():
    requests, containers = (DeviceRequest(name="r", device_class="gpu.example.com", count=2),), ((0, "gpu", "r"),)
    extended = ExtendedAllocation(requests=requests, containers=containers, devices=(GPU,))
    assert encode(PODS, 0, 0, ClaimPlacement(extended=extended)) == {
        "extendedResourceClaimAllocation": {
            "allocation": DeviceAllocation(claim="default/p", devices=(GPU,), nodes=None),
            "deviceRequests": requests,
            "containerMappings": ContainerMappings(containers),
        }
    }


def test_a_pod_that_holds_no_devices_tells_nothing():
    assert encode(PODS, 0, 0, ClaimPlacement()) == encode(PODS, 0, 0, None) == {}
