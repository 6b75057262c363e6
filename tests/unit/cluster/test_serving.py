from types import SimpleNamespace

import anyio
import pytest

from kai.api.node import Node
from kai.api.pod import Pod
from kai.cluster.credentials import Source
from kai.cluster.port import Term
from kai.cluster.serving import lead, role_options
from tests.doubles.cluster import MemoryCluster

pytestmark = pytest.mark.anyio


class Leading:
    """A leadership that a test gives and takes."""

    def __init__(self):
        self.term = None
        self.epoch = 0
        self._changed = anyio.Event()

    def set(self, *, leads):
        self.epoch += leads
        self.term = Term(self.epoch, "us") if leads else None
        self._changed.set()
        self._changed = anyio.Event()

    async def begun(self):
        while self.term is None:
            await self._changed.wait()
        return self.term

    async def ended(self, term):
        while self.term == term:
            await self._changed.wait()


def connection(memory, leadership):
    refreshed = []

    async def refresh(*classes):
        refreshed.append(classes)

    memory.store.refresh = refresh
    api = SimpleNamespace(fenced=lambda term: f"fenced by {term.epoch}")
    watchers = [SimpleNamespace(watched=SimpleNamespace(cls=cls)) for cls in (Pod, Node)]
    made = SimpleNamespace(
        store=memory.store, api=api, clock=memory.clock, draw=None, leadership=leadership, watchers=watchers
    )
    return made, refreshed


async def test_work_begins_with_each_term_after_a_new_list_and_is_cancelled_with_it():
    memory, leadership, begun, ended = MemoryCluster(), Leading(), [], []
    made, refreshed = connection(memory, leadership)

    async def work(cluster):
        begun.append(cluster.api)
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(cluster.api)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lead, made, work)
        await memory.pass_time()
        assert begun == []
        leadership.set(leads=True)
        await memory.pass_time()
        assert (begun, ended, refreshed) == (["fenced by 1"], [], [(Pod, Node)])
        leadership.set(leads=False)
        await memory.pass_time()
        assert ended == ["fenced by 1"]
        leadership.set(leads=True)
        await memory.pass_time()
        assert (begun[1:], len(refreshed)) == (["fenced by 2"], 2)
        tasks.cancel_scope.cancel()


async def test_without_a_lease_work_goes_on_all_the_time():
    made, refreshed = connection(MemoryCluster(), None)
    given = []

    async def work(cluster):
        given.append(cluster)

    await lead(made, work)
    assert given == [made]
    assert refreshed == []


def test_a_role_watches_whole_kinds_as_itself():
    options = role_options("binder", (Pod, Node), Source(kubeconfig="here"), None)
    assert options.component == "binder"
    assert options.source.kubeconfig == "here"
    assert [(watched.cls, watched.is_whole) for watched in options.watched] == [(Pod, True), (Node, True)]
