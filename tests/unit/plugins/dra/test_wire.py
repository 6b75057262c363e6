"""What a bind request says of claims: those that the pod refers to, and the one for extended resources."""

from kai.facts.model.claim import AllocatedDevice, Claim, ClaimCatalog, DeviceClass, DeviceConfig, DeviceRequest
from kai.facts.model.placement import (
    AllocatedConfig,
    ClaimAllocation,
    ClaimPlacement,
    ContainerMappings,
    DeviceAllocation,
    ExtendedAllocation,
)
from kai.facts.model.pod import Pod
from kai.plugins.dra.plugin import configuration, encode

GPU = AllocatedDevice(request="r", driver="gpu.example.com", pool="n1", device="d0")
PODS = (Pod(name="p", namespace="default", uid="p", created=0.0),)


def test_allocations_are_named_as_the_pod_references_them():
    claims = tuple(
        ClaimAllocation(reference=name, claim=("default", f"c-{name}"), devices=(GPU,)) for name in ("gpu", "")
    )
    allocation = DeviceAllocation(claim="default/c-gpu", devices=(GPU,), nodes=None)
    assert encode(PODS, ClaimCatalog(), 0, 0, ClaimPlacement(claims=claims)) == {
        "resourceClaimAllocations": [{"name": "gpu", "allocation": allocation}]
    }


def test_the_extended_claim_lists_its_requests_and_containers():
    requests, containers = (DeviceRequest(name="r", device_class="gpu.example.com", count=2),), ((0, "gpu", "r"),)
    extended = ExtendedAllocation(requests=requests, containers=containers, devices=(GPU,))
    assert encode(PODS, ClaimCatalog(), 0, 0, ClaimPlacement(extended=extended)) == {
        "extendedResourceClaimAllocation": {
            "allocation": DeviceAllocation(claim="default/p", devices=(GPU,), nodes=None),
            "deviceRequests": requests,
            "containerMappings": ContainerMappings(containers),
        }
    }


def test_a_pod_that_holds_no_devices_tells_nothing():
    assert encode(PODS, ClaimCatalog(), 0, 0, ClaimPlacement()) == encode(PODS, ClaimCatalog(), 0, 0, None) == {}


def told(body, *requests, of_class=False):
    return AllocatedConfig(config=DeviceConfig(body=body, requests=requests), of_class=of_class)


def held(*requests):
    return [AllocatedDevice(request=each, driver="d", pool="n1", device=f"d{at}") for at, each in enumerate(requests)]


FAST, SLOW = (DeviceRequest(name=name, device_class=name) for name in ("fast", "slow"))
CLASSES = {
    "fast": DeviceClass(name="fast", config=(DeviceConfig(body="1"), DeviceConfig(body="2"))),
    "slow": DeviceClass(name="slow", config=(DeviceConfig(body="3"),)),
}


def made(*requests, config=()):
    return Claim(namespace="default", name="c", uid="c", requests=requests, config=config)


def test_a_class_configuration_appears_once_for_all_its_requests():
    requests = [DeviceRequest(name=name, device_class=of) for name, of in (("a", "fast"), ("b", "slow"), ("c", "fast"))]
    found = configuration(made(*requests), CLASSES, held("a", "b", "c", "c"))
    assert found == (
        told("1", "a", "c", of_class=True),
        told("2", "a", "c", of_class=True),
        told("3", "b", of_class=True),
    )


def test_only_configuration_of_served_requests_reaches_drivers():
    config = (
        DeviceConfig(body="all"),
        DeviceConfig(body="r", requests=("r",)),
        DeviceConfig(body="slow", requests=("r/slow", "r/none")),
        DeviceConfig(body="fast", requests=("r/fast",)),
    )
    claim = made(DeviceRequest(name="r", device_class="", alternatives=(FAST, SLOW)), config=config)
    assert configuration(claim, CLASSES, held("r/slow")) == (
        told("3", "r/slow", of_class=True),
        told("all"),
        told("r", "r"),
        told("slow", "r/slow", "r/none"),
    )


def test_a_class_that_is_gone_since_tells_nothing():
    assert configuration(made(FAST), {}, held("fast")) == ()


def test_a_bind_request_tells_what_drivers_are_told():
    catalog = ClaimCatalog(claims={("default", "c"): made(FAST)}, classes=CLASSES)
    devices = tuple(held("fast"))
    placement = ClaimPlacement(
        claims=(ClaimAllocation(reference="gpu", claim=("default", "c"), devices=devices),),
        extended=ExtendedAllocation(requests=(SLOW,), devices=tuple(held("slow"))),
    )
    fields = encode(PODS, catalog, 0, 0, placement)
    (given,) = fields["resourceClaimAllocations"]
    assert given["allocation"].config == configuration(made(FAST), CLASSES, devices)
    assert fields["extendedResourceClaimAllocation"]["allocation"].config == (told("3", "slow", of_class=True),)
