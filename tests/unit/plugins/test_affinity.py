import pytest

from kai.framework.hooks import Dependence
from kai.plugins.node_filters import REFUSED, Affinity
from tests.unit.plugins.stage import Stage, node, play, pod, snapshot_of

NODES = (
    node("n1", {"disk": "ssd", "generation": "1"}),
    node("n2", {"disk": "hdd", "generation": "2"}),
    node("n3", {"disk": "ssd", "generation": "3"}),
    node("n4"),
)


def affine(*terms):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"nodeAffinity": required}


def labels(key, operator, *values):
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def names(operator, *values):
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


def accepting(**spec):
    return Stage.of(Affinity(), snapshot_of(*NODES, pod("a-0", **spec))).accepting("a-0")


def test_a_selector_wants_every_label():
    assert accepting(nodeSelector={"disk": "ssd"}) == ["n1", "n3"]
    assert accepting(nodeSelector={"disk": "ssd", "generation": "3"}) == ["n3"]
    assert accepting(nodeSelector={"disk": "tape"}) == []


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (labels("disk", "In", "ssd", "tape"), ["n1", "n3"]),
        (labels("disk", "In", "ssd", "hdd"), ["n1", "n2", "n3"]),
        (labels("disk", "NotIn", "ssd"), ["n2", "n4"]),
        (labels("disk", "Exists"), ["n1", "n2", "n3"]),
        (labels("disk", "DoesNotExist"), ["n4"]),
        (labels("generation", "Gt", "1"), ["n2", "n3"]),
        (labels("generation", "Lt", "2"), ["n1"]),
        (labels("disk", "Gt", "1"), []),
        (names("In", "n2"), ["n2"]),
        (names("NotIn", "n2"), ["n1", "n3", "n4"]),
        ({}, []),
    ],
)
def test_an_expression_selects_what_kubernetes_says(term, expected):
    assert accepting(affinity=affine(term)) == expected


def test_terms_are_alternatives_and_expressions_are_not():
    both = labels("disk", "In", "ssd") | names("NotIn", "n1")
    assert accepting(affinity=affine(both)) == ["n3"]
    assert accepting(affinity=affine(both, names("In", "n4"))) == ["n3", "n4"]


def test_selector_and_affinity_must_both_hold():
    assert accepting(nodeSelector={"disk": "ssd"}, affinity=affine(names("In", "n1", "n2"))) == ["n1"]


def test_an_affinity_without_terms_selects_nothing():
    assert accepting(affinity=affine()) == []


def test_pods_that_select_nothing_are_not_asked_about():
    stage = Stage.of(Affinity(), snapshot_of(*NODES, pod("a-0"), pod("b-0", nodeSelector={"disk": "ssd"})))
    assert not stage.is_concerned("a-0")
    assert stage.is_concerned("b-0")


def test_nothing_is_asked_where_no_pod_selects_nodes():
    assert Stage.of(Affinity(), snapshot_of(*NODES, pod("a-0"))).is_silent


def test_node_affinity_depends_on_shape_without_calls_per_pod():
    stage = Stage.of(Affinity(), snapshot_of(*NODES, pod("a-0", nodeSelector={"disk": "ssd"})))
    assert stage.answers.node_filter.depends is Dependence.SHAPE
    assert not stage.session.policy.dynamic.any()


def test_refused_nodes_are_explained_in_the_words_of_kubernetes():
    stage = Stage.of(Affinity(), snapshot_of(*NODES, pod("a-0", nodeSelector={"disk": "hdd"})))
    assert stage.reasons("a-0") == [REFUSED] * 3


def test_a_cycle_binds_by_selector_and_reports_mismatches():
    played = play(
        Affinity(),
        snapshot_of(*NODES, pod("a-0", nodeSelector={"disk": "hdd"}), pod("b-0", nodeSelector={"disk": "tape"})),
    )
    assert played.bound == {"a-0": "n2"}
    (count, reason), *_ = played.waiting_for("b").counts
    assert (count, reason.text) == (4, "node(s) didn't match Pod's node affinity/selector")
