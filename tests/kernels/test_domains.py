import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.kernels.domains import DomainTrees, place_in_domain
from kai.facts.model.pod import Status
from tests.kernels.naive import domains as naive
from tests.kernels.stage import stages

bounds = st.tuples(
    st.lists(st.sampled_from(("", "a", "a", "b")), min_size=6, max_size=6),  # zone of each node
    st.lists(st.sampled_from(("p", "p", "q", "r")), min_size=6, max_size=6),  # rack of each node
    st.sampled_from((1, 2, 2)),  # finest
    st.sampled_from((0, 0, 1, 2)),  # coarsest
    st.sampled_from((0, 1, 2)),  # ordered
    st.sampled_from((-1, 0, 1, 2)),  # preferred
    st.booleans(),  # required
)


def tree_of(zones, racks, finest):
    """Return the domains that labels make of the nodes that have a zone; None if there is none."""
    nodes = [node for node, zone in enumerate(zones) if zone]
    if not nodes:
        return None
    top = naive.Domain(0, nodes)
    for zone in sorted({zones[node] for node in nodes}):
        mine = [node for node in nodes if zones[node] == zone]
        below = [
            naive.Domain(2, [node for node in mine if racks[node] == rack])
            for rack in sorted({racks[node] for node in mine})
        ]
        top.below.append(naive.Domain(1, mine, below if finest == 2 else []))
    return top


def columns_of(bound, groups, shapes, nodes):
    """Return the tables of a kernel for one kind: domains numbered by depth, then as they are listed."""
    zones = bound.top.below
    depths = [[bound.top], zones, [rack for zone in zones for rack in zone.below]][: bound.finest + 1]
    domains = [each for depth in depths for each in depth]
    finest_of = np.full((1, nodes), -1, np.int64)
    for number, each in enumerate(domains):
        finest_of[0, each.nodes] = number
    parent = {id(child): number for number, each in enumerate(domains) for child in each.below}
    rows = np.array(bound.top.nodes, np.int64)
    return DomainTrees(
        kind=np.zeros(groups, np.int64),
        rows=rows,
        row_start=np.array([0, len(rows)]),
        domains=finest_of[0, rows].copy(),
        parents=np.array([parent.get(id(each), -1) for each in domains], np.int64),
        domain_start=np.array([0, len(domains)]),
        depth_start=np.cumsum([[0, *map(len, depths)]], axis=1),
        finest_of=finest_of,
        finest=np.array([bound.finest]),
        coarsest=np.array([bound.coarsest]),
        ordered=np.array([bound.ordered]),
        preferred=np.array([bound.preferred]),
        step=np.array([float(naive.TENTH)]),
        required=np.array([bound.required]),
        counted=np.arange(shapes, dtype=np.int64),
        fitting=np.zeros((shapes, nodes), np.int64),
        seen=np.full(shapes, -1, np.int64),
        extra=np.full(nodes, 7.0),
    )


@given(stages(nodes=(2, 6), pods=6), bounds, st.lists(st.tuples(st.integers(0, 20), st.integers(1, 3)), max_size=5))
def test_pods_go_into_the_domain_that_the_twin_chooses(stage, drawn, steps):
    zones, racks, finest, coarsest, ordered, preferred, required = drawn
    ledger, world = stage.ledger, stage.world
    count = len(world.nodes)
    top = tree_of(zones[:count], racks[:count], finest)
    if top is None:
        return
    bound = naive.Bounds(top, finest, min(coarsest, finest), min(ordered, finest), min(preferred, finest), required)
    columns = columns_of(bound, len(world.groups), len(world.shapes), count)
    for which, chunk in steps:
        waiting = [
            pod
            for pod in world.pods
            if pod.status == Status.PENDING and pod.leaf is not None and max(pod.shape.request[:3]) > 0
        ]
        if not waiting:
            return
        first = waiting[which % len(waiting)]
        alike = [pod for pod in waiting if pod.shape is first.shape and pod.leaf is first.leaf][:chunk]
        ledger.reserve(2 * len(alike))
        rows = np.array([pod.row for pod in alike])
        found = place_in_domain(
            ledger.facts,
            ledger.columns,
            ledger.offsets,
            stage.rules,
            stage.vectors,
            columns,
            0,
            first.leaf.row,
            rows,
        )
        assert found == naive.place_in_domain(world, stage.rules, bound, first.leaf, alike)
        stage.agree()
