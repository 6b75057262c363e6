import json

import pytest

from kai.model.node import NumaLayout, NumaZone
from tests.unit.intake.making import bind_request, node, other, pod, taken

VERSION = "topology.node.k8s.io/v1alpha2"


def zone(name, kind="Node", **amounts):
    resources = [
        {"name": key, "capacity": text, "allocatable": text, "available": "1"} for key, text in amounts.items()
    ]
    return {"name": name, "type": kind, "resources": resources}


def zones(*each, **body):
    return other("NodeResourceTopology", VERSION, "n", zones=list(each), **body)


def layout(*each, **body) -> NumaLayout:
    found = taken(node("n"), zones(*each, **body)).nodes[0].numa
    assert found is not None
    return found


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
    assert taken(node("m"), zones(zone("node-0"))).nodes[0].numa is None


def test_what_was_observed_counts_before_the_bind_request_and_that_before_the_prediction():
    cluster = [node("n"), zones(zone("node-0", cpu="4"), zone("node-1", cpu="4"))]
    request = bind_request("a", "n", spec={"predictedNUMAZones": [{"zone": "node-1", "amount": {"cpu": "2"}}]})
    first, third = record(("node-0", {"cpu": "1"})), record(("node-1", {"cpu": "3", "nvidia.com/gpu": "1"}))
    everything = taken(running(observed=first, predicted=third), request, *cluster)
    assert everything.pod_numa == {0: (("node-0", (("cpu", 1000),)),)}
    assert taken(running(predicted=third), request, *cluster).pod_numa == {0: (("node-1", (("cpu", 2000),)),)}
    assert taken(running(predicted=third), *cluster).pod_numa == {0: (("node-1", (("cpu", 3000), ("gpu", 1000))),)}


def test_an_annotation_that_says_nothing_leaves_the_word_to_the_next_source():
    cluster = [node("n"), zones(zone("node-0", cpu="4"), zone("node-1", cpu="4"))]
    request = bind_request("a", "n", spec={"predictedNUMAZones": [{"zone": "node-1", "amount": {"cpu": "2"}}]})
    predicted = record(("node-0", {"cpu": "3"}))
    for nothing in ("", "nonsense", "[]"):
        found = taken(running(observed=nothing, predicted=predicted), request, *cluster).pod_numa
        assert found == {0: (("node-1", (("cpu", 2000),)),)}
        found = taken(running(observed=nothing, predicted=predicted), *cluster).pod_numa
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
        record(("node-0", {"cpu": "1"}), ("node-7", {"cpu": "1"})),
    ],
)
def test_a_record_that_cannot_be_read_or_names_an_unknown_zone_is_no_record(text):
    cluster = [node("n"), zones(zone("node-0", cpu="4"))]
    assert taken(running(observed=text), *cluster).pod_numa == {}


def test_records_count_only_on_nodes_with_zones():
    assert taken(running(observed=record(("node-0", {"cpu": "1"}))), node("n")).pod_numa == {}
