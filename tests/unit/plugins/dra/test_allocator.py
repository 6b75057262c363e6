import pytest

from kai.facts.model.axis import NodeRow
from kai.plugins.dra import Dra
from tests.unit.plugins.dra.choosing import chosen, placed
from tests.unit.plugins.dra.manifests import (
    CLASS,
    GPU_CLASS,
    NIC_CLASS,
    NODE,
    claim,
    claiming,
    device,
    device_class,
    differing,
    exactly,
    first_of,
    matching,
    offer,
)
from tests.unit.plugins.stage import Stage, node, snapshot_of

ROOT = "topology.example.com/root"


def rooted(name, root, **attributes):
    return device(name, attributes={ROOT: root, **attributes})


def test_free_devices_are_taken_in_slice_order():
    assert chosen(CLASS, offer("n1", "z", "a", "m"), claim("c", exactly(count=2))) == [("r", "z"), ("r", "a")]


def test_devices_that_others_hold_are_passed_over():
    other = claim("o", held=[("n1", "d0")], users=["somebody"])
    assert chosen(CLASS, offer("n1", "d0", "d1"), other, claim("c")) == [("r", "d1")]


def test_too_few_devices_refuse_the_node():
    assert chosen(CLASS, offer("n1", "d0"), claim("c", exactly(count=2))) is None


def test_devices_of_another_node_do_not_count():
    assert chosen(CLASS, node("n2"), offer("n2", "d0"), claim("c")) is None


def test_two_claims_do_not_get_the_same_device():
    slices = offer("n1", "d0", "d1")
    assert chosen(CLASS, slices, claim("c"), claim("e"), claims=("c", "e")) == [("r", "d0"), ("r", "d1")]
    assert chosen(CLASS, offer("n1", "d0"), claim("c"), claim("e"), claims=("c", "e")) is None


def test_the_class_and_the_request_both_select():
    picky = device_class(GPU_CLASS, 'device.attributes["gpu.example.com"].index > 0')
    wanted = claim("c", exactly(selectors=['device.attributes["gpu.example.com"].index != 1']))
    devices = [device(f"d{at}", attributes={"index": at}) for at in range(4)]
    assert chosen(picky, offer("n1", *devices), wanted) == [("r", "d2")]


def test_a_selector_that_fails_on_one_device_stops_there():
    fast = 'device.attributes["gpu.example.com"].speed > 1'
    good, bad = device("d0", attributes={"speed": 2}), device("d1")
    one, two = claim("c", exactly(selectors=[fast])), claim("c", exactly(selectors=[fast], count=2))
    assert chosen(CLASS, offer("n1", good, bad), one) == [("r", "d0")]
    assert chosen(CLASS, offer("n1", bad, good), one) is None
    assert chosen(CLASS, offer("n1", good, bad), two) is None
    assert chosen(CLASS, offer("n1", bad, good), claim("o", held=[("n1", "d1")]), one) == [("r", "d0")]
    assert chosen(CLASS, offer("n1", good, bad), claim("c", exactly(selectors=[fast], every=True))) is None


def test_a_failing_selector_refuses_only_nodes_with_failing_devices():
    wanted = claim("c", exactly(selectors=['device.attributes["gpu.example.com"].speed > 1']))
    manifests = (CLASS, node("n2"), offer("n1", "d0"), offer("n2", device("d1", attributes={"speed": 2})), wanted)
    assert chosen(*manifests) is None
    assert chosen(*manifests, node_row=1) == [("r", "d1")]


def test_all_devices_means_every_one_that_matches():
    wanted = claim("c", exactly(every=True, selectors=['device.attributes["gpu.example.com"].good']))
    devices = [device(f"d{at}", attributes={"good": at != 1}) for at in range(3)]
    assert chosen(CLASS, offer("n1", *devices), wanted) == [("r", "d0"), ("r", "d2")]
    held = claim("o", held=[("n1", "d2")])
    assert chosen(CLASS, offer("n1", *devices), held, wanted) is None
    assert chosen(CLASS, wanted) is None


def test_an_administrator_sees_devices_that_are_in_use():
    held = claim("o", held=[("n1", "d0")])
    assert chosen(CLASS, offer("n1", "d0"), held, claim("c", exactly(adminAccess=True))) == [("r", "d0")]


def test_the_first_alternative_that_can_be_had_is_taken():
    wanted = claim("c", first_of("r", exactly("large", 3), exactly("small", 1)))
    assert chosen(CLASS, offer("n1", "d0", "d1"), wanted) == [("r/small", "d0")]
    assert chosen(CLASS, offer("n1", "d0", "d1", "d2"), wanted) == [("r/large", f"d{at}") for at in range(3)]


def test_an_alternative_of_an_unknown_class_is_passed_over():
    wanted = claim("c", first_of("r", exactly("a", of="nothing.example.com"), exactly("b")))
    assert chosen(CLASS, offer("n1", "d0"), wanted) == [("r/b", "d0")]


def test_matching_devices_are_found_without_the_first_device():
    devices = [rooted("d0", "left"), rooted("d1", "right"), rooted("d2", "right")]
    wanted = claim("c", exactly(count=2), constraints=[matching(ROOT)])
    assert chosen(CLASS, offer("n1", *devices), wanted) == [("r", "d1"), ("r", "d2")]
    assert chosen(CLASS, offer("n1", *devices), claim("c", exactly(count=3), constraints=[matching(ROOT)])) is None


def test_devices_of_two_requests_agree_across_drivers():
    gpus = offer("n1", rooted("g0", "left"), rooted("g1", "right"))
    nics = offer("n1", rooted("n0", "right"), driver=NIC_CLASS)
    classes = (
        device_class(GPU_CLASS, 'device.driver == "gpu.example.com"'),
        device_class(NIC_CLASS, 'device.driver == "nic.example.com"'),
    )
    requests = (exactly("gpu"), exactly("nic", of=NIC_CLASS))
    wanted = claim("c", *requests, constraints=[matching(ROOT, "gpu", "nic")])
    assert chosen(*classes, gpus, nics, wanted) == [("gpu", "g1"), ("nic", "n0")]


def test_a_constraint_leaves_other_requests_alone():
    devices = [rooted("d0", "left"), rooted("d1", "right"), rooted("d2", "right")]
    wanted = claim("c", exactly("one"), exactly("two", 2), constraints=[matching(ROOT, "two")])
    assert chosen(CLASS, offer("n1", *devices), wanted) == [("one", "d0"), ("two", "d1"), ("two", "d2")]


def test_a_device_without_the_attribute_satisfies_no_constraint():
    wanted = claim("c", exactly(), constraints=[matching(ROOT)])
    assert chosen(CLASS, offer("n1", "d0", rooted("d1", "left")), wanted) == [("r", "d1")]


def test_devices_differ_in_an_attribute():
    devices = [rooted("d0", "left"), rooted("d1", "left"), rooted("d2", "right")]
    wanted = claim("c", exactly(count=2), constraints=[differing(ROOT)])
    assert chosen(CLASS, offer("n1", *devices), wanted) == [("r", "d0"), ("r", "d2")]


def test_true_and_one_are_different_values():
    devices = [rooted("d0", 1), rooted("d1", True), rooted("d2", 1)]
    wanted = claim("c", exactly(count=2), constraints=[matching(ROOT)])
    assert chosen(CLASS, offer("n1", *devices), wanted) == [("r", "d0"), ("r", "d2")]


def test_a_tainted_device_needs_a_toleration():
    tainted = device("d0", taints=[{"key": "broken", "value": "fan", "effect": "NoSchedule"}])
    slices = offer("n1", tainted, "d1")
    assert chosen(CLASS, slices, claim("c")) == [("r", "d1")]
    for toleration in (
        {"operator": "Exists"},
        {"key": "broken", "value": "fan"},
        {"key": "broken", "operator": "Exists"},
    ):
        assert chosen(CLASS, slices, claim("c", exactly(tolerations=[toleration]))) == [("r", "d0")]
    assert chosen(CLASS, slices, claim("c", exactly(tolerations=[{"key": "broken", "value": "x"}]))) == [("r", "d1")]


COUNTERS = [{"name": "card", "counters": {"memory": {"value": "40Gi"}}}]


def part(name, memory):
    draws = [{"counterSet": "card", "counters": {"memory": {"value": memory}}}]
    return device(name, consumesCounters=draws)


def test_partitions_draw_from_the_counters_they_share():
    parts = offer("n1", part("p0", "30Gi"), part("p1", "20Gi"), part("p2", "20Gi"), sharedCounters=COUNTERS)
    assert chosen(CLASS, parts, claim("c")) == [("r", "p0")]
    assert chosen(CLASS, parts, claim("c", exactly(count=2))) == [("r", "p1"), ("r", "p2")]
    assert chosen(CLASS, parts, claim("c", exactly(count=3))) is None
    held = claim("o", held=[("n1", "p1")], users=["x"])
    assert chosen(CLASS, parts, held, claim("c")) == [("r", "p2")]


def test_a_pool_with_an_unknown_counter_offers_nothing():
    assert chosen(CLASS, offer("n1", part("p0", "1Gi"), "d1"), claim("c")) is None
    other = offer("n1", "d2", pool="other")
    assert chosen(CLASS, offer("n1", part("p0", "1Gi"), "d1"), other, claim("c")) == [("r", "d2")]


def test_a_pool_with_a_duplicate_name_offers_nothing():
    for slices in (
        [offer("n1", "d0", name="a"), offer("n1", "d0", "d1", name="b")],
        [offer("n1", "d0", sharedCounters=COUNTERS, name="a"), offer("n1", sharedCounters=COUNTERS, name="b")],
        [offer("n1", "d0", "d0")],
    ):
        for each in slices:
            each["spec"]["pool"]["resourceSliceCount"] = len(slices)
        assert chosen(CLASS, *slices, claim("c")) is None


def unfinished(*devices, pool="other"):
    made = offer("n1", *devices, pool=pool)
    made["spec"]["pool"]["resourceSliceCount"] = 2
    return made


def test_devices_of_an_incomplete_pool_are_skipped():
    wanted = claim("c", exactly(selectors=['device.attributes["gpu.example.com"].index > 0']))
    known = device("d2", attributes={"index": 1})
    assert chosen(CLASS, unfinished("d1"), offer("n1", known), wanted) == [("r", "d2")]


def test_all_devices_needs_every_pool_of_the_node_complete():
    wanted = claim("c", exactly(every=True))
    manifests = (CLASS, offer("n1", "d0"), unfinished("d1"), node("n2"), offer("n2", "d2"))
    assert chosen(*manifests, wanted) is None
    assert chosen(*manifests, wanted, node_row=1) == [("r", "d2")]


@pytest.mark.parametrize(
    "trait",
    [{"taints": [{"key": "broken", "effect": "NoSchedule"}]}, {"bindingConditions": ["attached"]}],
)
def test_all_devices_includes_those_that_cannot_be_allocated(trait):
    wanted = claim("c", exactly(every=True))
    assert chosen(CLASS, offer("n1", "d0", device("d1", **trait)), wanted) is None
    assert chosen(CLASS, offer("n1", "d0", device("d1", **trait)), claim("c")) == [("r", "d0")]


def test_admin_access_uses_a_device_once_per_claim():
    looking, using = exactly("look", adminAccess=True), exactly("use")
    assert chosen(CLASS, offer("n1", "d0", "d1"), claim("c", looking, using)) == [("look", "d0"), ("use", "d1")]
    assert chosen(CLASS, offer("n1", "d0"), claim("c", looking, using)) is None
    assert chosen(CLASS, offer("n1", "d0"), claim("c", using, looking)) is None
    both = (claim("c", looking), claim("e", using))
    assert chosen(CLASS, offer("n1", "d0"), *both, claims=("c", "e")) is None
    assert chosen(CLASS, offer("n1", "d0"), *both, claims=("e", "c")) == [("use", "d0"), ("look", "d0")]


def test_a_device_that_binds_to_nodes_ties_its_claim():
    slices = offer("", device("d0", bindsToNode=True), allNodes=True)
    allocation = placed(CLASS, slices, claim("c")).claims[0]
    assert [each.values for each in allocation.nodes[0].fields] == [("n1",)]


def test_list_attributes_never_match_between_devices():
    listed = [device(f"d{at}") | {"attributes": {ROOT: {"strings": [f"x{at}"]}}} for at in range(2)]
    assert chosen(CLASS, offer("n1", *listed), claim("c", exactly(count=2), constraints=[matching(ROOT)])) is None


def test_network_devices_serve_every_node():
    slices = offer("", "d0", allNodes=True)
    assert chosen(CLASS, node("n2"), slices, claim("c"), node_row=1) == [("r", "d0")]


def test_a_selector_says_which_nodes_a_device_serves():
    terms = [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r2"]}]}]
    slices = offer("", "d0", nodeSelector={"nodeSelectorTerms": terms})
    manifests = (CLASS, node("n2", {"rack": "r2"}), slices, claim("c"))
    assert chosen(*manifests) is None
    assert chosen(*manifests, node_row=1) == [("r", "d0")]


def test_a_device_may_say_for_itself_where_it_serves():
    slices = offer("", device("d0", nodeName="n2"), device("d1", allNodes=True), perDeviceNodeSelection=True)
    assert chosen(CLASS, node("n2"), slices, claim("c")) == [("r", "d1")]
    assert chosen(CLASS, node("n2"), slices, claim("c"), node_row=1) == [("r", "d0")]


def test_a_claim_holds_at_most_32_devices():
    devices = [f"d{at:02d}" for at in range(40)]
    assert chosen(CLASS, offer("n1", *devices), claim("c", exactly(count=33))) is None
    assert chosen(CLASS, offer("n1", *devices), claim("c", exactly(every=True))) is None
    assert len(chosen(CLASS, offer("n1", *devices), claim("c", exactly(count=32)))) == 32


def test_a_hopeless_search_ends():
    devices = [rooted(f"d{at:02d}", f"root{at % 16}", pair=at // 2) for at in range(32)]
    constraints = [matching(ROOT), matching("gpu.example.com/pair")]
    wanted = claim("c", exactly("one", 10), exactly("two", 10), constraints=constraints)
    assert chosen(CLASS, offer("n1", *devices), wanted) is None


def test_a_search_among_too_many_ways_is_given_up():
    devices = [rooted(f"d{at:02d}", f"root{at}") for at in range(24)]
    wanted = claim("c", exactly("one", 10), exactly("two", 2), constraints=[matching(ROOT, "two")])
    assert chosen(CLASS, offer("n1", *devices), wanted) is None


@pytest.mark.parametrize("terms", [None, "local"])
def test_an_allocation_says_from_where_it_can_be_used(terms):
    slices = offer("n1", "d0") if terms else offer("", "d0", allNodes=True)
    stage = Stage.of(Dra(), snapshot_of(NODE, CLASS, slices, claim("c"), claiming("a-0", "c")))
    allocation = stage.answers.placement.choose(stage.row("a-0"), NodeRow(0)).claims[0]
    if terms:
        assert [each.values for each in allocation.nodes[0].fields] == [("n1",)]
    else:
        assert allocation.nodes is None
