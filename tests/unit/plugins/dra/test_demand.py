import numpy as np
import pytest

from kai.facts.model.claim import Claim, Device, DeviceClass, DeviceRequest, DeviceSlice
from kai.facts.model.constraints import Taint, Toleration
from kai.facts.model.device_selectors import Selectors
from kai.facts.model.pod import Node
from kai.plugins.dra.demand import Demands
from kai.plugins.dra.inventory import take_inventory

CLASSES = {"gpu": DeviceClass(name="gpu", selectors=('device.driver == "d"',))}
DEVICES = (
    Device(name="a", attributes={"d/model": "x"}, capacity={"d/memory": 10}),
    Device(name="b", attributes={"d/model": "y"}, taints=(Taint("k", "v", "NoSchedule"),)),
    Device(name="c", taints=(Taint("k", "v", "None"),)),
)


def demand(*requests, **parts):
    slices = (DeviceSlice(name="s", driver="d", pool="p", devices=DEVICES, node="n"),)
    inventory = take_inventory(slices, (Node(name="n"),), lambda _: np.zeros(1, np.bool_))
    claim = Claim(namespace="default", name="c", uid="c", requests=requests, **parts)
    return Demands(inventory, CLASSES, Selectors()).of(claim)


def request(name="r", **parts):
    return DeviceRequest(name=name, device_class=parts.pop("device_class", "gpu"), **parts)


def matching(*requests):
    return [list(want.matching) for wants in demand(*requests).requests for want in wants]


def test_a_want_knows_which_devices_match_it():
    assert matching(request()) == [[True, False, True]]
    assert matching(request(tolerations=(Toleration("k", "Exists"),))) == [[True, True, True]]
    assert matching(request(capacity=(("d/memory", 5),))) == [[True, False, False]]


def test_a_failing_selector_names_the_devices_it_failed_on():
    want = demand(request(selectors=('device.attributes["d"].model == "x"',))).requests[0][0]
    assert list(want.matching) == [True, False, False]
    assert list(want.faulty) == [False, False, True]
    assert "model" in want.fault


def test_an_unknown_class_matches_nothing():
    want = demand(request(device_class="nobody")).requests[0][0]
    assert not want.matching.any()
    assert want.fault == "no device class nobody"


def test_alternatives_are_wants_with_both_names():
    wants = demand(DeviceRequest(name="r", device_class="", alternatives=(request("x"), request("y")))).requests[0]
    assert [want.name for want in wants] == ["r/x", "r/y"]


def test_equal_requests_share_their_answer():
    first, second = demand(request("r"), request("r")).requests
    assert first[0] is second[0]


@pytest.mark.parametrize(
    ("asked", "simple"),
    [
        ([request()], True),
        ([request(count=4)], True),
        ([request("a"), request("b")], False),
        ([request(all_devices=True)], False),
        ([request(capacity=(("d/memory", 1),))], True),
        ([DeviceRequest(name="r", device_class="", alternatives=(request("x"), request("y")))], False),
        ([request(count=33)], False),
    ],
)
def test_counting_is_enough_for_one_plain_request(asked, simple):
    assert demand(*asked).simple == simple
