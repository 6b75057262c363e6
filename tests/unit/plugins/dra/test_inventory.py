import numpy as np

from kai.facts.model.claim import AllocatedDevice, Device, DeviceSlice
from kai.facts.model.constraints import NodeTerm, Requirement
from kai.facts.model.partitions import is_gpu
from kai.facts.model.pod import Node
from kai.plugins.dra.inventory import MOST_SHARES, name_term, take_inventory

NODES = (Node(name="n1"), Node(name="n2"))
RACK = (NodeTerm(labels=(Requirement("rack", "In", ("r2",)),)),)


def on(name, *devices, driver="gpu.example.com", **where):
    return DeviceSlice(
        name=name, driver=driver, pool=where.pop("pool", name), devices=tuple(map(made, devices)), **where
    )


def made(each):
    return Device(name=each) if isinstance(each, str) else each


def inventory(*slices):
    return take_inventory(slices, NODES, lambda terms: np.array([False, tuple(terms) == RACK]))


def held(pool, device, **parts):
    return AllocatedDevice(request="r", driver="gpu.example.com", pool=pool, device=device, **parts)


def names(found, rows):
    return [found.keys[row][2] for row in rows]


def test_names_with_gpu_in_them_are_about_gpus():
    assert [is_gpu(name) for name in ("gpu.example.com", "example.com/GPU-fast", "nic.example.com")] == [
        True,
        True,
        False,
    ]


def test_devices_sort_by_driver_pool_slice_and_position():
    found = inventory(on("s2", "b", "a", pool="p"), on("s1", "z", pool="p"), on("s0", "x", driver="a.example.com"))
    assert [key[2] for key in found.keys] == ["x", "z", "b", "a"]


def test_a_device_that_is_offered_twice_counts_once():
    found = inventory(on("s1", "a", pool="p", node="n1"), on("s2", "a", pool="p", node="n2"))
    assert list(found.node) == [0]


def test_nodes_see_their_own_and_network_devices():
    slices = (on("n1", "a", node="n1"), on("x", "b", all_nodes=True), on("y", "c", nodes=RACK), on("z", "d", node="n9"))
    found = inventory(*slices)
    assert names(found, found.usable_on(0)) == ["a", "b"]
    assert names(found, found.usable_on(1)) == ["b", "c"]
    assert list(found.counts(np.ones(4, np.bool_), 2)) == [2, 2]
    assert list(found.counts(np.array([True, False, True, True]), 2)) == [1, 1]


def test_an_empty_inventory_serves_nobody():
    assert len(inventory().usable_on(0)) == 0


def test_a_devices_own_node_overrides_that_of_its_slice():
    found = inventory(on("s", Device(name="a", node="n2"), "b", node="n1"))
    assert list(found.node) == [1, 0]


def test_gpus_of_a_node_are_named_once():
    found = inventory(on("n1", "a", "b", node="n1"), on("x", "c", all_nodes=True))
    devices = [held("n1", "b"), held("n1", "b"), held("n1", "a"), held("x", "c"), held("n1", "gone")]
    assert names(found, found.gpus_of(devices)) == ["b", "a"]
    assert found.gpus_of(devices, 1) == []


def test_an_allocation_takes_its_device_or_consumed_capacity():
    shared = Device(name="m", capacity={"memory": 10}, multiple_allocations=True)
    partition = Device(name="p", counters=(("set", "memory", 4),))
    found = inventory(on("n1", "a", shared, partition, node="n1", counters=(("set", "memory", 8),)))
    consumed = held("n1", "m", consumed=(("memory", 3), ("d/other", 1)), shared=True)
    taken = found.takes([held("n1", "a"), consumed, held("n1", "p"), held("n1", "a", admin_access=True)])
    assert list(taken) == [(0, 0, 1), (0, 1, 1), (1, 0, 3), (0, 2, 1), (2, 0, 4)]
    assert list(found.takes([held("n1", "m")])) == [(0, 1, MOST_SHARES)]
    assert [list(limits) for limits in found.limits] == [[1, MOST_SHARES, 1], [10], [8]]
    assert found.intricate
    assert not inventory(on("n1", "a")).intricate


def test_one_local_device_ties_an_allocation_to_the_node():
    found = inventory(on("n1", "a", node="n1"), on("x", "b", all_nodes=True), on("y", "c", nodes=RACK))
    assert found.selector([0, 1], "n1") == (name_term("n1"),)
    assert found.selector([1], "n1") is None
    assert found.selector([1, 2], "n2") == RACK
