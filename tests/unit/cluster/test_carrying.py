import anyio
import pytest

from kai.api.kubernetes.pod import Pod
from kai.api.plans import Lock, Now, Ref, Unlock, find, locked
from kai.cluster.work import KeyRing, carry_out
from tests.doubles.api_server import ApiServer
from tests.unit.cluster.assembled import in_virtual_time

POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "team"}}


class Answering:
    """Answers requests from a server in memory, after a while."""

    def __init__(self, seconds=1.0):
        self.server = ApiServer([POD])
        self.seconds = seconds

    async def perform(self, request):
        await anyio.sleep(self.seconds)
        return self.server.perform(request)


@in_virtual_time
async def test_a_plan_is_carried_out_and_its_result_returned():
    found = await carry_out(find(Ref(Pod, "p", "team")), Answering(), KeyRing())
    assert found.metadata.name == "p"


def stepping(key, log, name):
    def inside():
        log.append(f"{name} begins")
        yield Now()
        log.append(f"{name} ends")

    return locked(key, inside())


@in_virtual_time
async def test_a_key_is_held_by_one_plan_only():
    keys, log, api = KeyRing(), [], Answering()
    async with anyio.create_task_group() as tasks:
        for name, key in (("a", "k"), ("b", "k"), ("c", "other")):
            tasks.start_soon(carry_out, stepping(key, log, name), api, keys)
    assert log.index("a ends") < log.index("b begins")
    assert log.index("c begins") < log.index("a ends")
    assert keys == KeyRing()


@in_virtual_time
async def test_a_cancelled_plan_releases_its_keys():
    keys, log = KeyRing(), []

    def stuck():
        yield Lock(key="k")
        yield Now()
        yield Unlock(key="k")

    with anyio.move_on_after(0.5):
        await carry_out(stuck(), Answering(10.0), keys)
    await carry_out(stepping("k", log, "next"), Answering(), keys)
    assert log == ["next begins", "next ends"]
    assert keys == KeyRing()


@in_virtual_time
async def test_whoever_stops_waiting_for_a_key_leaves_no_trace():
    keys, log = KeyRing(), []
    await keys.hold("k")
    with anyio.move_on_after(1.0):
        await carry_out(stepping("k", log, "late"), Answering(), keys)
    keys.free("k")
    assert keys == KeyRing()
    assert log == []


@in_virtual_time
async def test_a_plans_exception_propagates_and_frees_its_keys():
    keys = KeyRing()

    def failing():
        yield Lock(key="k")
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        await carry_out(failing(), Answering(), keys)
    assert keys == KeyRing()
