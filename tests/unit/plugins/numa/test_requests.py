import numpy as np
import pytest

from kai.facts.model.axis import ResourceAxis
from kai.facts.model.pod import ContainerRequest, Shape
from kai.plugins.numa.plugin import devices_of, is_guaranteed, is_pinned, read_requests

AXIS = ResourceAxis.of(["example.com/nic"])
FIXED = {"cpu": 2000, "memory": 100}


def container(requests=FIXED, **kind):
    return ContainerRequest(requests=tuple(requests.items()), **kind)


def shape_of(*containers, guaranteed=True, **request):
    return Shape(request=tuple(request.items()), containers=containers, guaranteed=guaranteed)


def read(*containers, guaranteed=True, **request):
    shape = shape_of(*containers, guaranteed=guaranteed, **request)
    return read_requests(shape, AXIS, AXIS.vector(dict(shape.request)))


@pytest.mark.parametrize(
    ("containers", "guaranteed"),
    [
        ((), False),
        ((container(),), True),
        ((container(), container(init=True)), True),
        ((container({"cpu": 2000}),), False),
        ((container(), container({"gpu": 1000})), False),
    ],
)
def test_guaranteed_pods_request_cpu_and_memory_in_all_containers(containers, guaranteed):
    assert is_guaranteed(shape_of(*containers)) == guaranteed
    assert not is_guaranteed(shape_of(*containers, guaranteed=False))


def test_cpu_and_memory_are_pinned_and_devices_are_not():
    assert [is_pinned(name) for name in ("cpu", "memory", "hugepages-2Mi", "gpu")] == [True, True, True, False]


def test_a_pods_peak_covers_init_containers_and_sidecars():
    sidecar = container({"cpu": 1000, "memory": 1}, init=True, sidecar=True)
    long = container({"cpu": 8000, "memory": 1}, init=True)
    brief = container({"cpu": 2000, "memory": 1}, init=True)
    main = container({"cpu": 4000, "memory": 1})
    assert read(sidecar, long, main).pod[0, 0] == 9000
    assert read(sidecar, brief, main, main).pod[0, 0] == 9000
    requests = read(sidecar, brief, main)
    assert [list(requests.together[:, 0]), list(requests.in_turn[:, 0])] == [[1000, 4000], [2000]]


def test_only_whole_cpus_of_guaranteed_pods_are_pinned():
    fraction = container({"cpu": 1500, "memory": 1})
    assert list(read(container(), fraction).together[:, 0]) == [2000, 0]
    assert read(container(), fraction).pod[0, 0] == 2000
    assert read(container({"cpu": 2000, "memory": 1}), guaranteed=False).pod[0, 0] == 0


def test_pods_that_are_not_guaranteed_align_devices_only():
    aligned = read(container(), guaranteed=False).aligned
    assert dict(zip(AXIS.names, map(bool, aligned), strict=True)) == {
        "cpu": False,
        "memory": False,
        "gpu": True,
        "pods": True,
        "example.com/nic": True,
    }


def test_shared_and_claimed_gpus_are_outside_the_request():
    assert read(container(), gpu=500).pod[0, 2] == 0
    assert read(container({**FIXED, "gpu": 2000}), gpu=4000).pod[0, 2] == 2000


def test_overhead_counts_except_for_cpu_and_gpu():
    pod = read(container(), memory=150, cpu=2100).pod
    assert list(pod[0, :2]) == [2000, 150]


def test_devices_are_all_requests_besides_cpu_and_memory():
    devices = devices_of(shape_of(cpu=1, memory=1, gpu=500, **{"example.com/nic": 1000}), AXIS)
    assert list(np.array(AXIS.names)[devices]) == ["gpu", "example.com/nic"]
