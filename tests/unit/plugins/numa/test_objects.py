import json

import pytest

from kai.plugins.numa import Numa
from kai.plugins.numa.zones import NumaLayout, NumaZone, layouts_of, records_of
from tests.unit.intake.making import bind_request, node, other, pod, taken
from tests.unit.plugins.stage import Stage

VERSION = "topology.node.k8s.io/v1alpha2"


def zone(name, kind="Node", **amounts):
    resources = [
        {"name": key, "capacity": text, "allocatable": text, "available": "1"} for key, text in amounts.items()
    ]
    return {"name": name, "type": kind, "resources": resources}


def zones(*each, **body):
    return other("NodeResourceTopology", VERSION, "n", zones=list(each), **body)


def view_of(*manifests):
    return Stage.of(Numa(), taken(*manifests)).session.view


def layout(*each, **body) -> NumaLayout:
    (found,) = layouts_of(view_of(node("n"), zones(*each, **body)))
    assert found is not None
    return found


def records(*manifests):
    view = view_of(*manifests)
    return records_of(view, layouts_of(view))


def record(*entries) -> str:
    return json.dumps([{"zone": name, "amount": amount} for name, amount in entries])


def running(**annotations):
    keys = {"observed": "kai.scheduler/numa-placement-observed", "predicted": "kai.scheduler/numa-placement-predicted"}
    return pod("a", phase="Running", node="n", annotations={keys[name]: text for name, text in annotations.items()})


def test_zones_come_in_the_order_of_their_numbers():
    found = layout(zone("node-10", cpu="4"), zone("node-2", cpu="2"), zone("socket-0", kind="Socket")).zones
    assert found == (
        NumaZone(name="node-2", allocatable=(("cpu", 2000),), available=(("cpu", 1000),)),
        NumaZone(name="node-10", allocatable=(("cpu", 4000),), available=(("cpu", 1000),)),
    )


@pytest.mark.parametrize(
    ("body", "policy", "scope"),
    [
        ({}, "none", "container"),
        ({"topologyPolicies": ["SingleNUMANodePodLevel"]}, "single-numa-node", "pod"),
        ({"topologyPolicies": ["SingleNUMANodeContainerLevel"]}, "single-numa-node", "container"),
        ({"topologyPolicies": ["Restricted"]}, "restricted", "container"),
        ({"topologyPolicies": ["RestrictedPodLevel"]}, "restricted", "pod"),
        ({"topologyPolicies": ["BestEffortPodLevel"]}, "best-effort", "pod"),
        ({"topologyPolicies": ["None"]}, "none", "container"),
        ({"topologyPolicies": ["Unheard"]}, "none", "container"),
        (
            {
                "topologyPolicies": ["Restricted"],
                "attributes": [
                    {"name": "topologyManagerPolicy", "value": "best-effort"},
                    {"name": "topologyManagerScope", "value": "pod"},
                ],
            },
            "best-effort",
            "pod",
        ),
    ],
)
def test_attributes_name_the_policy_before_the_older_list(body, policy, scope):
    found = layout(zone("node-0", cpu="4"), **body)
    assert (found.policy, found.scope) == (policy, scope)


def test_a_node_without_such_an_object_has_no_layout():
    assert layouts_of(view_of(node("m"), zones(zone("node-0")))) == (None,)


def test_observed_zones_precede_the_bind_request_and_prediction():
    cluster = [node("n"), zones(zone("node-0", cpu="4"), zone("node-1", cpu="4"))]
    request = bind_request("a", "n", spec={"predictedNUMAZones": [{"zone": "node-1", "amount": {"cpu": "2"}}]})
    first, third = record(("node-0", {"cpu": "1"})), record(("node-1", {"cpu": "3", "nvidia.com/gpu": "1"}))
    everything = records(running(observed=first, predicted=third), request, *cluster)
    assert everything == {0: (("node-0", (("cpu", 1000),)),)}
    assert records(running(predicted=third), request, *cluster) == {0: (("node-1", (("cpu", 2000),)),)}
    assert records(running(predicted=third), *cluster) == {0: (("node-1", (("cpu", 3000), ("gpu", 1000))),)}


def test_an_empty_annotation_falls_through_to_the_next_source():
    cluster = [node("n"), zones(zone("node-0", cpu="4"), zone("node-1", cpu="4"))]
    request = bind_request("a", "n", spec={"predictedNUMAZones": [{"zone": "node-1", "amount": {"cpu": "2"}}]})
    predicted = record(("node-0", {"cpu": "3"}))
    for nothing in ("", "nonsense", "[]"):
        found = records(running(observed=nothing, predicted=predicted), request, *cluster)
        assert found == {0: (("node-1", (("cpu", 2000),)),)}
        found = records(running(observed=nothing, predicted=predicted), *cluster)
        assert found == {0: (("node-0", (("cpu", 3000),)),)}


def test_zones_without_a_number_come_last():
    found = layout(zone("first", cpu="1"), zone("node-3", cpu="1"), zone("node-0", cpu="1"))
    assert [each.name for each in found.zones] == ["node-0", "node-3", "first"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "{}",
        "[1]",
        '[{"amount": {"cpu": "1"}}]',
        '[{"zone": "node-0", "amount": ["cpu"]}]',
        '[{"zone": "node-0", "amount": {"cpu": "lots"}}]',
        '[{"zone": "node-0", "amount": {"cpu": "-1"}}]',
        '[{"zone": "node-0", "amount": {"cpu": true}}]',
        "[" * 100_000,
        record(("node-0", {"cpu": "1"}), ("node-7", {"cpu": "1"})),
    ],
)
def test_an_unreadable_record_or_unknown_zone_is_ignored(text):
    cluster = [node("n"), zones(zone("node-0", cpu="4"))]
    assert records(running(observed=text), *cluster) == {}


def test_records_count_only_on_nodes_with_zones():
    assert records(running(observed=record(("node-0", {"cpu": "1"}))), node("n")) == {}


def test_numbers_stand_for_quantities():
    cluster = [node("n"), zones(zone("node-0", cpu="4"))]
    assert records(running(observed=record(("node-0", {"cpu": 1.5}))), *cluster) == {0: (("node-0", (("cpu", 1500),)),)}


def test_two_names_of_one_resource_are_added():
    found = layout(zone("node-0", **{"nvidia.com/gpu": "1", "amd.com/gpu": "2"}))
    assert found.zones[0].allocatable == (("gpu", 3000),)
