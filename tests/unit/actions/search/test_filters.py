"""A filter refuses victims only where a simulation would, too."""

import numpy as np
import pytest

from kai.actions.search.outer import Filters, fits_greedily, held_by, wanted_by
from tests.unit.actions.search.stage import opened, pods_of, row

GROUPS = {
    "small": {"each": {"gpu": 1}, "runs_on": "n1"},
    "large": {"each": {"gpu": 3}, "runs_on": "n2"},
    "half": {"each": {"fraction": 0.5}},
    "wants": {"members": 2, "each": {"gpu": 2}},
}
NODES = {"n1": {"gpu": 2, "labels": {"rack": "a"}}, "n2": {"gpu": 4, "labels": {"rack": "b"}}}


@pytest.mark.parametrize(
    ("wanted", "capacities", "fits"),
    [
        ([], [], True),
        ([1], [], False),
        ([2, 1], [1, 2], True),
        ([2, 2], [3, 1], False),
        ([1, 1, 1], [3], True),
        ([3], [2, 2], False),
        ([3, 3, 2, 2], [5, 5], True),
        ([3, 3, 2, 2, 1], [5, 5], False),
        ([4, 3, 3], [8, 3], True),
        ([0, 0], [-1], False),
    ],
)
def test_each_amount_needs_one_holder_with_enough_left(wanted, capacities, fits):
    assert fits_greedily(wanted, capacities) is fits


def test_a_zero_amount_needs_no_holder_when_ending():
    assert fits_greedily([0], [], stop_at_zero=True)
    assert not fits_greedily([0], [])


def test_victims_hold_what_they_hold_on_their_nodes():
    session = opened(GROUPS, NODES)
    held = held_by(session, [*pods_of(session, "small"), *pods_of(session, "large")])
    assert held[session.snapshot.node_rows["n1"]] == 1000
    assert held[session.snapshot.node_rows["n2"]] == 3000


def test_pods_want_parts_of_gpus_in_thousandths():
    session = opened(GROUPS, NODES)
    assert wanted_by(session, [*pods_of(session, "half"), *pods_of(session, "wants")]) == (500, 2000, 2000)


def filters_for(session, name, free=0):
    nodes = len(session.all_nodes)
    portion = session.portion(row(session, name))
    waiting = [int(pod) for pod in portion.chunk()]
    return Filters(session, portion, waiting, np.full(nodes, free, np.int64), np.zeros(0, np.int64))


def test_victims_that_free_too_little_are_refused():
    session = opened(GROUPS, NODES)
    filters = filters_for(session, "wants")
    small, large = (np.array(pods_of(session, name), np.int64) for name in ("small", "large"))
    assert not filters.accept(small, held_by(session, small))
    assert not filters.accept(large, held_by(session, large))


def test_victims_that_free_enough_are_accepted():
    session = opened(GROUPS, NODES)
    large = np.array(pods_of(session, "large"), np.int64)
    assert filters_for(session, "wants", free=1000).accept(large, held_by(session, large))


def test_victims_on_nodes_the_aggressor_cannot_use_are_refused():
    session = opened({**GROUPS, "wants": {"each": {"gpu": 1}, "selector": {"rack": "b"}}}, NODES)
    filters = filters_for(session, "wants")
    small, large = (np.array(pods_of(session, name), np.int64) for name in ("small", "large"))
    assert not filters.accept(small, held_by(session, small))
    assert filters.accept(large, held_by(session, large))


def test_victims_that_leave_each_rack_too_small_are_refused():
    groups = {**GROUPS, "wants": {"members": 2, "each": {"gpu": 2}, "topology": {"required": "rack"}}}
    session = opened(groups, NODES, topologies={"default": ["rack", "kubernetes.io/hostname"]})
    filters = filters_for(session, "wants")
    assert not filters.domains_can_hold(np.array([2000, 2000], np.int64))
    assert filters.domains_can_hold(np.array([0, 4000], np.int64))


def leaves_too_few(groups, victims, free=0):
    session = opened({**GROUPS, **groups}, NODES)
    return filters_for(session, "wants", free).leaves_too_few(np.array(pods_of(session, victims), np.int64))


def test_fewer_freed_devices_than_wanted_are_too_few():
    assert leaves_too_few({}, "large")
    assert not leaves_too_few({}, "large", free=1000)


def test_rests_of_nodes_are_not_added_up():
    assert leaves_too_few({"wants": {"members": 1, "each": {"gpu": 4}}}, "large", free=999)


@pytest.mark.parametrize(
    "wants",
    [{"each": {"fraction": 0.5}}, {"each": {"cpu": "1"}}],
    ids=["parts", "none"],
)
def test_pods_without_whole_devices_are_not_counted(wants):
    assert not leaves_too_few({"wants": wants}, "small")


def test_shared_devices_are_not_counted():
    shared = {"half": {"each": {"fraction": 0.5}, "runs_on": "n1"}}
    assert not leaves_too_few(shared, "small")
