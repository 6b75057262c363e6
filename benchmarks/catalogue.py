"""List every workload that is measured.

``w0`` to ``w10`` repeat a series that was measured on KAI-Scheduler (main, commit d5bc503a, Go 1.26.8, 2 vCPU AMD
EPYC, in-process, writes answered by a stub); the peer figures are of that series. The others add sizes at which
further published figures exist. There is no ``w8``.
"""

from collections.abc import Iterable
from itertools import chain

from attrs import evolve

from benchmarks.devices import Devices
from benchmarks.workload import (
    RACK_LABEL,
    ZONE_LABEL,
    Expected,
    Nodes,
    Peer,
    Pending,
    QueueShape,
    Running,
    Workload,
)

FOUR = ("queue-0", "queue-1", "queue-2", "queue-3")


def four_queues(gpus: int) -> tuple[QueueShape, ...]:
    """Share ``gpus`` between two departments with two leaves each."""
    half, quarter = gpus // 2, gpus // 4
    return (
        QueueShape("dept-a", gpu_quota=half),
        QueueShape("dept-b", gpu_quota=half),
        QueueShape("queue-0", "dept-a", quarter),
        QueueShape("queue-1", "dept-a", quarter),
        QueueShape("queue-2", "dept-b", quarter),
        QueueShape("queue-3", "dept-b", quarter),
    )


def _departments(departments: int, leaves: int, leaf_quota: int) -> tuple[QueueShape, ...]:
    """Deal ``leaves`` in turn to ``departments``, each of which has the sum of its leaves' quotas."""
    department_quota = leaves // departments * leaf_quota
    tops = tuple(QueueShape(f"dept-{index}", gpu_quota=department_quota) for index in range(departments))
    rest = tuple(QueueShape(f"queue-{index}", f"dept-{index % departments}", leaf_quota) for index in range(leaves))
    return tops + rest


def _levels(counts: tuple[int, ...], leaf_quota: int, weights: tuple[int, ...] = (1,)) -> tuple[QueueShape, ...]:
    """Make a tree of queues: ``counts`` of them on each level, top first, dealt in turn to those of the level above.

    The leaves are called ``queue-0`` and so on; each queue above has the sum of the quotas beneath it. With several
    ``weights``, queues of a level have these in turn, and each queue above has the quota of an equal part of the
    leaves, rounded down.
    """
    quotas = [leaf_quota] * counts[-1]
    levels: list[tuple[QueueShape, ...]] = []
    for depth in reversed(range(len(counts))):
        name, above = "queue" if depth == len(counts) - 1 else f"level-{depth}", counts[depth - 1] if depth else 0
        parents = [f"level-{depth - 1}-{index % above}" if above else "" for index in range(counts[depth])]
        levels.insert(
            0,
            tuple(
                QueueShape(f"{name}-{i}", p, quota, weights[i % len(weights)])
                for i, (p, quota) in enumerate(zip(parents, quotas, strict=True))
            ),
        )
        part = leaf_quota * (counts[-1] // max(1, above))
        quotas = [part if len(weights) > 1 else sum(quotas[index::above]) for index in range(above)]
    return tuple(queue for level in levels for queue in level)


def _two_queues(first_quota: int, second_quota: int) -> tuple[QueueShape, ...]:
    """Put two leaves without weight beneath one unlimited department."""
    return (
        QueueShape("default"),
        QueueShape("queue-0", "default", first_quota, weight=0),
        QueueShape("queue-1", "default", second_quota, weight=0),
    )


def _leaves(first: int, past: int) -> tuple[str, ...]:
    return tuple(f"queue-{index}" for index in range(first, past))


def _fill(id_: str, nodes: int, pending: Pending, peer_ms: tuple[float, float] | None) -> Workload:
    """Make a workload in which an empty cluster takes everything that waits."""
    cluster = Nodes(nodes)
    shape = f"{pending.groups:,} x 1 GPU" if pending.pods == 1 else f"{pending.groups:,} gangs of {pending.pods}"
    return Workload(
        id=id_,
        title=f"{nodes:,} nodes, {shape}",
        nodes=cluster,
        queues=four_queues(cluster.total_gpus),
        pending=pending,
        expected=Expected(placed=pending.total_pods),
        peer=Peer(peer_ms) if peer_ms else None,
    )


def _full(id_: str, nodes: int, pending: Pending | None, peer: Peer | None, title: str) -> Workload:
    """Make a workload in which every GPU is taken, every queue has its fair share, and nothing may move."""
    cluster = Nodes(nodes)
    return Workload(
        id=id_,
        title=title,
        nodes=cluster,
        queues=four_queues(cluster.total_gpus),
        running=Running(cluster.total_gpus, FOUR),
        pending=pending,
        expected=Expected(),
        peer=peer,
    )


def _fills() -> Iterable[Workload]:
    yield _fill("w0", 100, Pending(800, FOUR), None)
    yield _fill("w1", 500, Pending(4000, FOUR), (4148, 4294))
    yield _fill("w2", 1000, Pending(1000, FOUR, 8), (12435, 14854))
    yield _fill("w3", 1000, Pending(125, FOUR, 64), (14075, 16634))
    yield _fill("w4a", 5000, Pending(500, FOUR, 8), (39939, 39939))
    yield _fill("w4e", 5000, Pending(4000, FOUR), (41743, 41743))
    yield _fill("fill-10k", 10000, Pending(50000, FOUR), None)


def _saturated() -> Iterable[Workload]:
    hopeless = Pending(4000, FOUR)
    small = _full("w1b", 500, hopeless, Peer((12639, 12639)), "500 full nodes, 4,000 hopeless x 1 GPU")
    unfinished = Peer((240000, 240000), note="stopped after 240 s, not finished")
    large = _full("w4c", 5000, hopeless, unfinished, "5,000 full nodes, 4,000 hopeless x 1 GPU")
    for workload in (small, large):
        yield workload
        title = f"{workload.title}, known; 100 pods updated"
        yield evolve(workload, id=f"{workload.id}-known", title=title, updates=100, stays=True)
    yield _full("w4d", 5000, None, Peer((1674, 1998)), "5,000 full nodes, nothing pending")
    idle = _full("w4d-news", 5000, None, Peer((1674, 1998)), "5,000 full nodes, nothing pending, 100 pods updated")
    yield evolve(idle, updates=100)
    yield _full(
        "gang-full",
        500,
        Pending(1, ("queue-0",), pods=10, gpus=8),
        Peer((249500, 249500), note="published end to end figure, not a cycle"),
        "500 full nodes, 1 hopeless gang of 10 x 8 GPU",
    )
    cluster = Nodes(5000)
    some = Workload(
        id="w4b",
        title="5,000 nodes, 36,000 running, 100 x 1 GPU pending",
        nodes=cluster,
        queues=four_queues(cluster.total_gpus),
        running=Running(36000, FOUR),
        pending=Pending(100, FOUR),
        expected=Expected(placed=100),
        peer=Peer((2390, 2473)),
    )
    yield some
    yield evolve(some, id="w4b-nodes", title=f"{some.title}, 500 nodes changed", node_updates=500, peer=None)
    yield Workload(
        id="w10",
        title="4,000 nodes without GPU, 140,000 running, 6 pending",
        nodes=Nodes(4000, gpus=0),
        queues=four_queues(40000),
        running=Running(140000, FOUR, per_node=35, gpus=0),
        pending=Pending(6, FOUR, gpus=0),
        expected=Expected(placed=6),
        peer=Peer((6134, 6134)),
    )


def _fractions() -> Iterable[Workload]:
    for id_, nodes, groups, peer in (("w5", 500, 8000, (14017, 14017)), ("w5s", 100, 1600, (808, 858))):
        cluster = Nodes(nodes)
        yield Workload(
            id=id_,
            title=f"{nodes} nodes, {groups:,} x half a GPU",
            nodes=cluster,
            queues=four_queues(cluster.total_gpus),
            pending=Pending(groups, FOUR, gpus=0, fraction="0.5"),
            expected=Expected(placed=groups),
            peer=Peer(peer),
        )


def _racks() -> Iterable[Workload]:
    cluster = Nodes(1024, rack_size=32, zone_size=256)
    yield Workload(
        id="w6",
        title="1,024 nodes, 128 gangs of 64, one rack each",
        nodes=cluster,
        queues=four_queues(cluster.total_gpus),
        pending=Pending(128, FOUR, 64, required_level=RACK_LABEL),
        expected=Expected(placed=8192, gang_within=RACK_LABEL),
        peer=Peer((1786, 1786)),
    )
    cluster = Nodes(512, rack_size=32, zone_size=256)
    yield Workload(
        id="w6b",
        title="512 nodes, 1 gang of 512 x 8 GPU, rack preferred",
        nodes=cluster,
        queues=four_queues(cluster.total_gpus),
        pending=Pending(1, FOUR, 512, gpus=8, preferred_level=RACK_LABEL),
        expected=Expected(placed=512, nodes_used=512),
        peer=Peer((826, 962)),
    )


def _reclaims() -> Iterable[Workload]:
    yield Workload(
        id="w7",
        title="500 nodes, 100 queues, 500 reclaimers",
        nodes=Nodes(500),
        queues=_departments(10, 100, 40),
        running=Running(4000, _leaves(0, 50)),
        pending=Pending(500, _leaves(50, 100)),
        expected=Expected(pipelined=500, evicted=500),
        peer=Peer((14423, 14423)),
    )
    yield Workload(
        id="w7s",
        title="100 nodes, 20 queues, 100 reclaimers",
        nodes=Nodes(100),
        queues=_departments(4, 20, 40),
        running=Running(800, _leaves(0, 10)),
        pending=Pending(100, _leaves(10, 20)),
        expected=Expected(pipelined=100, evicted=100),
        peer=Peer((498, 572)),
    )
    cluster = Nodes(500)
    yield Workload(
        id="w9",
        title="500 fragmented nodes, 20 x 8 GPU",
        nodes=cluster,
        queues=four_queues(cluster.total_gpus),
        running=Running(2500, FOUR, per_node=5),
        pending=Pending(20, FOUR, gpus=8),
        expected=Expected(
            pipelined=3,
            moved=15,
            evicted=15,
            source="derived: the first 17 groups by name may move; they stand on nodes 0 to 3, five on each",
        ),
        peer=Peer((173, 173), note="moves nothing: its 17 groups are any, so no node becomes empty"),
    )


def _beyond() -> Iterable[Workload]:
    """Make what the peer's series has not: larger clusters, deeper trees, pods that all differ, nodes that change."""
    derived = "derived: everything fits"
    cluster = Nodes(20000, gpus=16)
    yield Workload(
        id="fill-20k",
        title="20,000 nodes, 200,000 running, 5,000 x 1 GPU",
        nodes=cluster,
        queues=four_queues(cluster.total_gpus),
        running=Running(200000, FOUR, per_node=10),
        pending=Pending(5000, FOUR),
        expected=Expected(placed=5000, source=derived),
    )
    yield Workload(
        id="queues-2000",
        title="1,000 nodes, 2,000 queues in four levels, 4,000 x 1 GPU",
        nodes=Nodes(1000),
        queues=_levels((5, 25, 170, 1800), 4),
        pending=Pending(4000, _leaves(0, 1800)),
        expected=Expected(placed=4000, source=derived),
    )
    cluster = Nodes(500)
    yield Workload(
        id="shapes-2000",
        title="500 nodes, 2,000 running, 2,000 x 1 GPU that all differ",
        nodes=cluster,
        queues=four_queues(cluster.total_gpus),
        running=Running(2000, FOUR, per_node=4),
        pending=Pending(2000, FOUR, differ=True),
        expected=Expected(placed=2000, source=derived),
    )
    hopeless = Pending(2000, FOUR, differ=True)
    yield _full("shapes-full", 500, hopeless, None, "500 full nodes, 2,000 hopeless x 1 GPU that all differ")
    yield Workload(
        id="fractions-reclaim",
        title="500 full nodes, 4,000 x half a GPU reclaim",
        nodes=cluster,
        queues=_two_queues(0, cluster.total_gpus),
        running=Running(cluster.total_gpus, ("queue-0",), striped=True),
        pending=Pending(4000, ("queue-1",), gpus=0, fraction="0.5"),
        expected=Expected(
            pipelined=4000,
            evicted=2250,
            source="a plain model of the peer's search, on 2 nodes: now and then a half has a victim of its own",
        ),
    )
    cluster = Nodes(10000, rack_size=32, zone_size=256)
    yield Workload(
        id="racks-10k",
        title="10,000 nodes, 100 gangs of 256, one rack each",
        nodes=cluster,
        queues=four_queues(cluster.total_gpus),
        pending=Pending(100, FOUR, 256, required_level=RACK_LABEL),
        expected=Expected(placed=25600, gang_within=RACK_LABEL, source=derived),
    )


def _devices() -> Iterable[Workload]:
    """Make what asks for devices rather than for GPUs of a device plugin."""
    for id_, nodes, pods, devices in (
        ("claims", 250, 500, Devices.CLAIMS),
        ("class-gpus", 250, 500, Devices.CLASS),
        ("partitions", 250, 500, Devices.PARTITIONS),
        ("pairs", 120, 240, Devices.PAIRS),
        ("mig", 125, 1000, Devices.MIG),
    ):
        yield Workload(
            id=id_,
            title=f"{nodes} nodes, {pods:,} pods, each with {devices.value}",
            nodes=Nodes(nodes, gpus=0),
            queues=four_queues(8 * nodes),
            pending=Pending(pods, FOUR, gpus=0),
            expected=Expected(placed=pods, source="derived: everything fits"),
            devices=devices,
        )
    yield Workload(
        id="mig-reclaim",
        title="96 nodes whose MIG slices a queue has all, 768 slices of three profiles reclaim",
        nodes=Nodes(96, gpus=0),
        # KAI-Scheduler counts a slice by the number before its g: 1, 2 or 3 GPUs, and so two on average.
        queues=_two_queues(0, 2 * 768),
        running=Running(3072, ("queue-0",), gpus=0),
        pending=Pending(768, ("queue-1",), gpus=0),
        expected=Expected(pipelined=768, evicted=768, source="derived: each takes a slice of its profile"),
        devices=Devices.MIG,
    )


def _zones() -> Iterable[Workload]:
    """Make pods that are aligned to NUMA zones."""
    cluster = Nodes(250, numa=2)
    yield Workload(
        id="numa",
        title="250 nodes of two NUMA zones, 1,000 x 1 GPU",
        nodes=cluster,
        queues=four_queues(cluster.total_gpus),
        pending=Pending(1000, FOUR),
        expected=Expected(placed=1000, source="derived: everything fits"),
    )
    cluster = Nodes(256, numa=2)
    yield Workload(
        id="sockets-reclaim",
        title="256 full nodes of two NUMA zones, 256 x 1 GPU reclaim",
        nodes=cluster,
        queues=four_queues(cluster.total_gpus),
        running=Running(cluster.total_gpus, FOUR[:1]),
        pending=Pending(256, FOUR[3:]),
        expected=Expected(pipelined=256, evicted=256, source="derived: each takes the GPU of one victim"),
    )


def _gangs_that_reclaim() -> Iterable[Workload]:
    """Make searches for the victims of gangs, whose scenarios are many."""
    cluster = Nodes(128, rack_size=16, zone_size=256)
    yield Workload(
        id="gang-reclaim",
        title="128 full nodes, 1 gang of 32 x 1 GPU, rack preferred, reclaims",
        nodes=cluster,
        queues=_two_queues(0, cluster.total_gpus),
        running=Running(cluster.total_gpus, ("queue-0",), striped=True),
        pending=Pending(1, ("queue-1",), pods=32, preferred_level=RACK_LABEL),
        expected=Expected(pipelined=32, evicted=32, source="derived: each takes the GPU of one victim"),
    )
    yield Workload(
        id="parts-reclaim",
        title="128 full nodes, 4 gangs of 64 in 8 sub-groups that need a rack each reclaim",
        nodes=cluster,
        queues=_two_queues(0, cluster.total_gpus),
        running=Running(cluster.total_gpus, ("queue-0",), striped=True),
        pending=Pending(4, ("queue-1",), pods=64, required_level=ZONE_LABEL, subgroups=8),
        expected=Expected(pipelined=256, evicted=256, source="derived: each takes the GPU of one victim"),
    )
    cluster = Nodes(125)
    yield Workload(
        id="shares-reclaim",
        title="125 nodes full of halves of GPUs, 125 x 1 GPU and 125 x 0.3, 0.5 or 0.7 of one reclaim",
        nodes=cluster,
        queues=_two_queues(0, cluster.total_gpus),
        running=Running(2 * cluster.total_gpus, ("queue-0",), per_node=16, gpus=0, fraction="0.5"),
        pending=Pending(250, ("queue-1",), mixed=("0.3", "0.5", "0.7")),
        expected=Expected(pipelined=250, evicted=416, source="kai's own; no cheaper victims were found by hand"),
    )
    yield Workload(
        id="queues-reclaim",
        title="1,000 full nodes, 2,000 leaf queues in four levels, 2,000 x 1 GPU reclaim",
        nodes=Nodes(1000),
        queues=_levels((8, 40, 200, 2000), 4),
        running=Running(8000, _leaves(0, 1000), striped=True),
        pending=Pending(2000, _leaves(1000, 2000)),
        expected=Expected(pipelined=2000, evicted=2000, source="derived: each asker is below its quota"),
    )
    asking = ((f"queue-{1000 + i % 1000}", *([f"queue-{i % 1000}"] if i % 4 == 0 else [])) for i in range(2000))
    yield Workload(
        id="levels-reclaim",
        title="1,000 full nodes, 2,000 leaf queues of three weights in four levels that all want, half of them reclaim",
        nodes=Nodes(1000),
        queues=_levels((7, 45, 299, 2000), 4, (1, 2, 3)),
        running=Running(8000, _leaves(0, 1000), striped=True),
        pending=Pending(2500, tuple(chain.from_iterable(asking))),
        expected=Expected(pipelined=2036, evicted=2036, source="both forms of the searches agree"),
    )


def _packed() -> Iterable[Workload]:
    """Make a cluster of which each node has room, and none enough."""
    cluster = Nodes(240)
    yield Workload(
        id="packing",
        title="240 nodes with 5 of 8 GPUs in use, 12 gangs of 2 x 8 GPU, any number of pods may move",
        nodes=cluster,
        queues=four_queues(cluster.total_gpus),
        running=Running(5 * cluster.count, FOUR, per_node=5),
        pending=Pending(12, FOUR, pods=2, gpus=8),
        expected=Expected(pipelined=24, moved=120, evicted=120, source="derived: each of 24 nodes is emptied of five"),
        moves_any=True,
    )


def _rules_among_pods() -> Iterable[Workload]:
    """Make pods that plugins are asked about one by one."""
    cluster = Nodes(1000, rack_size=10, zone_size=100)
    for id_, keeps, what in (("apart", "apart", "on nodes of their own"), ("spread", "spread", "spread over zones")):
        yield Workload(
            id=id_,
            title=f"1,000 nodes, 1,000 x 1 GPU, ten of an app {what}",
            nodes=cluster,
            queues=four_queues(cluster.total_gpus),
            pending=Pending(1000, FOUR, app=10, keeps=keeps),
            expected=Expected(placed=1000, source="derived: everything fits"),
        )


def _large_reclaims() -> Iterable[Workload]:
    """Make the peer's own benchmarks of reclaim, and a hopeless sibling.

    Source: BenchmarkReclaimLargeJobs_* of the peer. The gang had a tenth as many pods as there are nodes when 76 s were
    published for 1,000 nodes (April 2026), and has half as many since July: ``large`` and ``huge`` here.
    BenchmarkReclaimUnschedulableDistributedJob_* is ``gang-short``, BenchmarkReclaimManySingleGPUJobsFullCycle_* is
    ``many``. The peer's figures contain about 100 ms of test set-up per operation, and are reclaim alone but for
    ``many``.
    """
    alone = "the peer's own benchmark, reclaim alone"
    for nodes, published in ((100, 213.4), (200, 728.0), (500, 9170.0), (1000, 76300.0)):
        yield _one_gang("large", nodes, nodes // 10, Peer((published, published), note=f"{alone}, published"))
    for nodes, measured in ((100, 10418.0), (200, 5177.0), (1000, None)):
        yield _one_gang("huge", nodes, nodes // 2, Peer((measured, measured), note=alone) if measured else None)
    for nodes, published in ((100, 3491.0), (500, 165600.0)):
        cluster = Nodes(nodes)
        gpus = cluster.total_gpus
        yield Workload(
            id=f"many-{nodes}",
            title=f"{nodes:,} full nodes, {gpus:,} x 1 GPU reclaim all of it",
            nodes=cluster,
            queues=_two_queues(0, gpus),
            running=Running(gpus, ("queue-0",), striped=True),
            pending=Pending(gpus, ("queue-1",)),
            expected=Expected(pipelined=gpus, evicted=gpus, source="the peer's own test of this workload"),
            peer=Peer((published, published), note="the peer's own benchmark, published"),
        )
    cluster = Nodes(500)
    yield Workload(
        id="gang-short",
        title="500 full nodes, a gang of 10 x 8 GPU is one GPU short of its right",
        nodes=cluster,
        queues=_two_queues(cluster.total_gpus - 79, 80),
        running=Running(cluster.total_gpus, ("queue-0",), striped=True),
        pending=Pending(1, ("queue-1",), pods=10, gpus=8),
        expected=Expected(source="derived: the eightieth victim would be within its queue's quota"),
    )


def _one_gang(id_: str, nodes: int, gang: int, peer: Peer | None) -> Workload:
    """Make a full cluster in which one gang takes whole nodes from a queue that deserves nothing."""
    cluster = Nodes(nodes)
    return Workload(
        id=f"{id_}-{nodes}",
        title=f"{nodes:,} full nodes, a gang of {gang} x 8 GPU reclaims",
        nodes=cluster,
        queues=_two_queues(0, cluster.total_gpus),
        running=Running(cluster.total_gpus, ("queue-0",), striped=True),
        pending=Pending(1, ("queue-1",), pods=gang, gpus=8),
        expected=Expected(
            pipelined=gang, evicted=gang * 8, source="derived: each of the gang's pods takes a node of eight victims"
        ),
        peer=peer,
    )


WORKLOADS: dict[str, Workload] = {
    workload.id: workload
    for family in (
        _fills(),
        _saturated(),
        _fractions(),
        _racks(),
        _reclaims(),
        _gangs_that_reclaim(),
        _packed(),
        _rules_among_pods(),
        _large_reclaims(),
        _beyond(),
        _devices(),
        _zones(),
    )
    for workload in family
}


class UnknownWorkloadError(ValueError):
    """A workload was named that is not in the catalogue."""

    def __init__(self, id_: str) -> None:
        """Name what was asked for and everything there is."""
        super().__init__(f'workload "{id_}": unknown; known are {", ".join(WORKLOADS)}')


def find_workload(id_: str) -> Workload:
    """Find the workload called ``id_``.

    Raises: UnknownWorkloadError where there is none.
    """
    if id_ not in WORKLOADS:
        raise UnknownWorkloadError(id_)
    return WORKLOADS[id_]
