"""The collector looks now and then, and never while a cycle is at work."""

import anyio

from kai.api.collector import collect_young
from kai.cli.running.tidying import tidying
from tests.doubles.virtual_time import VirtualClock
from tests.unit.cluster.assembled import in_virtual_time


class Resting:
    """What is used of a cluster; remembers when something was computed, and what."""

    def __init__(self):
        self.clock, self.cpu, self.computed = VirtualClock(), self, []

    async def run(self, function):
        self.computed.append((anyio.current_time(), function))


@in_virtual_time
async def test_the_collector_looks_twice_a_minute():
    cluster, begun = Resting(), anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tidying, cluster, anyio.Lock())
        await anyio.sleep(100.0)
        tasks.cancel_scope.cancel()
    assert {function for _, function in cluster.computed} == {collect_young}
    assert [round(at - begun) for at, _ in cluster.computed] == [30, 60, 90]


@in_virtual_time
async def test_it_does_not_look_while_a_cycle_is_at_work():
    cluster, in_use = Resting(), anyio.Lock()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tidying, cluster, in_use)
        async with in_use:
            await anyio.sleep(1000.0)
            assert not cluster.computed
        await anyio.sleep(1.0)
        assert len(cluster.computed) == 1
        tasks.cancel_scope.cancel()
