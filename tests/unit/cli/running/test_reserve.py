"""What a reservation pod does: ask the driver which GPU it has, write that down, hold it."""

import anyio
import pytest

from kai.api.plans import Reason, Refusal
from kai.basics.errors import ConfigError, InputError
from kai.cli.running.identity import own_image
from kai.cli.running.reserve import hold, visible_gpu
from tests.doubles.virtual_time import VirtualClock, run


class Driver:
    """NVML, as far as it is asked."""

    def __init__(self, devices=("GPU-1",), status=0):
        self.devices, self.status, self.is_closed = devices, status, False

    def nvmlInit_v2(self):  # noqa: N802 - NVML's name
        return self.status

    def nvmlShutdown(self):  # noqa: N802 - NVML's name
        self.is_closed = True

    def nvmlDeviceGetCount_v2(self, count):  # noqa: N802 - NVML's name
        count._obj.value = len(self.devices)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index, handle):  # noqa: N802 - NVML's name
        handle._obj.value = index.value + 1
        return 0

    def nvmlDeviceGetUUID(self, handle, text, length):  # noqa: N802 - NVML's name
        text.value = self.devices[handle.value - 1].encode()[: length.value]
        return 0


def test_the_one_gpu_of_the_container_is_named():
    driver = Driver()
    assert visible_gpu(lambda _: driver) == "GPU-1"
    assert driver.is_closed


@pytest.mark.parametrize("devices", [(), ("GPU-1", "GPU-2")])
def test_none_or_several_gpus_are_an_error(devices):
    with pytest.raises(InputError, match=f"reserve: GPUs: found '?{len(devices)}'?, expected exactly one GPU"):
        visible_gpu(lambda _: Driver(devices))


def test_a_driver_that_fails_or_is_missing_is_named():
    with pytest.raises(InputError, match="reserve: nvmlInit: found 'NVML error 9', expected 0"):
        visible_gpu(lambda _: Driver(status=9))

    def missing(name):
        raise OSError(f"{name}: cannot open shared object file")

    with pytest.raises(InputError, match="libnvidia-ml"):
        visible_gpu(missing)


def test_a_program_without_its_pod_name_is_refused():
    with pytest.raises(ConfigError, match="found no POD_NAME and POD_NAMESPACE"):
        anyio.run(hold, "GPU-1", {})


class Cluster:
    """Answers with what it was given, one after the other, and with the last one from then on."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), []
        self.api, self.clock = self, VirtualClock()

    async def perform(self, request):
        self.asked.append((request.kind, request.namespace, request.name))
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


OURS = {"POD_NAME": "a", "POD_NAMESPACE": "b"}
POD = {"spec": {"containers": [{"image": "kai:1"}, {"image": "other"}]}}
AWAY, FORBIDDEN, GONE = (
    Refusal(reason=reason, message="no") for reason in (Reason.UNAVAILABLE, Reason.REJECTED, Reason.NOT_FOUND)
)


def test_a_pod_reads_its_own_image():
    cluster = Cluster(POD)
    assert anyio.run(own_image, cluster, OURS) == "kai:1"
    assert cluster.asked == [("Pod", "b", "a")]


@pytest.mark.parametrize("refusals", [[AWAY] * 20, [FORBIDDEN] * 4, [FORBIDDEN] * 4 + [AWAY] + [FORBIDDEN] * 4])
def test_the_own_image_is_asked_for_until_answered(refusals):
    cluster = Cluster(*refusals, POD)
    assert run(lambda: own_image(cluster, OURS)) == "kai:1"


@pytest.mark.parametrize(("refusal", "asked"), [(FORBIDDEN, 5), (GONE, 1)])
def test_a_forbidden_own_image_stays_unknown(refusal, asked):
    cluster = Cluster(refusal)
    assert run(lambda: own_image(cluster, OURS)) == ""
    assert len(cluster.asked) == asked


def test_outside_a_pod_no_image_is_requested():
    cluster = Cluster(None)
    assert anyio.run(own_image, cluster, {}) == ""
    assert cluster.asked == []
