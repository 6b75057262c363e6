import pytest

from kai.api.node import Node
from kai.api.plans import Get, List, Ref
from kai.api.pod import Pod
from kai.binder.reading import IndexedApi
from tests.doubles.cluster import MemoryCluster
from tests.unit.binder.clusters import node, pod

pytestmark = pytest.mark.anyio

LISTS = [
    List(cls=Pod, node="n1"),
    List(cls=Pod, node="n1", namespace="ns"),
    List(cls=Pod, node="unknown"),
    List(cls=Pod, labels={"runai-gpu-group": "g1"}),
    List(cls=Pod, labels={"runai-gpu-group": "g1", "app": "a"}),
    List(cls=Pod, labels={"runai-gpu-group/g2": "g2"}),
    List(cls=Pod, labels={"app": "a"}),
    List(cls=Pod, namespace="other"),
    List(cls=Pod),
    List(cls=Node),
    List(cls=Pod, node="n1", fresh=True),
    Get(ref=Ref(Pod, "a", "ns")),
]


@pytest.mark.parametrize("request_", LISTS, ids=str)
async def test_an_index_answers_as_a_walk_over_all_pods_does(request_):
    memory = MemoryCluster(
        node(),
        pod("a", nodeName="n1", labels={"runai-gpu-group": "g1", "app": "a"}),
        pod("b", nodeName="n1", labels={"runai-gpu-group": "g1"}),
        pod("c", "other", nodeName="n1", labels={"runai-gpu-group/g1": "g1", "runai-gpu-group/g2": "g2"}),
        pod("d", nodeName="n2", labels={"app": "a"}),
        pod("e"),
    )
    found = await IndexedApi(memory.api, memory.store).perform(request_)
    assert found == await memory.api.perform(request_)


async def test_a_fenced_one_stays_fenced():
    memory = MemoryCluster()
    indexed = IndexedApi(memory.api, memory.store)
    assert isinstance(indexed.fenced(None), IndexedApi)
