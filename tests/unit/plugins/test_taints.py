from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.facts.model.constraints import Taint, Toleration, tolerates
from kai.framework.hooks import Dependence
from kai.plugins import node_filters as module
from kai.plugins.node_filters import Taints
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


def test_tolerating_its_taint_does_not_open_a_cordoned_node():
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    cordoned = node("n1", unschedulable=True, taints=[taint])
    everything = {"operator": "Exists"}
    assert play(Taints(), snapshot_of(cordoned, tolerating(everything))).bound == {}


def test_a_cycle_binds_by_toleration_and_counts_the_taints():
    snapshot = snapshot_of(NODES[1], NODES[2], pod("a-0", tolerations=[{"key": "team", "value": "blue"}]), pod("b-0"))
    played = play(Taints(), snapshot)
    assert played.bound == {"a-0": "blue"}
    assert {(count, reason.text) for count, reason in played.waiting_for("b").counts} == {
        (1, "node(s) had untolerated taint {team: blue}"),
        (1, "node(s) had untolerated taint {team: red}"),
    }


KEYS, VALUES = st.sampled_from(["team", "disk", "zone"]), st.sampled_from(["", "red", "5", "7"])
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])
TAINTS = st.lists(st.tuples(KEYS, VALUES, EFFECTS), max_size=4)
OPERATORS = st.sampled_from(["Equal", "Exists", "", "Gt", "Lt"])
TOLERATIONS = st.builds(
    lambda *parts: dict(zip(("key", "operator", "value", "effect"), parts, strict=True)),
    st.sampled_from(["", "team", "disk", "other"]),
    OPERATORS,
    VALUES,
    st.sampled_from(["", "NoSchedule", "NoExecute"]),
)


@given(st.lists(TAINTS, min_size=1, max_size=5), st.lists(TOLERATIONS, max_size=4))
def test_the_first_repelling_taint_equals_that_of_plain_search(tainted_by, tolerations):
    nodes = [tainted(f"n{at}", *taints) for at, taints in enumerate(tainted_by)]
    stage = Stage.of(Taints(), snapshot_of(*nodes, tolerating(*tolerations)))
    expected = [_first_repelling(taints, tolerations) for taints in tainted_by]
    if stage.is_silent:
        assert not any(effect != "PreferNoSchedule" for taints in tainted_by for _, _, effect in taints)
        return
    assert stage.accepting("a-0") == [f"n{at}" for at, taint in enumerate(expected) if taint is None]
    assert stage.reasons("a-0") == [
        f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}" for taint in expected if taint is not None
    ]


def _first_repelling(taints, tolerations):
    made = [Toleration(each["key"], each["operator"] or "Equal", each["value"], each["effect"]) for each in tolerations]
    repelling = (Taint(*each) for each in taints if each[2] != "PreferNoSchedule")
    return next((taint for taint in repelling if not any(tolerates(each, taint) for each in made)), None)


def test_a_toleration_is_compared_only_with_its_keys_taints():
    """Each of many nodes may have taints of its own, and each pod tolerations: all pairs would be a million."""
    nodes = [tainted(f"n{at}", (f"key-{at}", "", "NoSchedule")) for at in range(40)]
    wanted = [{"key": f"key-{at}", "operator": "Exists"} for at in range(30)]
    pods = [pod(f"{name}-0", requests={"cpu": name}, tolerations=wanted) for name in ("1", "2")]
    stage = Stage.of(Taints(), snapshot_of(*nodes, *pods))
    with mock.patch.object(module, "tolerates", wraps=tolerates) as compared:
        for name in ("1-0", "2-0"):
            assert sorted(stage.accepting(name)) == sorted(f"n{at}" for at in range(30))
    assert compared.call_count == 30
