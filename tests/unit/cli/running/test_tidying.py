"""The collector looks now and then, and never while a cycle is at work."""

from contextlib import asynccontextmanager

import anyio
import attrs
from prometheus_client import CollectorRegistry

from kai.api.memory import collect_young, trim
from kai.cli.running import process
from kai.cli.running.flags import FLAGS, ROLES, TOGETHER, read_flags
from kai.cli.running.lifetime import tidying
from kai.cli.running.process import Process
from tests.doubles.cpu import InlineCpu
from tests.doubles.http_server import HttpServer
from tests.doubles.virtual_time import VirtualClock
from tests.unit.cluster.assembled import in_virtual_time, port


class Resting:
    """What is used of a cluster; remembers when something was computed, and what."""

    def __init__(self):
        self.clock, self.cpu, self.computed = VirtualClock(), self, []

    async def run(self, function):
        self.computed.append((anyio.current_time(), function))


async def tidied(seconds):
    """Return what was computed, and after how many seconds each time."""
    cluster, begun = Resting(), anyio.current_time()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tidying, cluster, anyio.Lock())
        await anyio.sleep(seconds)
        tasks.cancel_scope.cancel()
    return [(round(at - begun), function) for at, function in cluster.computed]


@in_virtual_time
async def test_the_collector_looks_twice_a_minute():
    assert await tidied(100.0) == [(30, collect_young), (60, collect_young), (90, collect_young)]


@in_virtual_time
async def test_memory_is_given_back_every_five_minutes():
    assert [at for at, function in await tidied(1000.0) if function is trim] == [300, 600, 900]


@in_virtual_time
async def test_tidying_waits_until_no_cycle_is_running():
    cluster, in_use = Resting(), anyio.Lock()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(tidying, cluster, in_use)
        async with in_use:
            await anyio.sleep(1000.0)
            assert not cluster.computed
        await anyio.sleep(1.0)
        assert len(cluster.computed) == 1
        tasks.cancel_scope.cancel()


@in_virtual_time
async def test_a_process_with_the_scheduler_has_it_look(monkeypatch):
    """What the process is connected to, listens on and is ended by is not of interest here."""
    looks, begun = [], anyio.current_time()

    @asynccontextmanager
    async def connected(options):
        yield attrs.evolve(port(HttpServer(), watched=options.watched), cpu=InlineCpu())

    async def silent(_address, _routes, *, task_status):
        task_status.started()
        await anyio.sleep_forever()

    async def after_a_while(scope, _leave):
        await anyio.sleep(100.0)
        scope.cancel()

    monkeypatch.setattr("anyio.to_thread.run_sync", InlineCpu().run)
    monkeypatch.setattr(process, "connect", connected)
    monkeypatch.setattr(process, "listen", silent)
    monkeypatch.setattr(process, "end_on_signal", after_a_while)
    monkeypatch.setattr("kai.cli.running.lifetime.collect_young", lambda: looks.append(anyio.current_time() - begun))
    given = read_flags(("scheduler", "--leader-elect=false"), FLAGS, ROLES, TOGETHER)
    await attrs.evolve(Process.of(given, {}), registry=CollectorRegistry()).run()
    assert [round(at) for at in looks] == [30, 60, 90]
