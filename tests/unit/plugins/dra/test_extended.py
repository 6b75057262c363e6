import attrs

from kai.facts.model.claim import DeviceClass, backing_classes
from kai.facts.model.pod import ContainerRequest, Node, Shape
from kai.plugins.dra.extended import implied_claim, needed

CLASSES = {
    "fast.example.com": DeviceClass(name="fast.example.com", extended_resource="example.com/fast"),
    "gpu.example.com": DeviceClass(name="gpu.example.com", extended_resource="nvidia.com/gpu"),
    "other.example.com": DeviceClass(name="other.example.com", extended_resource="example.com/fast"),
    "plain.example.com": DeviceClass(name="plain.example.com"),
}
BACKING = backing_classes(CLASSES)


def container(count, **kind):
    return ContainerRequest(requests=(("example.com/fast", count * 1000),), **kind)


def implied(*containers, resources=("example.com/fast",)):
    found = implied_claim(containers, resources, BACKING, "default")
    counts = {request.name: request.count for request in found.claim.requests}
    return counts, {(at, name) for at, _, name in found.containers}


def named(classes):
    """Return the class by resource, for resources that classes name."""
    return {name: each.name for name, each in classes.items() if not name.startswith("deviceclass.")}


def test_the_newest_then_first_class_backs_a_resource():
    assert named(BACKING) == {"example.com/fast": "fast.example.com", "gpu": "gpu.example.com"}
    newer = attrs.evolve(CLASSES["other.example.com"], created=1.0)
    assert named(backing_classes(CLASSES | {newer.name: newer}))["example.com/fast"] == newer.name


def test_each_class_backs_a_resource_named_after_itself():
    gpus = DeviceClass(name="some-gpu")
    found = backing_classes({"plain.example.com": CLASSES["plain.example.com"], gpus.name: gpus})
    assert {name: each.name for name, each in found.items()} == {
        "deviceclass.resource.kubernetes.io/plain.example.com": "plain.example.com",
        "deviceclass.resource.kubernetes.io/some-gpu": "some-gpu",
    }


def test_only_what_containers_ask_for_is_needed():
    shape = Shape(request=(), containers=(container(0), container(2)))
    assert needed(shape, BACKING) == ("example.com/fast",)
    assert needed(Shape(request=(("gpu", 1000),)), BACKING) == ()


def test_driver_gpus_are_no_device_plugin_gpus():
    assert Node(name="n", allocatable={"gpu": 2000}).plugs("gpu")
    assert not Node(name="n", allocatable={"gpu": 2000}, dra_gpus=2).plugs("gpu")
    assert not Node(name="n").plugs("example.com/fast")


def test_containers_side_by_side_get_devices_of_their_own():
    counts, serves = implied(container(1), container(2))
    assert counts == {"container-0-request-0": 1, "container-1-request-0": 2}
    assert serves == {(0, "container-0-request-0"), (1, "container-1-request-0")}


def test_an_init_container_uses_what_later_containers_hold():
    counts, serves = implied(container(2, init=True), container(3))
    assert counts == {"container-1-request-0": 3}
    assert serves == {(0, "container-1-request-0"), (1, "container-1-request-0")}


def test_an_init_container_adds_only_its_excess_request():
    counts, serves = implied(container(5, init=True), container(3))
    assert counts == {"container-0-request-0": 2, "container-1-request-0": 3}
    assert (0, "container-1-request-0") in serves


def test_the_largest_init_container_asks_for_all():
    counts, serves = implied(container(2, init=True), container(4, init=True), container(1))
    assert counts == {"container-1-request-0": 3, "container-2-request-0": 1}
    assert (0, "container-1-request-0") in serves


def test_a_sidecar_that_runs_already_keeps_its_devices():
    counts, _ = implied(container(2, init=True, sidecar=True), container(2, init=True), container(1))
    assert counts == {"container-0-request-0": 2, "container-1-request-0": 1, "container-2-request-0": 1}


def test_each_resource_has_requests_of_its_class():
    asking = ContainerRequest(requests=(("example.com/fast", 1000), ("gpu", 2000)))
    found = implied_claim((asking,), ("example.com/fast", "gpu"), BACKING, "default")
    assert [(each.device_class, each.count) for each in found.claim.requests] == [
        ("fast.example.com", 1),
        ("gpu.example.com", 2),
    ]
