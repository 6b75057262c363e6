import numpy as np
import pytest

from kai.model.axis import ResourceAxis
from kai.model.pod import Constraints, ContainerRequest, Shape
from kai.plugins.numa.requests import devices_of, is_guaranteed, is_pinned, read_requests

AXIS = ResourceAxis.of(["example.com/nic"])
FIXED = {"cpu": 2000, "memory": 100}


def container(requests=FIXED, limits=None, **kind):
    limits = requests if limits is None else limits
    return ContainerRequest(requests=tuple(requests.items()), limits=tuple(limits.items()), **kind)


def shape_of(*containers, **request):
    return Shape(request=tuple(request.items()), constraints=Constraints(containers=containers))


def read(*containers, **request):
    shape = shape_of(*containers, **request)
    return read_requests(shape, AXIS, AXIS.vector(dict(shape.request)))


@pytest.mark.parametrize(
    ("containers", "guaranteed"),
    [
        ((), False),
        ((container(),), True),
        ((container(), container(init=True)), True),
        ((container(limits={"cpu": 3000, "memory": 100}),), False),
        ((container({"cpu": 2000}),), False),
        ((container(), container({"gpu": 1000})), False),
    ],
)
def test_guaranteed_pods_have_limits_equal_to_requests(containers, guaranteed):
    assert is_guaranteed(shape_of(*containers)) == guaranteed


def test_cpu_and_memory_are_pinned_and_devices_are_not():
    assert [is_pinned(name) for name in ("cpu", "memory", "hugepages-2Mi", "gpu")] == [True, True, True, False]


def test_a_pod_peaks_at_an_init_container_or_at_what_runs_side_by_side():
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
    burstable = container({"cpu": 2000, "memory": 1}, limits={})
    assert read(burstable).pod[0, 0] == 0


def test_pods_that_are_not_guaranteed_align_devices_only():
    aligned = read(container(limits={})).aligned
    assert dict(zip(AXIS.names, map(bool, aligned), strict=True)) == {
        "cpu": False,
        "memory": False,
        "gpu": True,
        "pods": True,
        "example.com/nic": True,
    }


def test_shared_and_claimed_gpus_are_no_part_of_the_request():
    assert read(container(), gpu=500).pod[0, 2] == 0
    assert read(container({**FIXED, "gpu": 2000}), gpu=4000).pod[0, 2] == 2000


def test_overhead_is_part_of_the_whole_pod_for_all_but_cpu_and_gpu():
    pod = read(container(), memory=150, cpu=2100).pod
    assert list(pod[0, :2]) == [2000, 150]


def test_devices_are_what_a_pod_asks_for_besides_cpu_and_memory():
    devices = devices_of(shape_of(cpu=1, memory=1, gpu=500, **{"example.com/nic": 1000}), AXIS)
    assert list(np.array(AXIS.names)[devices]) == ["gpu", "example.com/nic"]
