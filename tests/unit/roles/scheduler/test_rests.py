"""When a rest between cycles ends early, and what it leaves behind."""

import gc
from typing import TYPE_CHECKING

import anyio
import pytest

from kai.roles.scheduler.wakeups import AT_ONCE, Haste, IndependentPods, Rests
from tests.doubles import virtual_time
from tests.doubles.cluster import MemoryCluster
from tests.unit.intake import making

if TYPE_CHECKING:
    from kai.cluster.port import Store

APART = 3.0


async def rest(rests, known, seconds=60.0):
    """Return how long a rest took, and whether it was ended."""
    since = anyio.current_time()
    with rests.begun(known) as scope:
        await anyio.sleep(seconds)
    return anyio.current_time() - since, scope.cancel_called


def resting(scene):
    """Run a scene that is given rests and a function that lets a pod come."""

    async def run():
        memory = MemoryCluster()
        store: Store = memory.port.store
        rests = Rests(IndependentPods(store, "kai-scheduler"), Haste(APART), virtual_time.VirtualClock())
        numbers = iter(range(1000))

        def come():
            number = next(numbers)
            memory.server.add(making.group(f"g{number}", minMember=1))
            memory.server.add(making.pod(f"p{number}", group=f"g{number}"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(rests.run)
            await scene(rests, come)
            tasks.cancel_scope.cancel()

    virtual_time.run(run)


def later(tasks, seconds, come):
    async def wait():
        await anyio.sleep(seconds)
        come()

    tasks.start_soon(wait)


def test_an_arriving_independent_pod_ends_the_rest():
    async def scene(rests, come):
        async with anyio.create_task_group() as tasks:
            later(tasks, 2.0, come)
            assert await rest(rests, 0) == (pytest.approx(2.0, abs=0.01), True)

    resting(scene)


def test_an_unknown_earlier_pod_ends_the_rest_immediately():
    async def scene(rests, come):
        come()
        await anyio.sleep(0.1)
        assert await rest(rests, 0) == (pytest.approx(0.0, abs=0.01), True)
        assert await rest(rests, rests.pods.count) == (pytest.approx(60.0, abs=0.01), False)

    resting(scene)


def test_a_pod_between_two_rests_ends_the_second():
    async def scene(rests, come):
        assert await rest(rests, 0, 1.0) == (pytest.approx(1.0, abs=0.01), False)
        come()
        await anyio.sleep(0.1)
        assert await rest(rests, 0) == (pytest.approx(0.0, abs=0.01), True)

    resting(scene)


def test_only_so_many_rests_end_at_once():
    async def scene(rests, come):
        for _ in range(AT_ONCE):
            known = rests.pods.count
            come()
            assert (await rest(rests, known))[1]
        known = rests.pods.count
        come()
        assert await rest(rests, known, 1.0) == (pytest.approx(1.0, abs=0.01), False)
        seconds, is_ended = await rest(rests, known)
        assert is_ended
        assert 0.5 < seconds <= APART

    resting(scene)


def test_a_rest_leaves_nothing_to_the_collector():
    async def scene(rests, come):
        await rest(rests, 0, 0.1)
        gc.collect()
        gc.disable()
        try:
            for _ in range(100):
                await rest(rests, rests.pods.count, 0.1)
            assert gc.collect() < 100  # a task for each left forty objects
        finally:
            gc.enable()

    resting(scene)
