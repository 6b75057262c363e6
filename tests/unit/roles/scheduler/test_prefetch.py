"""What arrives is read at once, in portions, and never while a cycle is at work."""

from itertools import pairwise

import anyio

from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.caching.store import Watched, WatchedStore
from kai.roles.scheduler.wakeups import prefetch
from tests.doubles.virtual_time import VirtualClock
from tests.unit.cluster.assembled import in_virtual_time

KINDS = {"Pod": "v1", "Node": "v1", "PodGroup": "scheduling.run.ai/v2alpha2"}


def store_of_everything():
    return WatchedStore([Watched(cls=cls) for cls in (Pod, Node, PodGroup)], VirtualClock())


def put(store, cls, *names, version=1):
    kind = cls.__name__
    with store.taking():
        for name in names:
            metadata = {"namespace": "team", "name": name, "uid": name, "resourceVersion": str(version)}
            store.cache(cls).see({"apiVersion": KINDS[kind], "kind": kind, "metadata": metadata})


class Reading:
    """Remembers the portions that it is given."""

    def __init__(self):
        self.portions = []

    def __call__(self, arrived):
        self.portions.append([each.metadata.name for each in arrived])

    @property
    def names(self):
        return sorted(name for portion in self.portions for name in portion)


@in_virtual_time
async def test_only_arriving_pods_and_groups_are_read_ahead():
    store, reading = store_of_everything(), Reading()
    put(store, Pod, "old")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prefetch, store, reading, anyio.Lock())
        await anyio.sleep(0.1)
        put(store, Pod, "new")
        put(store, PodGroup, "group")
        put(store, Node, "node")
        await anyio.sleep(0.1)
        put(store, Pod, "old", version=2)
        await anyio.sleep(0.1)
        tasks.cancel_scope.cancel()
    assert reading.names == ["group", "new", "old"]


@in_virtual_time
async def test_prefetching_pauses_during_a_cycle():
    store, reading, in_use = store_of_everything(), Reading(), anyio.Lock()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prefetch, store, reading, in_use)
        await anyio.sleep(0.1)
        async with in_use:
            put(store, Pod, "stays", "goes")
            await anyio.sleep(0.1)
            put(store, Pod, "stays", version=2)
            store.take_end(Pod, ("team", "goes"), "goes")
            await anyio.sleep(0.1)
            assert reading.portions == []
        await anyio.sleep(0.1)
        tasks.cancel_scope.cancel()
    assert reading.portions == [["stays"]]


@in_virtual_time
async def test_many_objects_are_read_in_interruptible_portions():
    store, turns = store_of_everything(), []

    def read(arrived):
        turns.append(("read", len(list(arrived))))

    async def other():
        while True:
            await anyio.lowlevel.checkpoint()
            turns.append(("other", 0))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(prefetch, store, read, anyio.Lock())
        await anyio.sleep(0.1)
        put(store, Pod, *(f"p{number}" for number in range(250)))
        tasks.start_soon(other)
        while sum(count for _, count in turns) < 250:
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
    kinds = [kind for kind, _ in turns]
    reads = [at for at, kind in enumerate(kinds) if kind == "read"]
    assert [count for kind, count in turns if kind == "read"] == [100, 100, 50]
    assert all("other" in kinds[one:another] for one, another in pairwise(reads))


def test_only_the_newest_form_of_an_arrival_is_taken():
    store = store_of_everything()
    with store.arrivals(Pod) as arrivals:
        put(store, Pod, "a")
        put(store, Pod, "a", "b", version=2)
        assert sorted((each.metadata.name, each.metadata.resource_version) for each in arrivals.take(9)) == [
            ("a", "2"),
            ("b", "2"),
        ]
        assert arrivals.take(9) == []
    put(store, Pod, "c")
    assert arrivals.take(9) == []
