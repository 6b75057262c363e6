import attrs
import numpy as np

from kai.framework.decisions import Recorder
from kai.framework.hooks import Dependence, Hooks
from kai.framework.observe import Silent
from kai.framework.profile import PluginUse, Profile
from kai.framework.session import Session
from kai.model.rows import PodRow
from tests.unit.plugins.stage import node, pod, snapshot_of

NODES = tuple(node(f"n{number}") for number in range(4))


@attrs.frozen
class ByCpu:
    """Take out node ``cpu % 3`` and score the nodes by ``cpu % 2``: pods differ in more than their answers."""

    def open(self, session):
        def amount(row):
            return int(session.facts.shapes.request[session.shape_of(row), 0]) // 1000

        return Hooks(
            filter_nodes=lambda row, nodes: nodes != amount(row) % 3,
            filter_depends=Dependence.SHAPE,
            score_nodes=lambda row, nodes: nodes * float(amount(row) % 2),
            score_depends=Dependence.SHAPE,
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

            return Hooks(filter_nodes=accept, filter_depends=Dependence.SHAPE)

    session = session_with(Counting(), pods=2)
    session.policy.prepare_all(np.array([0, 1, 0]), session.all_nodes)
    session.policy.prepare_all(np.array([1, 0]), session.all_nodes)
    assert asked == [0, 1]
