import pytest

from kai.facts.model.claim import (
    AllocatedDevice,
    DeviceConfig,
    DeviceConstraint,
    DeviceRequest,
    DeviceToleration,
    SharePolicy,
)
from kai.facts.model.constraints import NodeTerm, Requirement, Taint
from kai.intake.requests import MOST_DEVICES
from tests.unit.intake.making import node, other, pod, taken

VERSION = "resource.k8s.io/v1"


def claim(*requests, **body):
    devices = {"requests": list(requests), **{key: body.pop(key, []) for key in ("constraints", "config")}}
    return other("ResourceClaim", VERSION, "c", namespace="default", spec={"devices": devices}, **body)


def exact(name="r", **body):
    return {"name": name, "exactly": {"deviceClassName": "gpu.example.com", **body}}


def first_of(*ways):
    """Return a request for the first of so many devices of each class, called ``a0``, ``a1`` and so on."""
    alternatives = [{"name": f"a{at}", "deviceClassName": name, "count": n} for at, (name, n) in enumerate(ways)]
    return {"name": "r", "firstAvailable": alternatives}


ALL = {"name": "a1", "deviceClassName": "gpu.example.com", "allocationMode": "All"}
EIGHT_OR_ALL = {"name": "r", "firstAvailable": [*first_of(("gpu.example.com", 8))["firstAvailable"], ALL]}


def slice_(name, generation=1, **spec):
    pool = {"name": "pool", "generation": generation, "resourceSliceCount": 1}
    return other("ResourceSlice", VERSION, name, spec={"driver": "gpu.example.com", "pool": pool, **spec})


def read(*manifests):
    return taken(*manifests).catalog.claims


def read_claim(*requests, **body):
    return read(claim(*requests, **body)).claims["default", "c"]


SICK = Taint("sick", "", "NoSchedule")


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        (None, []),
        ({}, ["a/0", "a/1", "b/0"]),
        ({"driver": "gpu.example.com"}, ["a/0", "a/1"]),
        ({"driver": "gpu.example.com", "device": "0"}, ["a/0"]),
        ({"device": "0"}, ["a/0", "b/0"]),
        ({"pool": "b"}, ["b/0"]),
        ({"pool": "b", "driver": "gpu.example.com"}, []),
        ({"deviceClassName": "gpu"}, []),
        ({"driver": "gpu.example.com", "selectors": [{"cel": {"expression": "true"}}]}, []),
    ],
)
def test_a_rule_taints_devices_matching_all_its_selectors(selector, tainted):
    pools = {"a": ("gpu.example.com", ["0", "1"]), "b": ("nic.example.com", ["0"])}
    slices = [
        slice_(name, driver=driver, pool={"name": name}, devices=[{"name": each} for each in devices])
        for name, (driver, devices) in pools.items()
    ]
    taint = {"key": "sick", "effect": "NoSchedule"}
    rule = other("DeviceTaintRule", "resource.k8s.io/v1alpha3", "r", spec={"deviceSelector": selector, "taint": taint})
    found = [
        (f"{each.pool}/{device.name}", device.taints) for each in read(*slices, rule).slices for device in each.devices
    ]
    assert [name for name, taints in found if taints == (SICK,)] == tainted
    assert all(taints in ((), (SICK,)) for _, taints in found)


def test_rule_taints_join_driver_taints_unless_without_effect():
    device = {"name": "0", "taints": [{"key": "old", "effect": "NoExecute"}]}
    rules = [
        other(
            "DeviceTaintRule",
            VERSION,
            f"r-{effect}",
            spec={"deviceSelector": {}, "taint": {"key": "sick", "effect": effect}},
        )
        for effect in ("None", "NoSchedule")
    ]
    (found,) = read(slice_("s", devices=[device]), *rules).slices
    assert found.devices[0].taints == (Taint("old", "", "NoExecute"), SICK)


def test_any_object_of_the_api_marks_it_served():
    assert not read().served
    assert read(other("DeviceClass", VERSION, "x")).served
    assert read(claim()).served


@pytest.mark.parametrize(
    ("request_", "gpus"),
    [
        (exact(), 1),
        (exact(count=0), 1),
        (exact(count=3, allocationMode="ExactCount"), 3),
        (exact(count=3, allocationMode="All"), 1),
        (exact(count=2**63 - 1), MOST_DEVICES),
        (first_of(("gpu.example.com", 2**63 - 1)), MOST_DEVICES),
        (exact(deviceClassName="GPU-large"), 1),
        (exact(deviceClassName="nic.example.com"), 0),
        ({"name": "r", "firstAvailable": [{"name": "a", "deviceClassName": "gpu.example.com"}]}, 1),
        (first_of(("gpu.example.com", 1), ("nic.example.com", 9), ("gpu.example.com", 4)), 4),
        (first_of(("nic.example.com", 9)), 0),
    ],
)
def test_a_claim_counts_the_devices_of_gpu_classes(request_, gpus):
    assert read_claim(request_).gpus == gpus


@pytest.mark.parametrize(
    ("request_", "held", "gpus"),
    [
        (first_of(("gpu.example.com", 8), ("gpu.example.com", 2)), ["r/a1", "r/a1"], 2),
        (first_of(("gpu.example.com", 2), ("nic.example.com", 1)), ["r/a1"], 0),
        (exact(allocationMode="All"), ["r", "r", "r"], 3),
        (exact(allocationMode="All"), [], 1),
        (exact(allocationMode="All", deviceClassName="nic.example.com"), ["r", "r"], 0),
        (EIGHT_OR_ALL, ["r/a1"] * 4, 4),
    ],
)
def test_a_claim_that_is_allocated_counts_what_it_has(request_, held, gpus):
    results = [{"request": name, "driver": "d", "pool": "p", "device": str(at)} for at, name in enumerate(held)]
    found = read_claim(request_, status={"allocation": {"devices": {"results": results}}})
    assert (found.gpus, found.choices, found.most_spared) == (gpus, (), 0)


def test_devices_with_admin_access_are_not_counted():
    results = [{"request": "r", "driver": "d", "pool": "p", "device": str(at), "adminAccess": True} for at in range(4)]
    looking = exact(allocationMode="All", adminAccess=True)
    assert read_claim(looking, status={"allocation": {"devices": {"results": results}}}).gpus == 1


def test_a_claim_spares_the_gpus_of_unused_alternatives():
    found = read_claim(first_of(("gpu.example.com", 8), ("gpu.example.com", 2), ("nic.example.com", 1)))
    held = AllocatedDevice(request="r/a1", driver="d", pool="p", device="0")
    assert (found.gpus, found.most_spared, found.spared([held, held]), found.spared([])) == (8, 8, 6, 8)


def test_a_request_says_how_many_devices_of_which_kind():
    selectors = [{"cel": {"expression": "device.driver == 'x'"}}]
    tolerations = [{"key": "k", "effect": "NoSchedule"}]
    made = exact(
        count=2,
        selectors=selectors,
        adminAccess=True,
        tolerations=tolerations,
        capacity={"requests": {"memory": "1Gi"}},
    )
    assert read_claim(made).requests == (
        DeviceRequest(
            name="r",
            device_class="gpu.example.com",
            count=2,
            selectors=("device.driver == 'x'",),
            capacity=(("memory", 1000 * 2**30),),
            admin_access=True,
            tolerations=(DeviceToleration("k", "Equal", "", "NoSchedule"),),
        ),
    )


def test_alternatives_keep_their_order():
    made = {
        "name": "r",
        "firstAvailable": [{"name": "b", "deviceClassName": "x"}, {"name": "a", "deviceClassName": "y"}],
    }
    found = read_claim(made).requests[0]
    assert (found.name, found.device_class) == ("r", "")
    assert [(each.name, each.device_class) for each in found.alternatives] == [("b", "x"), ("a", "y")]


def test_constraints_say_what_must_agree_or_differ():
    constraints = [{"requests": ["r"], "matchAttribute": "x/model"}, {"distinctAttribute": "x/slot"}]
    assert read_claim(exact(), constraints=constraints).constraints == (
        DeviceConstraint(match="x/model", requests=("r",)),
        DeviceConstraint(match="x/slot", distinct=True),
    )


def test_owner_queue_and_users_of_a_claim():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p"}
    metadata = {"labels": {"kai.scheduler/queue": "q"}, "ownerReferences": [owner]}
    status = {"reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}]}
    found = read_claim(exact(), metadata=metadata, status=status)
    assert (found.owner_pod, found.queue, found.reserved_for) == ("uid-p", "q", ("uid-p",))
    assert (read_claim(exact()).queue, read_claim(exact()).allocation) == (None, None)


def test_an_allocation_names_its_devices_and_usable_nodes():
    result = {
        "request": "r",
        "driver": "d",
        "pool": "p",
        "device": "0",
        "shareID": "s",
        "consumedCapacity": {"memory": "1Ki"},
    }
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
    allocation = {"devices": {"results": [result]}, "nodeSelector": {"nodeSelectorTerms": terms}}
    found = read_claim(exact(), status={"allocation": allocation})
    assert found.nodes == (NodeTerm((Requirement("zone", "In", ("a",)),)),)
    consumed = (("memory", 1024000),)
    assert found.allocation == (
        AllocatedDevice(request="r", driver="d", pool="p", device="0", shared=True, share="s", consumed=consumed),
    )


def test_only_the_newest_generation_of_a_pool_counts():
    two = {"pool": {"name": "pool", "generation": 2, "resourceSliceCount": 2}}
    found = read(slice_("a", 1), slice_("b", **two), slice_("c", **two)).slices
    assert [each.name for each in found] == ["b", "c"]


def test_a_pool_counts_only_with_all_its_slices():
    def one_of_two(name, generation, of=2):
        pool = {"name": "p", "generation": generation, "resourceSliceCount": of}
        return slice_(name, generation, pool=pool)

    def found(*manifests):
        return [(each.name, each.unfinished) for each in read(*manifests).slices]

    assert found(one_of_two("a", 1), one_of_two("b", 2)) == [("b", True)]
    assert found(one_of_two("a", 1), one_of_two("b", 2), one_of_two("c", 2)) == [("b", False), ("c", False)]
    assert found(one_of_two("b", 2, of=0)) == [("b", False)]


def test_devices_have_qualified_attributes_and_amounts():
    device = {
        "name": "0",
        "attributes": {
            "model": {"string": "x"},
            "other.io/count": {"int": 3},
            "ok": {"bool": False},
            "v": {"version": "1.2.3"},
        },
        "capacity": {
            "memory": {"value": "1Ki", "requestPolicy": {"default": "1", "validValues": ["1", "1Ki"]}},
            "other.io/bits": {
                "value": "8",
                "requestPolicy": {"default": "2", "validRange": {"min": "2", "max": "6", "step": "2"}},
            },
            "bits": {"value": "8"},
        },
        "consumesCounters": [{"counterSet": "s", "counters": {"b": {"value": "2"}, "a": {"value": "1"}}}],
        "taints": [{"key": "k", "effect": "NoSchedule"}, {"key": "watched", "effect": "None"}],
        "allowMultipleAllocations": True,
    }
    shared = [{"name": "s", "counters": {"a": {"value": "8"}}}]
    found = read(slice_("a", nodeName="n", devices=[device], sharedCounters=shared)).slices[0]
    assert (found.node, found.counters) == ("n", (("s", "a", 8000),))
    made = found.devices[0]
    driver = "gpu.example.com"
    assert made.attributes == {
        f"{driver}/model": "x",
        "other.io/count": 3,
        f"{driver}/ok": False,
        f"{driver}/v": "1.2.3",
    }
    assert made.capacity == {"memory": 1024000, "other.io/bits": 8000, "bits": 8000}
    assert made.policies == {
        "memory": SharePolicy(default=1000, values=(1000, 1024000)),
        "other.io/bits": SharePolicy(default=2000, ranged=True, least=2000, most=6000, step=2000),
    }
    assert made.counters == (("s", "a", 1000), ("s", "b", 2000))
    assert made.taints == (Taint("k", "", "NoSchedule"),)
    assert made.multiple_allocations


def test_what_drivers_are_told_is_kept_as_it_is():
    opaque = {"driver": "d", "parameters": {"kind": "x", "apiVersion": "d/v1"}}
    body = '{"opaque": {"driver": "d", "parameters": {"apiVersion": "d/v1", "kind": "x"}}}'
    found = read_claim(exact(), config=[{"requests": ["r"], "opaque": opaque}, {"opaque": opaque}])
    assert found.config == (DeviceConfig(body=body, requests=("r",)), DeviceConfig(body=body))
    made = read(other("DeviceClass", VERSION, "x", spec={"config": [{"opaque": opaque}]})).classes["x"]
    assert made.config == (DeviceConfig(body=body),)


def test_a_class_may_back_an_extended_resource():
    spec = {"selectors": [{"cel": {"expression": "true"}}], "extendedResourceName": "example.com/nic"}
    found = read(other("DeviceClass", VERSION, "x", spec=spec)).classes["x"]
    assert (found.selectors, found.extended_resource) == (("true",), "example.com/nic")


@pytest.mark.parametrize(("text", "parts"), [("500m", 500), ("2.5", 2500), ("9P", 9 * 10**18), ("9E", 2**63 - 1)])
def test_a_capacity_counts_in_thousandths_up_to_int64(text, parts):
    device = {"name": "0", "capacity": {"cores": {"value": text}}}
    found = read(slice_("a", nodeName="n", devices=[device])).slices[0].devices[0]
    assert found.capacity == {"cores": parts}


HALVES = (
    other("DeviceClass", "resource.k8s.io/v1", "mig.nvidia.com", spec={"extendedResourceName": "nvidia.com/gpu"}),
    other(
        "ResourceSlice",
        "resource.k8s.io/v1",
        "n1",
        spec={
            "driver": "gpu.nvidia.com",
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "sharedCounters": [{"name": "gpu-0", "counters": {name: {"value": "1"} for name in ("slice0", "slice1")}}],
            "devices": [
                {
                    "name": f"part-{at}",
                    "consumesCounters": [{"counterSet": "gpu-0", "counters": {f"slice{at}": {"value": "1"}}}],
                }
                for at in range(2)
            ],
        },
    ),
)


def asked(*manifests, **spec):
    """Return what a pod that asks for GPUs asks for, in a cluster with halves of them."""
    shapes = taken(*HALVES, *manifests, node("n1"), pod("p", requests={"nvidia.com/gpu": "1"}, spec=spec)).shapes
    gpu = shapes[0].gpu
    return gpu.claimed, gpu.named, gpu.not_had, dict(shapes[0].request)["gpu"]


def test_gpus_of_a_shared_class_count_as_claim_shares():
    assert asked() == (1, 1, 500, 1000)


def test_an_init_containers_excess_adds_to_claimed_gpus():
    first = {"name": "first", "resources": {"requests": {"nvidia.com/gpu": "3"}}}
    assert asked(initContainers=[first]) == (3, 3, 1500, 3000)


def test_device_plugin_gpus_on_a_node_count_whole():
    plugged = node("n2", allocatable={"cpu": "8", "pods": "110", "nvidia.com/gpu": "1"})
    assert asked(plugged) == (0, 0, 0, 1000)
