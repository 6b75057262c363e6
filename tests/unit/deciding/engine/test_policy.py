import attrs
import numpy as np
import pytest

from kai.basics.errors import PluginError
from kai.deciding.engine.cycle import Profile
from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import Session
from kai.facts.model.axis import PodRow
from kai.facts.model.pod import Status
from kai.framework.decisions import Recorder
from kai.framework.hooks import Dependence, NodeFilter, NodeScore, NodeWait, Placement, PluginUse, PodFilter
from kai.framework.terms import Availability
from tests.doubles.audit import audit
from tests.unit.plugins.stage import node, pod, snapshot_of

NODES = tuple(node(f"n{number}") for number in range(4))


@attrs.frozen
class ByCpu:
    """Take out node ``cpu % 3`` and score the nodes by ``cpu % 2``: pods differ in more than their answers."""

    def open(self, session):
        def amount(row):
            return int(session.facts.shapes.request[session.shape_of(row), 0]) // 1000

        return (
            NodeFilter(lambda row, nodes: nodes != amount(row) % 3, depends=Dependence.SHAPE),
            NodeScore(lambda row, nodes: nodes * float(amount(row) % 2), depends=Dependence.SHAPE),
        )


def session_with(*plugins, pods=12):
    uses = tuple(PluginUse(name=f"plugin-{at}", plugin=plugin) for at, plugin in enumerate(plugins))
    made = [pod(f"a-{number}", requests={"cpu": str(1 + number)}) for number in range(pods)]
    return Session(snapshot_of(*NODES, *made), Profile(actions=(), plugins=uses), Recorder(), Silent())


def test_shapes_with_equal_answers_share_a_row():
    session = session_with(ByCpu())
    policy, shapes = session.policy, session.facts.shapes
    policy.prepare_all(np.arange(12), session.all_nodes)
    assert len(set(shapes.mask.tolist())) == 3
    assert len(set(shapes.score.tolist())) == 2
    for row in range(12):
        shape = int(session.facts.pods.shape[row])
        cpu = int(shapes.request[shape, 0]) // 1000
        assert policy.vectors.masks[shapes.mask[shape]].tolist() == [at != cpu % 3 for at in range(4)]
        assert policy.vectors.scores[shapes.score[shape]].tolist() == [at * float(cpu % 2) for at in range(4)]


def test_answers_that_say_nothing_are_the_neutral_row():
    session = session_with()
    before = session.policy.vectors
    session.policy.prepare(0, PodRow(0), session.all_nodes)
    assert session.facts.shapes.mask[0] == session.facts.shapes.score[0] == 0
    assert session.policy.vectors is before


def test_a_shape_is_asked_about_once():
    asked = []

    @attrs.frozen
    class Counting:
        def open(self, session):
            def accept(row, nodes):
                asked.append(int(row))
                return np.ones(len(nodes), np.bool_)

            return [NodeFilter(accept, depends=Dependence.SHAPE)]

    session = session_with(Counting(), pods=2)
    session.policy.prepare_all(np.array([0, 1, 0]), session.all_nodes)
    session.policy.prepare_all(np.array([1, 0]), session.all_nodes)
    assert asked == [0, 1]


# ------------------------------------------------------------------------------------------------------ pods that wait


@attrs.frozen
class WaitOn:
    """Let every pod wait on some nodes."""

    names: tuple[str, ...]

    def open(self, session):
        rows = [session.snapshot.node_rows[name] for name in self.names]
        return [NodeWait(lambda _row, nodes: np.isin(nodes, rows))]


@attrs.frozen
class Available:
    """Rate idle nodes as the built-in plugin does."""

    def open(self, session):
        return [Availability(weight=1000.0)]


def placed(session, *, promise=False):
    """Place the first pod; return where it went and how."""
    with session.statement("test") as statement:
        statement.place_pods(np.array([0]), session.all_nodes, session.no_extra, promise=promise)
        decisions = statement.commit()
    return [(type(each).__name__, session.snapshot.nodes[each.node].name) for each in decisions]


def test_a_pod_that_must_wait_is_promised_its_place():
    session = session_with(WaitOn(("n0", "n1", "n2", "n3")), pods=1)
    assert placed(session) == [("Nominate", "n0")]
    assert session.columns.status[0] == Status.PIPELINED
    audit(session.ledger)


def test_a_node_without_waiting_scores_higher():
    session = session_with(Available(), WaitOn(("n0", "n1", "n3")), pods=1)
    scores, waits = session.node_scores(0, session.all_nodes, session.no_extra)
    assert waits.tolist() == [True, True, False, True]
    assert (scores[2] - scores[[0, 1, 3]]).tolist() == [1000.0] * 3
    assert placed(session) == [("Bind", "n2")]


def test_pods_wait_for_every_plugin_that_says_so():
    session = session_with(WaitOn(("n0",)), WaitOn(("n3",)), pods=1)
    assert session.policy.must_wait(PodRow(0), session.all_nodes).tolist() == [True, False, False, True]


def test_a_node_awaited_for_two_reasons_is_rated_once():
    full = pod("x-0", on="n0", requests={"cpu": "64"}, leaving=True)
    uses = tuple(PluginUse(name=type(each).__name__, plugin=each) for each in (Available(), WaitOn(("n0", "n1"))))
    snapshot = snapshot_of(*NODES[:3], full, pod("a-0"))
    session = Session(snapshot, Profile(actions=(), plugins=uses), Recorder(), Silent())
    scores, waits = session.node_scores(0, session.all_nodes, session.no_extra)
    assert waits.tolist() == [True, True, False]
    assert scores.tolist() == [0.0, 0.0, 1000.0]


def test_an_answer_of_another_kind_is_the_plugins_mistake():
    @attrs.frozen
    class Odd:
        def open(self, session):
            return [NodeWait(lambda _row, nodes: np.zeros(len(nodes)))]

    session = session_with(Odd(), pods=1)
    with pytest.raises(PluginError, match=r"must_wait.*returned float64\[4\], expected bool\[4\]"):
        session.policy.must_wait(PodRow(0), session.all_nodes)


def test_shape_scores_count_once_despite_questions_per_pod():
    @attrs.frozen
    class Both:
        def open(self, session):
            return (
                NodeScore(lambda _row, nodes: nodes * 100.0, depends=Dependence.SHAPE),
                Placement(choose=lambda _row, _node: "here"),
            )

    session = session_with(Both(), pods=1)
    assert session.node_scores(0, session.all_nodes, session.no_extra)[0].tolist() == [0.0, 100.0, 200.0, 300.0]


@pytest.mark.parametrize(("answer", "found"), [(False, "bool"), (None, "NoneType")])
def test_a_pod_answer_without_verdict_is_a_plugin_error(answer, found):
    @attrs.frozen
    class Odd:
        def open(self, session):
            return [PodFilter(lambda _row: answer)]

    session = session_with(Odd(), pods=1)
    with pytest.raises(PluginError, match=rf'"plugin-0".*PodFilter\.admit: returned {found}, expected a Verdict'):
        session.policy.admit_pod(PodRow(0), 0)


@attrs.frozen
class Boundless:
    """Score one node without bounds."""

    depends: Dependence

    def open(self, session):
        del session
        return (NodeScore(lambda _, nodes: np.where(nodes == 2, -np.inf, 1.0), depends=self.depends),)


@pytest.mark.parametrize("depends", [Dependence.SHAPE, Dependence.GROUP])
def test_an_infinite_score_is_the_plugins_mistake(depends):
    session = session_with(Boundless(depends))
    said = "returned -inf for 1 of 4 nodes, expected finite scores, or NaN to take a node out"
    with pytest.raises(PluginError, match=said) as raised:
        session.node_scores(0, session.all_nodes, np.zeros(4))
    assert (raised.value.plugin, raised.value.hook) == ("plugin-0", "NodeScore.score")
