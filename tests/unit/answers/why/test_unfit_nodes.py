"""Nodes that are cordoned, not ready or short of GPUs: which they are, and which change of them is tried."""

import attrs
import pytest

from kai.answers.offline.run import simulate
from kai.answers.outcomes.node_occupancy import occupancy, recovered, repaired, uncordoned
from kai.answers.outcomes.overview import overview
from kai.answers.why.explanation import JobExplanation, explained
from kai.api.kubernetes.meta import Condition
from kai.api.kubernetes.node import Taint
from kai.lab.scenarios.scenario import read_short

QUEUES = {"root": {"quota": 64}, "a": {"parent": "root", "quota": 64}}
SICK = {"n1": {"gpu": 8, "cordoned": True}, "n2": {"gpu": 8}, "n3": {"gpu": 8, "ready": False}, "n4": {"gpu": 8}}


def outcome_of(groups, nodes, changed=None):
    document = {"about": "x", "cluster": {"nodes": nodes}, "queues": QUEUES, "groups": groups, "run": ["allocate"]}
    case = read_short(document, "nodes")
    nodes = tuple((changed or {}).get(each.metadata.name, lambda node: node)(each) for each in case.objects.nodes)
    return simulate(attrs.evolve(case, objects=attrs.evolve(case.objects, nodes=nodes)))


def why(groups, nodes, changed=None) -> JobExplanation:
    outcome = outcome_of(groups, nodes, changed)
    return explained(outcome, overview(outcome)).jobs[-1]


def proof(explanation):
    return {each.label: each.text for each in explanation.evidence}


def told(explanation):
    return {
        each.change.text: (str(each.result), each.started, each.waiting) for each in explanation.suggestions.changes
    }


def losing(count):
    """Return what makes a node offer so many GPUs fewer than it has."""

    def lost(node):
        offered = {**node.status.allocatable, "nvidia.com/gpu": str(8 - count)}
        return attrs.evolve(node, status=attrs.evolve(node.status, allocatable=offered))

    return lost


def test_each_node_out_of_service_is_named_and_tried():
    """The cluster of a first use: 5 pods of 8 GPUs, and of 4 nodes one is cordoned, one not ready, one lost a GPU."""
    gang = {"queue": "a", "members": 4, "each": {"gpu": 8}, "minimum": 1}
    each = why({"gang": gang}, SICK, {"n2": losing(1)})
    assert proof(each)["cordoned"] == "n1"
    assert proof(each)["not ready"] == "n3"
    assert proof(each)["unhealthy"] == "n2 has 1 GPU that is not allocatable"
    assert told(each) == {
        "uncordon n1": ("starts", 2, 2),
        "n3 ready again": ("starts", 2, 2),
        "the unhealthy GPU of n2 back": ("starts", 2, 2),
        "all of n1, n2, n3 back": ("starts", 4, 0),
    }


def test_one_nodes_return_makes_that_of_all_redundant():
    each = why({"g": {"queue": "a", "members": 3, "each": {"gpu": 8}}}, SICK)
    assert told(each).keys() >= {"uncordon n1", "n3 ready again"}
    assert not any(text.startswith("all of") for text in told(each))


def test_as_few_nodes_come_back_as_it_takes():
    nodes = {f"n{at}": {"gpu": 8, "cordoned": True} for at in range(1, 5)}
    each = why({"g": {"queue": "a", "members": 2, "each": {"gpu": 8}}}, nodes)
    assert told(each)["uncordon n1, n2"] == ("starts", 2, 0)


def test_a_cordoned_and_unready_node_needs_both_changes():
    each = why({"g": {"queue": "a", "each": {"gpu": 8}}}, {"n1": {"gpu": 8, "cordoned": True, "ready": False}})
    assert proof(each)["cordoned and not ready"] == "n1"
    assert told(each)["all of n1 back"] == ("starts", 1, 0)


def test_unavailable_nodes_show_since_when_and_why():
    now = outcome_of({}, SICK).last.snapshot.now

    def stopped(node):
        bad = Condition(type="Ready", status="Unknown", reason="NodeStatusUnknown", last_transition_time=now - 7200)
        return attrs.evolve(node, status=attrs.evolve(node.status, conditions=(bad,)))

    def drained(node):
        taint = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule", time_added=now - 600)
        return attrs.evolve(node, spec=attrs.evolve(node.spec, taints=(taint,)))

    groups = {"g": {"queue": "a", "members": 4, "each": {"gpu": 8}}}
    each = why(groups, SICK, {"n1": drained, "n3": stopped})
    assert proof(each)["cordoned"] == "n1 (for 10m)"
    assert proof(each)["not ready"] == "n3 (for 2h, NodeStatusUnknown)"
    assert told(each)["all of n1, n3 back"] == ("starts", 4, 0)


@pytest.mark.parametrize(
    ("node", "closed", "failed"), [("n1", "cordoned", 0), ("n2", "", 1000), ("n3", "not ready", 0)]
)
def test_a_node_says_what_is_wrong_with_it(node, closed, failed):
    outcome = outcome_of({}, SICK, {"n2": losing(1)})
    found = occupancy(outcome, overview(outcome), node)
    assert (found.closed, found.failed) == (closed, failed)


def test_what_comes_back_keeps_what_an_administrator_said():
    node = outcome_of({}, SICK, {}).case.objects.nodes[0]
    own = Taint(key="dedicated", value="x", effect="NoSchedule")
    not_ready = Taint(key="node.kubernetes.io/not-ready", effect="NoExecute")
    cordon = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
    marked = attrs.evolve(node, spec=attrs.evolve(node.spec, taints=(own, not_ready, cordon)))
    assert uncordoned(marked).spec.taints == (own, not_ready)
    assert recovered(marked).spec.taints == (own, cordon)
    assert (uncordoned(marked).spec.unschedulable, recovered(marked).spec.unschedulable) == (False, True)
    assert repaired(losing(3)(node)) == node


def test_the_intended_label_value_is_suggested_for_busy_nodes():
    labels = {"model": "NVIDIA-H100-80GB-HBM3"}
    nodes = {"n1": {"gpu": 8, "labels": labels}, "n2": {"gpu": 8, "labels": {"model": "NVIDIA-A100-SXM4-40GB"}}}
    groups = {
        "runs": {"queue": "a", "each": {"gpu": 8}, "runs_on": "n1"},
        "g": {"queue": "a", "each": {"gpu": 1}, "selector": {"model": "NVIDIA-H100-80G-HBM3"}},
    }
    found = told(why(groups, nodes))
    assert found["selector model NVIDIA-H100-80G-HBM3 -> NVIDIA-H100-80GB-HBM3"][0] == "waits"
    assert found["selector model NVIDIA-H100-80G-HBM3 -> NVIDIA-A100-SXM4-40GB"][0] == "starts"
