"""Devices that are allocated many times, and the capacities that requests ask for."""

import pytest

from kai.basics.kubernetes_version import KubernetesVersion
from kai.facts.model.claim import Device, SharePolicy
from kai.plugins.dra.demand import consumption
from tests.unit.plugins.dra.choosing import chosen, placed
from tests.unit.plugins.dra.manifests import CLASS, claim, device, exactly, offer

COUNTERS = [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]


def shared(name, memory):
    return device(name, capacity={"memory": memory}, allowMultipleAllocations=True)


def wanting(memory, **parts):
    return exactly(capacity={"requests": {"memory": memory}}, **parts)


def test_a_device_with_room_is_allocated_many_times():
    slices = offer("n1", shared("d0", "40Gi"), shared("d1", "40Gi"))
    manifests = (CLASS, slices, claim("c", wanting("30Gi")), claim("e", wanting("10Gi")), claim("f", wanting("15Gi")))
    assert chosen(*manifests, claims=("c", "e", "f")) == [("r", "d0"), ("r", "d0"), ("r", "d1")]
    assert chosen(CLASS, slices, claim("c", wanting("50Gi"))) is None


def test_who_names_no_amount_takes_all_of_a_device():
    slices = offer("n1", shared("d0", "40Gi"))
    assert chosen(CLASS, slices, claim("c"), claim("e", wanting("1Gi")), claims=("c", "e")) is None
    assert chosen(CLASS, slices, claim("c")) == [("r", "d0")]


def test_an_unshared_device_needs_the_requested_capacity():
    slices = offer("n1", device("d0", capacity={"memory": "40Gi"}), device("d1", capacity={"memory": "80Gi"}))
    assert chosen(CLASS, slices, claim("c", wanting("60Gi"))) == [("r", "d1")]


GI = (1 << 30) * 1000
RANGE = SharePolicy(default=4, ranged=True, least=4, most=16, step=3)
OPEN = SharePolicy(default=2, ranged=True, least=2)
VALUES = SharePolicy(default=5, values=(5, 10, 20))


@pytest.mark.parametrize(
    ("policy", "asked", "had"),
    [
        (None, None, 24),
        (None, 7, 7),
        (None, 25, None),
        (RANGE, None, 4),
        (RANGE, 1, 4),
        (RANGE, 4, 4),
        (RANGE, 5, 7),
        (RANGE, 8, 10),
        (RANGE, 16, 16),
        (RANGE, 17, None),
        (OPEN, 1, 2),
        (OPEN, 9, 9),
        (OPEN, 25, None),
        (VALUES, None, 5),
        (VALUES, 0, 5),
        (VALUES, 6, 10),
        (VALUES, 20, 20),
        (VALUES, 21, None),
        (SharePolicy(default=3), None, 3),
        (SharePolicy(default=3), 8, 8),
        (SharePolicy(ranged=True, most=8), None, None),
        (SharePolicy(values=(8, 24)), None, 24),
    ],
)
def test_a_shares_consumption_follows_the_capacity_policy(policy, asked, had):
    policies = {} if policy is None else {"memory": policy}
    made = Device(name="x", capacity={"memory": 24}, policies=policies)
    found = consumption(made, () if asked is None else (("memory", asked),))
    assert found == (None if had is None else {"memory": had})


def test_a_capacity_matches_only_its_name_in_the_slice():
    made = Device(name="x", capacity={"memory": 24, "other.io/memory": 8})
    assert consumption(made, (("memory", 5),)) == {"memory": 5, "other.io/memory": 8}
    assert consumption(made, (("memory", 5), ("other.io/memory", 1))) == {"memory": 5, "other.io/memory": 1}
    assert consumption(made, (("d/memory", 5),)) is None


def rationed(name, memory="40Gi", **policy):
    return device(name, allowMultipleAllocations=True) | {
        "capacity": {"memory": {"value": memory, "requestPolicy": policy}}
    }


def asking(memory=None, name="memory"):
    return exactly() if memory is None else exactly(capacity={"requests": {name: memory}})


def consumed(*manifests, claims=("c",)):
    """Return what each device that a pod gets gives of its capacities."""
    placement = placed(*manifests, claims=claims)
    return None if placement is None else [dict(each.consumed) for each in placement.devices()]


def test_consumption_is_reported_under_the_slices_capacity_names():
    slices = offer("n1", device("d0", capacity={"memory": "40Gi", "x.io/bits": "8"}, allowMultipleAllocations=True))
    assert consumed(CLASS, slices, claim("c", asking("1Gi"))) == [{"memory": GI, "x.io/bits": 8000}]
    assert consumed(CLASS, slices, claim("c", asking("1Gi", "gpu.example.com/memory"))) is None


def test_shares_take_what_their_policy_makes_of_their_requests():
    stepped = rationed("d0", default="10Gi", validRange={"min": "10Gi", "max": "30Gi", "step": "10Gi"})
    manifests = (CLASS, offer("n1", stepped), claim("c", asking("11Gi")), claim("e", asking()), claim("f", asking()))
    assert consumed(*manifests, claims=("c", "e", "f")) == [
        {"memory": 20 * GI},
        {"memory": 10 * GI},
        {"memory": 10 * GI},
    ]
    full = (*manifests, claim("g", asking("1")))
    assert consumed(*full, claims=("c", "e", "f", "g")) is None
    assert consumed(CLASS, offer("n1", stepped), claim("c", asking("31Gi"))) is None


def test_a_share_rounds_up_to_a_valid_driver_value():
    listed = rationed("d0", default="1Gi", validValues=["1Gi", "4Gi"])
    assert consumed(CLASS, offer("n1", listed), claim("c", asking("2Gi"))) == [{"memory": 4 * GI}]
    assert consumed(CLASS, offer("n1", listed, rationed("d1")), claim("c", asking("5Gi"))) == [{"memory": 5 * GI}]


def holding(name, **result):
    made = claim(name, held=[("n1", "d0")])
    made["status"]["allocation"]["devices"]["results"][0] |= result
    return made


def test_what_others_consume_is_taken():
    other = holding("o", shareID="s", consumedCapacity={"memory": "30Gi"})
    manifests = (CLASS, offer("n1", shared("d0", "40Gi")), other)
    assert chosen(*manifests, claim("c", asking("10Gi"))) == [("r", "d0")]
    assert chosen(*manifests, claim("c", asking("11Gi"))) is None


def test_a_device_held_whole_has_no_shares_left():
    assert chosen(CLASS, offer("n1", shared("d0", "40Gi")), holding("o"), claim("c", asking("1Gi"))) is None


def test_a_device_is_shared_only_with_multiple_allocations():
    plain = offer("n1", device("d0", allowMultipleAllocations=True))
    devices = placed(CLASS, plain, claim("c"), claim("e"), claims=("c", "e")).devices()
    assert [(each.device, each.shared, each.consumed) for each in devices] == [("d0", True, ())] * 2
    assert not placed(CLASS, offer("n1", "d0"), claim("c")).devices()[0].shared


def drawing(name, **parts):
    draws = [{"counterSet": "card", "counters": {"memory": {"value": "30Gi"}}}]
    return device(name, consumesCounters=draws, **parts)


def test_all_shares_of_a_device_draw_from_counters_once():
    many = drawing("d0", capacity={"memory": "40Gi"}, allowMultipleAllocations=True)
    manifests = (CLASS, offer("n1", many, drawing("d1"), sharedCounters=COUNTERS))
    asked = [claim(name, asking("10Gi")) for name in "cefg"]
    assert chosen(*manifests, *asked, claims=tuple("cefg")) == [("r", "d0")] * 4
    assert chosen(*manifests, claim("c", asking("10Gi")), claim("e"), claims=("c", "e")) is None
    other = holding("o", shareID="s", consumedCapacity={"memory": "10Gi"})
    alone = exactly(selectors=["!device.allowMultipleAllocations"])
    assert chosen(*manifests, claim("e", alone), claims=("e",)) == [("r", "d1")]
    assert chosen(*manifests, other, claim("e", alone), claims=("e",)) is None
    assert chosen(*manifests, other, claim("c", asking("30Gi"))) == [("r", "d0")]


@pytest.mark.parametrize(("minor", "found"), [(36, [("r", "d1")]), (37, None)])
def test_all_devices_excludes_exhausted_shares_before_kubernetes_1_37(minor, found):
    wanted = claim("c", exactly(every=True, capacity={"requests": {"memory": "10Gi"}}))
    slices = offer("n1", shared("d0", "40Gi"), shared("d1", "40Gi"), shared("d2", "5Gi"))
    assert chosen(CLASS, slices, wanted) == [("r", "d0"), ("r", "d1")]
    other = holding("o", shareID="s", consumedCapacity={"memory": "31Gi"})
    assert chosen(CLASS, slices, other, wanted, kubernetes=KubernetesVersion(1, minor)) == found


def test_a_device_for_one_is_asked_for_its_capacity():
    slices = offer("n1", device("d0", capacity={"memory": "40Gi"}), device("d1", capacity={"memory": "80Gi"}))
    assert chosen(CLASS, slices, claim("c", asking("60Gi"))) == [("r", "d1")]
    assert placed(CLASS, slices, claim("c", asking("60Gi"))).devices()[0].consumed == ()


def test_parts_of_a_unit_are_shared_as_parts():
    manifests = (CLASS, offer("n1", shared("d0", "2500m")), *(claim(name, asking("1")) for name in "ce"))
    assert consumed(*manifests, claims=("c", "e")) == [{"memory": 1000}, {"memory": 1000}]
    assert chosen(*manifests, claim("f", asking("1")), claims=("c", "e", "f")) is None
    assert consumed(*manifests, claim("f", asking("500m")), claims=("c", "e", "f"))[2] == {"memory": 500}


def test_parts_of_a_counter_are_drawn_as_parts():
    draws = [{"counterSet": "card", "counters": {"memory": {"value": "1"}}}]
    cards = [{"name": "card", "counters": {"memory": {"value": "2500m"}}}]
    parts = (device(f"d{number}", consumesCounters=draws) for number in range(3))
    manifests = (CLASS, offer("n1", *parts, sharedCounters=cards), *map(claim, "cef"))
    assert chosen(*manifests, claims=("c", "e")) == [("r", "d0"), ("r", "d1")]
    assert chosen(*manifests, claims=("c", "e", "f")) is None
