from types import SimpleNamespace

import anyio
import pytest

from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.cli.running.lifetime import work_in_terms
from kai.cli.running.roles import Role
from kai.cluster.election.leading import SoleLeadership
from kai.cluster.port import Term
from tests.doubles.cluster import MemoryCluster

pytestmark = pytest.mark.anyio


class Leading:
    """A leadership that a test gives and takes."""

    has_rivals = True

    def __init__(self):
        self.term = None
        self.epoch = 0
        self._changed = anyio.Event()

    def set(self, *, leads):
        self.epoch += leads
        self.term = Term(self.epoch, "us") if leads else None
        self._changed.set()
        self._changed = anyio.Event()

    def holds(self, term):
        return self.term == term

    async def begun(self):
        while self.term is None:
            await self._changed.wait()
        return self.term

    async def ended(self, term):
        while self.term == term:
            await self._changed.wait()


class Stage:
    """A role on a connection that notes when it works, and what is listed anew before."""

    def __init__(self, memory, leadership):
        self.begun, self.ended, self.refreshed = [], [], []
        memory.store.refresh = self._refresh
        self.role = Role(name="binder", watched=(Pod, Node), work=self._work)
        self.connection = SimpleNamespace(
            store=memory.store,
            api=SimpleNamespace(fenced=lambda term: f"fenced by {term.epoch}"),
            clock=memory.clock,
            draw=None,
            connectivity=None,
            cpu=None,
            leadership=leadership,
        )

    async def _refresh(self, *classes):
        self.refreshed.append(classes)

    async def _work(self, cluster):
        self.begun.append(cluster.api)
        try:
            await anyio.sleep_forever()
        finally:
            self.ended.append(cluster.api)


async def test_each_term_starts_work_anew_after_a_list():
    memory, leadership = MemoryCluster(), Leading()
    stage = Stage(memory, leadership)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work_in_terms, stage.role, stage.connection, leadership)
        await memory.pass_time(2.0)
        assert stage.begun == []
        leadership.set(leads=True)
        await memory.pass_time(2.0)
        assert (stage.begun, stage.ended) == (["fenced by 1"], [])
        assert stage.refreshed == [(Pod, Node, BindRequest)]
        leadership.set(leads=False)
        await memory.pass_time(2.0)
        assert stage.ended == ["fenced by 1"]
        leadership.set(leads=True)
        await memory.pass_time(2.0)
        assert (stage.begun[1:], len(stage.refreshed)) == (["fenced by 2"], 2)
        tasks.cancel_scope.cancel()


async def test_a_term_that_ends_while_listing_starts_no_work():
    memory, leadership = MemoryCluster(), Leading()
    stage = Stage(memory, leadership)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work_in_terms, stage.role, stage.connection, leadership)
        leadership.set(leads=True)
        await memory.pass_time(0.0)
        leadership.set(leads=False)
        await memory.pass_time(2.0)
        assert stage.begun == []
        tasks.cancel_scope.cancel()


async def test_without_a_lease_work_starts_once_and_never_ends():
    memory = MemoryCluster()
    stage = Stage(memory, None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work_in_terms, stage.role, stage.connection, SoleLeadership("us"))
        await memory.pass_time(2.0)
        assert (len(stage.begun), stage.refreshed, stage.ended) == (1, [], [])
        tasks.cancel_scope.cancel()
