from kai.framework.hooks import Dependence
from kai.plugins.scores import NominatedNode
from tests.unit.plugins.stage import Stage, node, play, pod, snapshot_of

NODES = (node("n1"), node("n2"), node("n3"))


def nominated(name, where):
    return pod(name, status={"nominatedNodeName": where})


def test_the_nominated_node_outranks_the_others():
    assert Stage.of(NominatedNode(), snapshot_of(*NODES, nominated("a-0", "n2"))).scores("a-0") == [0, 10_000_000, 0]


def test_the_weight_is_an_option():
    stage = Stage.of(NominatedNode(weight=5), snapshot_of(*NODES, nominated("a-0", "n3")))
    assert stage.scores("a-0") == [0, 0, 5]


def test_a_node_that_is_gone_nominates_nothing():
    assert Stage.of(NominatedNode(), snapshot_of(*NODES, nominated("a-0", "n9"))).is_silent


def test_only_nominated_pods_are_scored_and_by_shape():
    stage = Stage.of(NominatedNode(), snapshot_of(*NODES, nominated("a-0", "n2"), pod("b-0")))
    assert (stage.is_concerned("a-0"), stage.is_concerned("b-0")) == (True, False)
    assert stage.answers.node_score.depends is Dependence.SHAPE


def test_a_cycle_brings_a_pod_back_to_its_node():
    assert play(NominatedNode(), snapshot_of(*NODES, nominated("a-0", "n3"), pod("b-0"))).bound == {
        "a-0": "n3",
        "b-0": "n1",
    }
