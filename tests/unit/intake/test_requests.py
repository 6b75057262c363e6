import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.model.pod import GpuKind, Shape
from kai.facts.model.units import LARGEST_AMOUNT, MOST_INSTANCES, amounts
from kai.intake.requests import MOST_DEVICES, MOST_MEMORY, hundredths
from tests.unit.intake.making import pod, taken


def shape_of(manifest) -> Shape:
    return taken(manifest).shapes[0]


def request_of(manifest) -> dict[str, int]:
    return dict(shape_of(manifest).request)


def container(**requests):
    return {"resources": {"requests": requests}}


def test_requests_count_millicores_and_bytes_and_one_pod():
    assert request_of(pod("a", requests={"cpu": "1500m", "memory": "1Ki"})) == {"cpu": 1500, "memory": 1024, "pods": 1}


def test_a_pod_without_requests_counts_one_pod():
    assert request_of(pod("a")) == {"pods": 1}


@pytest.mark.parametrize(
    ("resource", "text", "axis", "amount"),
    [
        ("nvidia.com/gpu", "2", "gpu", 2000),
        ("amd.com/gpu", "1", "gpu", 1000),
        ("example.com/gpu", "1", "gpu", 1000),
        ("nvidia.com/mig-1g.10gb", "3", "nvidia.com/mig-1g.10gb", 3),
        ("ephemeral-storage", "1Ki", "ephemeral-storage", 1024),
        ("example.com/nic", "2", "example.com/nic", 2000),
        ("hugepages-2Mi", "4Mi", "hugepages-2Mi", 4 * 2**20),
    ],
)
def test_each_resource_has_its_unit_on_the_axis(resource, text, axis, amount):
    assert request_of(pod("a", requests={resource: text}))[axis] == amount


def test_containers_are_summed():
    spec = {"containers": [container(cpu="1"), container(cpu="2")]}
    assert request_of(pod("a", spec=spec))["cpu"] == 3000


def test_a_large_init_container_raises_the_request():
    spec = {"containers": [container(cpu="1", memory="2Gi")], "initContainers": [container(cpu="4", memory="1Gi")]}
    assert request_of(pod("a", spec=spec)) == {"cpu": 4000, "memory": 2 * 2**30, "pods": 1}


def test_sidecars_add_to_containers_and_later_init_containers():
    sidecar = {**container(cpu="1"), "restartPolicy": "Always"}
    spec = {"containers": [container(cpu="1")], "initContainers": [sidecar, container(cpu="5")]}
    assert request_of(pod("a", spec=spec))["cpu"] == 6000
    spec["initContainers"] = [container(cpu="5"), sidecar]
    assert request_of(pod("a", spec=spec))["cpu"] == 5000


def test_overhead_comes_on_top_but_not_for_gpus():
    spec = {"containers": [container(cpu="1")], "overhead": {"cpu": "250m", "nvidia.com/gpu": "1"}}
    assert request_of(pod("a", spec=spec)) == {"cpu": 1250, "pods": 1}


def test_a_limit_replaces_a_missing_request():
    spec = {"containers": [{"resources": {"limits": {"cpu": "2", "nvidia.com/gpu": "1"}, "requests": {"cpu": "1"}}}]}
    assert request_of(pod("a", spec=spec)) == {"cpu": 1000, "gpu": 1000, "pods": 1}


def test_whole_gpus_are_a_request_of_their_own_kind():
    gpu = shape_of(pod("a", requests={"nvidia.com/gpu": "2"})).gpu
    assert (gpu.kind, gpu.shared) == (GpuKind.WHOLE, False)


def test_a_fraction_counts_in_hundredths_per_device():
    made = pod("a", annotations={"gpu-fraction": "0.333", "gpu-fraction-num-devices": "3"})
    gpu = shape_of(made).gpu
    assert (gpu.kind, gpu.portion, gpu.devices) == (GpuKind.FRACTION, 0.333, 3)
    assert request_of(made)["gpu"] == 33 * 3 * 10


def test_a_gpu_memory_request_has_no_gpu_amount_unplaced():
    made = pod("a", annotations={"gpu-memory": "5000"})
    assert shape_of(made).gpu.kind == GpuKind.MEMORY
    assert shape_of(made).gpu.memory == 5000
    assert "gpu" not in request_of(made)


def test_a_fraction_counts_before_memory_and_before_whole_gpus():
    made = pod("a", requests={"nvidia.com/gpu": "1"}, annotations={"gpu-fraction": "0.5", "gpu-memory": "100"})
    assert shape_of(made).gpu.kind == GpuKind.FRACTION
    assert request_of(made)["gpu"] == 500


@pytest.mark.parametrize("text", ["", "half", "0", "-0.5", "1.5", "NaN", " 0.5", "1_0"])
def test_a_fraction_that_is_none_is_passed_over(text):
    assert shape_of(pod("a", annotations={"gpu-fraction": text})).gpu.kind == GpuKind.NONE


@pytest.mark.parametrize("text", ["", "many", "0", "-5", "1.5", "10Gi"])
def test_an_invalid_gpu_memory_amount_is_ignored(text):
    assert shape_of(pod("a", annotations={"gpu-memory": text})).gpu.kind == GpuKind.NONE


@pytest.mark.parametrize("text", ["", "two", "0", "-1"])
def test_an_invalid_number_of_devices_counts_as_one(text):
    made = pod("a", annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": text})
    assert shape_of(made).gpu.devices == 1


def test_absurd_device_counts_and_memory_amounts_are_capped():
    fraction = shape_of(pod("a", annotations={"gpu-fraction": "1", "gpu-fraction-num-devices": "4000000000"})).gpu
    memory = shape_of(pod("a", annotations={"gpu-memory": "9000000000000000000"})).gpu
    assert (fraction.devices, memory.memory) == (MOST_DEVICES, MOST_MEMORY)


def test_mig_profiles_are_a_kind_of_their_own():
    shape = shape_of(pod("a", requests={"nvidia.com/mig-1g.10gb": "1"}))
    assert (shape.gpu.kind, shape.gpu.legacy_mig) == (GpuKind.MIG, False)


def test_an_annotation_named_like_a_profile_marks_legacy_mig():
    assert shape_of(pod("a", annotations={"nvidia.com/mig-1g.10gb": "1"})).gpu.legacy_mig


def test_an_absurd_request_is_capped_within_64_bits():
    shape = shape_of(pod("a", spec={"containers": [container(memory="8E")] * 3}))
    assert dict(shape.request)["memory"] == LARGEST_AMOUNT


def test_absurd_slice_counts_stay_within_64_bits():
    profiles = {f"nvidia.com/mig-99g.{memory}gb": "9000000000000000" for memory in range(64)}
    snapshot = taken(pod("a", spec={"containers": [container(**profiles)] * 2}))
    assert set(dict(snapshot.shapes[0].request).values()) == {1, MOST_INSTANCES}
    assert (snapshot.requests @ snapshot.axis.gpu_weights()).tolist() == [64 * 99_000 * MOST_INSTANCES]


@given(st.integers(1, 100))
def test_a_portion_of_whole_hundredths_keeps_them(hundred):
    assert hundredths(hundred / 100) == hundred


def test_several_kinds_of_gpu_add_up():
    assert amounts((("nvidia.com/gpu", "1"), ("amd.com/gpu", "2"))) == {"gpu": 3000}


@pytest.mark.parametrize("text", ["nan", "inf", "1.5", " 0.5", "٣", "-0.5", "abc", "0", "", "1e-9", "0.004"])
def test_a_fraction_that_no_gpu_can_give_is_refused(text):
    refusal = shape_of(pod("a", annotations={"gpu-fraction": text})).gpu.refusal
    assert refusal == f'metadata.annotations["gpu-fraction"]: found "{text}", expected a number from 0.01 to 1'


@pytest.mark.parametrize(
    ("annotations", "found"),
    [
        ({"gpu-memory": "-5"}, 'metadata.annotations["gpu-memory"]: found "-5", expected a positive number of MiB'),
        ({"gpu-memory": "x"}, 'metadata.annotations["gpu-memory"]: found "x", expected a positive number of MiB'),
        (
            {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "0"},
            'metadata.annotations["gpu-fraction-num-devices"]: found "0", expected a positive number of GPUs',
        ),
    ],
)
def test_impossible_gpu_memory_and_device_counts_are_refused(annotations, found):
    assert shape_of(pod("a", annotations=annotations)).gpu.refusal == found


def test_mixing_partial_and_whole_gpus_is_refused():
    both = pod("a", annotations={"gpu-fraction": "0.5"}, requests={"nvidia.com/gpu": "1"})
    assert "found a part of a GPU in annotations and whole ones in containers" in shape_of(both).gpu.refusal
    broken = shape_of(pod("a", requests={"nvidia.com/gpu": "1.5"})).gpu.refusal
    assert broken.startswith("spec.containers: found 1.5 GPUs, expected whole ones")


@pytest.mark.parametrize("text", ["0.01", "0.5", "1", "1e-1"])
def test_a_possible_gpu_fraction_is_accepted(text):
    assert shape_of(pod("a", annotations={"gpu-fraction": text})).gpu.refusal == ""


def test_a_held_share_below_a_hundredth_counts_one_hundredth():
    assert request_of(pod("a", annotations={"gpu-fraction": "0.004"}))["gpu"] == 10


def test_thousands_of_capped_requests_sum_within_64_bits():
    asked = amounts((("memory", "9007199254740992"), ("cpu", "9e15")))
    held = np.array([asked["memory"], asked["cpu"]], np.int64) * np.int64(32_767)
    assert held.tolist() == [32_767 * LARGEST_AMOUNT] * 2
