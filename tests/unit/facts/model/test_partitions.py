"""Which devices are one GPU, and which part of it each is."""

import pytest

from kai.facts.model.claim import Device, DeviceSlice
from kai.facts.model.partitions import gpus_of

DRIVER, POOL = "gpu.example.com", "n1"
H100 = {"memory": 81559, "multiprocessors": 132, "decoders": 7, "ofa": 1} | {f"memory-slice-{at}": 1 for at in range(8)}
"""Counters as the driver of NVIDIA has them, some left out."""


def mig(memory, multiprocessors, decoders, places, ofa=0):
    drawn = {"memory": memory, "multiprocessors": multiprocessors, "decoders": decoders, "ofa": ofa}
    return drawn | {f"memory-slice-{at}": 1 for at in places}


def offered(sets, devices, node=POOL):
    """Return the GPUs of one pool; ``sets`` and what ``devices`` draw are counters by set."""
    counters = tuple((group, name, amount) for group, own in sets.items() for name, amount in own.items())
    drawn = {
        name: tuple((group, counter, amount) for group, own in each.items() for counter, amount in own.items())
        for name, each in devices.items()
    }
    listed = tuple(Device(name=name, counters=each) for name, each in drawn.items())
    counting = DeviceSlice(name="counters", driver=DRIVER, pool=POOL, devices=(), node=node, counters=counters)
    return gpus_of([counting, DeviceSlice(name="devices", driver=DRIVER, pool=POOL, devices=listed, node=node)]).all


def keys(*names):
    return [(DRIVER, POOL, name) for name in names]


def taken(gpus, *names):
    """Return what devices take of each GPU."""
    return [gpu.taken(keys(*names)) for gpu in gpus]


def test_two_half_partitions_fill_their_gpu():
    halves = {"slice0": 1, "slice1": 1}
    gpus = offered(
        {"gpu-0": halves},
        {"gpu-0": {"gpu-0": halves}, "a": {"gpu-0": {"slice0": 1}}, "b": {"gpu-0": {"slice1": 1}}},
    )
    assert (taken(gpus, "a"), taken(gpus, "a", "b"), taken(gpus, "gpu-0")) == ([500], [1000], [1000])
    assert not gpus[0].fits(keys("a", "gpu-0"))


def h100():
    parts = {f"1g-{at}": mig(9728, 16, 1, [at]) for at in range(7)}
    parts |= {"3g-0": mig(40448, 60, 3, range(4)), "3g-4": mig(40448, 60, 3, range(4, 8))}
    parts |= {"1g.me": mig(9728, 16, 1, [0], ofa=1), "7g": mig(80384, 132, 7, range(8), ofa=1), "gpu-0": H100}
    return offered({"gpu-0": H100}, {name: {"gpu-0": drawn} for name, drawn in parts.items()})


@pytest.mark.parametrize(
    ("held", "part"),
    [
        (["gpu-0"], 1000),
        (["7g"], 1000),
        (["3g-0"], 500),
        (["3g-0", "3g-4"], 1000),
        (["1g-0"], 142),
        (["1g.me"], 142),
        ([f"1g-{at}" for at in range(7)], 1000),
        (["3g-0", "1g-4", "1g-5"], 750),
    ],
)
def test_a_partition_counts_by_its_largest_drawn_share(held, part):
    assert taken(h100(), *held) == [part]


def test_gpus_are_counted_by_counter_sets_and_whole_devices():
    own = {"memory": 80}
    devices = {f"gpu-{at}": {f"set-{at}": own} for at in range(3)}
    devices |= {f"half-{at}": {f"set-{at}": {"memory": 40}} for at in range(3)} | {"old": {}}
    gpus = offered({f"set-{at}": own for at in range(3)}, devices)
    assert [gpu.devices for gpu in gpus] == [
        tuple(keys("old")),
        *(tuple(keys(f"gpu-{at}", f"half-{at}")) for at in range(3)),
    ]
    assert taken(gpus, "half-0", "gpu-2", "old") == [1000, 500, 0, 1000]


def test_counter_sets_of_the_same_devices_are_one_gpu():
    whole = {"compute": {"units": 8}, "memory": {"bytes": 80}}
    gpus = offered(whole, {"gpu-0": whole, "part": {"compute": {"units": 2}, "memory": {"bytes": 40}}})
    assert (taken(gpus, "part"), taken(gpus, "gpu-0")) == ([500], [1000])


def test_a_partition_of_one_counter_set_is_a_part():
    whole = {"compute": {"units": 8}, "memory": {"bytes": 80}}
    gpus = offered(whole, {"gpu-0": whole, "part": {"compute": {"units": 2}}})
    assert (taken(gpus, "part"), taken(gpus, "gpu-0")) == ([250], [1000])


def test_counters_shared_by_a_nodes_gpus_are_no_gpu():
    sets = {"card-0": {"memory": 80}, "card-1": {"memory": 80}, "board": {"links": 4}}
    devices = {f"gpu-{at}": {f"card-{at}": {"memory": 80}, "board": {"links": 2}} for at in range(2)}
    devices |= {f"half-{at}": {f"card-{at}": {"memory": 40}, "board": {"links": 1}} for at in range(2)}
    gpus = offered(sets, devices)
    assert (taken(gpus, "gpu-0"), taken(gpus, "half-1")) == ([1000, 0], [0, 500])


def test_a_device_drawing_two_gpus_takes_both():
    sets = {"card-0": {"memory": 80}, "card-1": {"memory": 80}}
    devices = {f"gpu-{at}": {f"card-{at}": {"memory": 80}} for at in range(2)} | {"pair": sets}
    gpus = offered(sets, devices)
    assert (taken(gpus, "pair"), taken(gpus, "gpu-1")) == ([1000, 1000], [0, 1000])


def test_devices_without_amounts_are_measured_by_feature_counts():
    gpus = offered(
        {"card": {"left": 1, "right": 1}}, {"gpu": {"card": {"left": 1, "right": 1}}, "l": {"card": {"left": 1}}}
    )
    assert taken(gpus, "l") == [500]


def test_missing_or_empty_counters_are_ignored():
    gpus = offered({"card": {"none": 0, "memory": 8}}, {"gpu": {"card": {"none": 0, "memory": 8}, "other": {"x": 1}}})
    assert taken(gpus, "gpu") == [1000]


def test_devices_of_other_drivers_are_no_gpus():
    assert gpus_of([DeviceSlice(name="s", driver="nic.example.com", pool="p", devices=(Device(name="d"),))]).all == ()
