import attrs
import pytest

from kai.api.codec.structuring import structure_all, structure_as, unstructure
from kai.api.kubernetes.dra import AllocationResult
from kai.api.kubernetes.pod import Pod
from kai.facts.model.claim import AllocatedDevice, DeviceConfig, DeviceRequest, DeviceToleration
from kai.facts.model.constraints import NodeTerm, Requirement
from kai.facts.model.placement import AllocatedConfig, ContainerMappings, DeviceAllocation, Quantities
from kai.intake import bind_requests
from kai.intake.claims import allocated
from kai.intake.traits import node_terms
from tests.unit.intake.making import pod

GPU = AllocatedDevice(request="r", driver="gpu.example.com", pool="n1", device="d0")
PART = AllocatedDevice(
    request="s", driver="d", pool="p", device="x", admin_access=True, consumed=(("d/memory", 5),), shared=True
)
HERE = (NodeTerm((Requirement("rack", "In", ("r1", "r2")),), (Requirement("metadata.name", "In", ("n1",)),)),)


def test_an_allocation_is_read_back_as_it_was_written():
    written = bind_requests.allocation_result((GPU, PART), HERE, "default/c")
    read = allocated(written)
    assert read[0] == GPU
    assert (read[1].device, read[1].admin_access, read[1].consumed) == ("x", True, (("d/memory", 5),))
    assert node_terms(written.node_selector) == HERE
    assert bind_requests.allocation_result((GPU,), None, "default/c").node_selector is None


def test_each_device_share_has_a_stable_name():
    def share(claim):
        return bind_requests.allocation_result((PART,), None, claim).devices.results[0].share_id

    written = bind_requests.allocation_result((PART, PART), None, "default/c").devices.results
    assert written[0].share_id != written[1].share_id
    assert share("default/c") == share("default/c")
    assert share("default/c") != share("default/e")
    assert bind_requests.allocation_result((GPU,), None, "default/c").devices.results[0].share_id is None


def test_a_share_without_capacities_has_a_name_as_well():
    written = bind_requests.allocation_result((attrs.evolve(PART, consumed=()),), None, "default/c")
    assert written.devices.results[0].share_id
    assert written.devices.results[0].consumed_capacity == {}


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        *(
            (0, "0"),
            (5, "5"),
            (1000, "1k"),
            (1500, "1500"),
            (1024, "1Ki"),
            (10 * 1024**3, "10Gi"),
            (1_536_000, "1500Ki"),
        ),
        *((0.5, "500m"), (1.5, "1500m"), (1.024, "1024m"), (25.6, "25600m")),
    ],
)
def test_a_shares_consumption_is_written_like_the_api_server(amount, text):
    part = attrs.evolve(PART, consumed=(("memory", int(amount * 1000)),))
    written = bind_requests.allocation_result((part,), None, "default/c")
    assert written.devices.results[0].consumed_capacity == {"memory": text}


def test_an_allocation_lists_the_tolerations_of_its_requests():
    tolerations = (DeviceToleration("k", "Exists", "", "NoExecute", 30), DeviceToleration("l", "Equal", "x"))
    written = bind_requests.allocation_result((attrs.evolve(GPU, tolerations=tolerations),), None, "default/c")
    assert unstructure(written)["devices"]["results"][0]["tolerations"] == [
        {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30},
        {"key": "l", "operator": "Equal", "value": "x"},
    ]
    assert allocated(written)[0].tolerations == tolerations


def test_an_allocation_says_what_drivers_are_told():
    body = '{"opaque": {"driver": "d", "parameters": {"kind": "x"}}}'
    config = (
        AllocatedConfig(config=DeviceConfig(body=body, requests=("r",)), of_class=True),
        AllocatedConfig(config=DeviceConfig(body=body), of_class=False),
    )
    opaque = {"driver": "d", "parameters": {"kind": "x"}}
    told = DeviceAllocation(claim="default/c", devices=(GPU,), nodes=None, config=config)
    assert bind_requests.fields({"allocation": told})["allocation"]["devices"]["config"] == [
        {"source": "FromClass", "requests": ["r"], "opaque": opaque},
        {"source": "FromClaim", "opaque": opaque},
    ]


def test_plugin_records_are_encoded_in_wire_form():
    source = structure_all([pod("a", requests={"nvidia.com/gpu": "2", "cpu": "1"})]).objects[0]
    told = {
        "zones": [{"zone": "z0", "amount": Quantities((("cpu", 1500),))}],
        "allocation": DeviceAllocation(claim="default/c", devices=(GPU,), nodes=HERE),
        "deviceRequests": (DeviceRequest(name="r", device_class="gpu.example.com", count=2),),
        "containerMappings": ContainerMappings(((0, "gpu", "r"),)),
    }
    found = bind_requests.fields(told, source)
    assert found["zones"] == [{"zone": "z0", "amount": {"cpu": "1500m"}}]
    allocation = bind_requests.allocation_result((GPU,), HERE, "default/c")
    assert structure_as(AllocationResult, found["allocation"]) == allocation
    exactly = {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 2}
    assert found["deviceRequests"] == [{"name": "r", "exactly": exactly}]
    mapping = {"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "r"}
    assert found["containerMappings"] == [mapping]


@pytest.mark.parametrize(
    ("amounts", "texts"),
    [
        ((("cpu", 3000),), {"cpu": "3"}),
        ((("cpu", 1500), ("memory", 1 << 30)), {"cpu": "1500m", "memory": "1073741824"}),
        ((("gpu", 2000), ("example.com/nic", 1000)), {"nvidia.com/gpu": "2", "example.com/nic": "1"}),
    ],
)
def test_amounts_are_quantities_of_their_resource(amounts, texts):
    assert bind_requests.texts(amounts) == texts


def test_the_binder_writes_the_zones_that_a_request_names():
    zones = [{"zone": "node-0", "amount": Quantities((("cpu", 1500),))}]
    written = bind_requests.annotations({"predictedNUMAZones": zones, "anotherField": 1}, Pod())
    assert written == {"kai.scheduler/numa-placement-predicted": '[{"zone": "node-0", "amount": {"cpu": "1500m"}}]'}
    assert bind_requests.annotations({}, Pod()) == {}
