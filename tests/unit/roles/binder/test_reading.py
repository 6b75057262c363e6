import attrs
import pytest

from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.names import GRANTED
from kai.api.plans import Bind, Create, Get, List, Reason, Ref
from kai.roles.binder.sharers import SHARING, UNBOUND, UNGRANTED, BinderSettings, IndexedApi, swept_pods
from tests.doubles.cluster import MemoryCluster
from tests.unit.roles.binder.clusters import node, pod

pytestmark = pytest.mark.anyio

SWEPT = swept_pods(BinderSettings())

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
async def test_an_index_answers_like_a_walk_over_all_pods(request_):
    memory = MemoryCluster(
        node(),
        pod("a", nodeName="n1", labels={"runai-gpu-group": "g1", "app": "a"}),
        pod("b", nodeName="n1", labels={"runai-gpu-group": "g1"}),
        pod("c", "other", nodeName="n1", labels={"runai-gpu-group/g1": "g1", "runai-gpu-group/g2": "g2"}),
        pod("d", nodeName="n2", labels={"app": "a"}),
        pod("e"),
    )
    found = await IndexedApi(memory.api, memory.store, SWEPT).perform(request_)
    assert found == await memory.api.perform(request_)


@pytest.mark.parametrize(
    "request_",
    [Bind(ref=Ref(Pod, "p", "ns"), node="n1"), Create(ref=Ref(Pod, "r", "ns"), manifest=pod("r"), node="n1")],
    ids=["binding", "pod"],
)
async def test_binds_are_checked_against_the_nodes_present_pods(request_):
    memory = MemoryCluster(node(), pod(), pod("a", nodeName="n1"), pod("d", nodeName="n2"))
    asked = []

    def fits(_, pods):
        asked.append([each.metadata.name for each in pods])
        return False

    reply = await IndexedApi(memory.api, memory.store, SWEPT).perform(attrs.evolve(request_, fits=fits))
    assert (asked, reply.reason) == ([["a"]], Reason.CONFLICT)


async def test_a_fenced_one_stays_fenced():
    memory = MemoryCluster()
    indexed = IndexedApi(memory.api, memory.store, SWEPT)
    assert isinstance(indexed.fenced(None), IndexedApi)


@pytest.mark.parametrize(
    ("among", "names"),
    [
        (SHARING, ["granted", "labelled", "of-others", "waits-labelled"]),
        (UNBOUND, ["waits", "waits-labelled"]),
        (UNGRANTED, ["labelled", "runs", "unreadable"]),
    ],
)
async def test_a_sweep_reads_only_the_pods_it_needs(among, names):
    group = {"runai-gpu-group": "g1"}
    memory = MemoryCluster(
        node(),
        pod("granted", nodeName="n1", annotations={GRANTED: '{"queue":"q","gpus":["g1"]}'}),
        pod("granted-whole", nodeName="n1", annotations={GRANTED: '{"queue":"q"}'}),
        pod("unreadable", nodeName="n1", annotations={GRANTED: "{"}),
        pod("runs", nodeName="n1"),
        pod("ended", nodeName="n1", phase="Succeeded"),
        pod("labelled", nodeName="n1", labels=group),
        pod("of-others", nodeName="n1", labels=group, schedulerName="others"),
        pod("runs-for-others", nodeName="n1", schedulerName="others"),
        pod("waits"),
        pod("waits-labelled", labels=group),
        pod("waits-for-others", schedulerName="others"),
    )
    found = await IndexedApi(memory.api, memory.store, SWEPT).perform(List(cls=Pod, among=among))
    assert [each.metadata.name for each in found] == names
    everything = await memory.api.perform(List(cls=Pod, among=among))
    assert len(everything) == 11, "who has no such index answers with all of them"
