import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.plugins.numa import kernels as numa
from tests.kernels.naive import numa as naive

NAMES = ("cpu", "memory", "gpu")
POLICIES = ("none", "best-effort", "restricted", "single-numa-node")

amounts = st.fixed_dictionaries({name: st.integers(0, 6) for name in NAMES})
some = st.frozensets(st.sampled_from(NAMES))


@st.composite
def nodes(draw):
    """Return a node whose zones have up to six of everything; more than all may be drawn from a zone."""
    zones = draw(st.integers(0, 4))
    allocatable = [draw(amounts) for _ in range(zones)]
    available = [{name: amount - draw(st.integers(0, 3)) for name, amount in zone.items()} for zone in allocatable]
    return naive.Node(
        policy=draw(st.sampled_from(POLICIES)),
        whole_pod=draw(st.booleans()),
        aware=draw(some),
        allocatable=tuple(allocatable),
        available=tuple(available),
    )


@st.composite
def demands(draw):
    """Return what a pod of up to three containers side by side and two in turn wants."""
    return naive.Demand(
        pod=draw(amounts),
        together=tuple(draw(st.lists(amounts, max_size=3))),
        in_turn=tuple(draw(st.lists(amounts, max_size=2))),
        aligned=draw(some),
        devices=draw(some),
        guaranteed=draw(st.booleans()),
    )


def table(rows):
    return np.array([[row.get(name, 0) for name in NAMES] for row in rows], np.int64).reshape(-1, len(NAMES))


def flags(chosen):
    return np.array([[name in each for name in NAMES] for each in chosen], np.bool_).reshape(-1, len(NAMES))


def zones_of(cluster):
    prefix = [np.cumsum(-np.sort(-table(node.allocatable), axis=0), axis=0) for node in cluster]
    return numa.Zones(
        start=np.concatenate([[0], np.cumsum([len(node.available) for node in cluster])]).astype(np.int64),
        policy=np.array([POLICIES.index(node.policy) for node in cluster], np.int64),
        whole_pod=np.array([node.whole_pod for node in cluster], np.bool_),
        aware=flags([node.aware for node in cluster]),
        prefix=np.concatenate([np.zeros((0, len(NAMES)), np.int64), *prefix]),
        available=table([zone for node in cluster for zone in node.available]),
    )


def requests_of(demand):
    return numa.Requests(
        pod=table([demand.pod]),
        together=table(demand.together),
        in_turn=table(demand.in_turn),
        aligned=flags([demand.aligned])[0],
    )


@settings(deadline=None)
@given(nodes().filter(lambda node: node.available and node.policy != "none"), demands())
def test_a_pod_is_placed_as_the_twin_places_it(node, demand):
    drawn = np.full((len(node.available), len(NAMES)), 99, np.int64)
    span = numa.place(zones_of([node]), requests_of(demand), 0, drawn)
    expected = naive.place(node, demand)
    assert (span == numa.INFEASIBLE) == (expected is None)
    if expected is not None:
        assert np.array_equal(drawn, table(expected))
        assert span == sum(bool(zone) for zone in expected)


@settings(deadline=None)
@given(st.lists(nodes(), min_size=1, max_size=4), demands())
def test_nodes_are_spanned_as_the_twin_says(cluster, demand):
    rows = np.arange(len(cluster), dtype=np.int64)
    out = np.empty(len(cluster), np.int64)
    widest = max(len(node.available) for node in cluster)
    zones, requests, devices = zones_of(cluster), requests_of(demand), flags([demand.devices])[0]
    numa.spans(zones, requests, demand.guaranteed, devices, widest, rows, out)
    assert list(out) == naive.spans(cluster, demand)
    aligned = [numa.is_aligned(zones, demand.guaranteed, devices, at) for at in range(len(cluster))]
    assert aligned == [naive.is_aligned(node, demand) for node in cluster]


@settings(deadline=None)
@given(nodes().filter(lambda node: node.available and node.policy != "none"), demands())
def test_no_zone_gives_more_than_it_has_left(node, demand):
    drawn = np.zeros((len(node.available), len(NAMES)), np.int64)
    if numa.place(zones_of([node]), requests_of(demand), 0, drawn) != numa.INFEASIBLE:
        left = np.maximum(table(node.available), 0)
        assert (drawn <= left).all()


@settings(deadline=None)
@given(st.lists(nodes(), min_size=1, max_size=4), demands(), st.integers(1, 5))
def test_room_is_counted_as_the_twin_counts_it(cluster, demand, most):
    rows, out = np.arange(len(cluster), dtype=np.int64), np.empty((len(cluster), 3), np.int64)
    widest = max(len(node.available) for node in cluster)
    zones, live = zones_of(cluster), table([zone for node in cluster for zone in node.available])
    scratch = zones.replace(available=np.full_like(live, 99))
    devices = flags([demand.devices])[0]
    numa.rooms(scratch, requests_of(demand), demand.guaranteed, devices, widest, most, live, rows, out)
    expected = naive.rooms(cluster, demand, widest, most)
    assert out.tolist() == [
        [numa.UNBOUNDED if count is None else count, span, int(more)] for count, span, more in expected
    ]
    assert np.array_equal(live, zones.available)


@settings(deadline=None)
@given(st.lists(nodes(), min_size=1, max_size=3), demands(), st.lists(st.integers(0, 2), max_size=6))
def test_pods_draw_one_after_the_other(cluster, demand, order):
    order = np.array([at % len(cluster) for at in order], np.int64)
    width = max(len(node.available) for node in cluster)
    out = np.full((len(order) * width, len(NAMES)), 99, np.int64)
    zones, devices = zones_of(cluster), flags([demand.devices])[0]
    before = zones.available.copy()
    numa.draw(zones, requests_of(demand), demand.guaranteed, devices, width, order, out)
    expected = naive.draw(cluster, demand, order.tolist())
    rows = [[*drawn, *([{}] * (width - len(drawn)))] for drawn in expected]
    assert np.array_equal(out, table([zone for drawn in rows for zone in drawn]))
    assert (before - zones.available).sum() == out.sum()
