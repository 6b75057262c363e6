import pytest

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.roles.binder.claims import is_wanted, untolerated
from tests.unit.roles.binder.clusters import node, pod


def wanted(labels=None, **spec):
    return is_wanted(structure_as(Pod, pod(**spec)), structure_as(Node, node(labels=labels)))


def affinity(*terms):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def term(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("operator", "values", "label", "expected"),
    [
        ("In", ["a", "b"], "b", True),
        ("In", ["a"], None, False),
        ("NotIn", ["a"], None, True),
        ("NotIn", ["a"], "a", False),
        ("Exists", [], "x", True),
        ("Exists", [], None, False),
        ("DoesNotExist", [], None, True),
        ("DoesNotExist", [], "x", False),
        ("Gt", ["3"], "4", True),
        ("Gt", ["3"], "3", False),
        ("Lt", ["3"], "2", True),
        ("Lt", ["3"], "many", False),
        ("Gt", ["few"], "4", False),
        ("Gt", ["3"], None, False),
    ],
)
def test_operators_mean_what_they_do_in_kubernetes(operator, values, label, expected):
    labels = {} if label is None else {"k": label}
    assert wanted(labels, **affinity(term("k", operator, *values))) is expected


def test_any_term_may_match_but_an_empty_never_does():
    assert wanted({"a": "1"}, **affinity(term("b", "Exists"), term("a", "Exists")))
    assert not wanted({"a": "1"}, **affinity({}))


def test_a_term_may_select_a_node_by_name():
    by_name = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    assert wanted(**affinity(by_name))
    by_name["matchFields"][0]["values"] = ["n2"]
    assert not wanted(**affinity(by_name))


def test_a_node_selector_asks_for_equal_labels():
    assert wanted({"a": "1"}, nodeSelector={"a": "1"})
    assert not wanted({"a": "2"}, nodeSelector={"a": "1"})


TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "k", "value": "w"}, False),
        ({"key": "j", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_tolerations_mean_what_they_do_in_kubernetes(toleration, tolerated):
    tainted = structure_as(Node, node(taints=[TAINT]))
    assert (untolerated(structure_as(Pod, pod(tolerations=[toleration])), tainted) is None) is tolerated


def test_a_taint_that_only_prefers_keeps_nobody_away():
    tainted = structure_as(Node, node(taints=[{**TAINT, "effect": "PreferNoSchedule"}]))
    assert untolerated(structure_as(Pod, pod()), tainted) is None


def test_a_cordoned_node_is_tainted():
    cordoned = structure_as(Node, node(unschedulable=True))
    assert untolerated(structure_as(Pod, pod()), cordoned).key == "node.kubernetes.io/unschedulable"
    toleration = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    assert untolerated(structure_as(Pod, pod(tolerations=[toleration])), cordoned) is None
