import pytest

from kai.framework.hooks import Dependence
from kai.plugins.taints import Taints
from tests.unit.plugins.stage import Stage, node, play, pod, snapshot_of


def tainted(name, *taints):
    return node(name, taints=[{"key": key, "value": value, "effect": effect} for key, value, effect in taints])


NODES = (
    node("free"),
    tainted("red", ("team", "red", "NoSchedule")),
    tainted("blue", ("team", "blue", "NoExecute")),
    tainted("shy", ("team", "red", "PreferNoSchedule")),
    tainted("both", ("team", "red", "NoSchedule"), ("special", "", "NoSchedule")),
)


def tolerating(*tolerations):
    return pod("a-0", tolerations=list(tolerations))


def accepting(*tolerations):
    return Stage.of(Taints(), snapshot_of(*NODES, tolerating(*tolerations))).accepting("a-0")


def test_a_pod_without_tolerations_goes_only_where_nothing_repels():
    assert accepting() == ["free", "shy"]


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"key": "team", "operator": "Equal", "value": "red"}, ["free", "red", "shy"]),
        ({"key": "team", "value": "red", "effect": "NoSchedule"}, ["free", "red", "shy"]),
        ({"key": "team", "value": "red", "effect": "NoExecute"}, ["free", "shy"]),
        ({"key": "team", "operator": "Exists"}, ["free", "red", "blue", "shy"]),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, ["free", "blue", "shy"]),
        ({"operator": "Exists"}, ["free", "red", "blue", "shy", "both"]),
        ({"key": "other", "operator": "Exists"}, ["free", "shy"]),
    ],
)
def test_a_toleration_covers_what_kubernetes_says(toleration, expected):
    assert sorted(accepting(toleration)) == sorted(expected)


def test_every_taint_must_be_covered():
    assert accepting({"key": "team", "value": "red"}, {"key": "special", "operator": "Exists"}) == [
        "both",
        "free",
        "red",
        "shy",
    ]


def test_the_first_taint_that_is_not_covered_is_named():
    stage = Stage.of(Taints(), snapshot_of(*NODES, tolerating({"key": "team", "value": "red"})))
    assert stage.reasons("a-0") == [
        "node(s) had untolerated taint {team: blue}",
        "node(s) had untolerated taint {special: }",
    ]


def test_nothing_is_asked_where_no_node_repels():
    assert Stage.of(Taints(), snapshot_of(NODES[0], NODES[3], tolerating())).is_silent


def test_the_answer_depends_on_the_shape_alone():
    assert Stage.of(Taints(), snapshot_of(*NODES, tolerating())).answers.node_filter.depends is Dependence.SHAPE


def test_tolerating_the_taint_of_a_cordoned_node_does_not_open_it():
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned = node("n1", unschedulable=True, taints=[taint])
    everything = {"operator": "Exists"}
    assert play(Taints(), snapshot_of(cordoned, tolerating(everything))).bound == {}


def test_a_cycle_binds_only_where_taints_are_tolerated_and_counts_the_reasons():
    snapshot = snapshot_of(NODES[1], NODES[2], pod("a-0", tolerations=[{"key": "team", "value": "blue"}]), pod("b-0"))
    played = play(Taints(), snapshot)
    assert played.bound == {"a-0": "blue"}
    assert {(count, reason.text) for count, reason in played.waiting_for("b").counts} == {
        (1, "node(s) had untolerated taint {team: blue}"),
        (1, "node(s) had untolerated taint {team: red}"),
    }
