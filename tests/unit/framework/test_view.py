import attrs
import numpy as np

from kai.deciding.engine.cycle import Profile
from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import Session
from kai.facts.model.constraints import NodeTerm, Requirement
from kai.framework.decisions import Recorder
from tests.unit.plugins.stage import node, pod, snapshot_of

NODES = (node("n1", {"zone": "east"}), node("n2", {"zone": "west"}), node("n3"))


def session_on(*manifests):
    return Session(snapshot_of(*NODES, *manifests), Profile(actions=(), plugins=()), Recorder(), Silent())


def label(value):
    return Requirement("zone", "In", (value,))


def name(value):
    return Requirement("metadata.name", "In", (value,))


def selected(*terms):
    return session_on().view.selected_nodes(terms).tolist()


def test_terms_select_nodes_by_labels_and_by_name():
    assert selected(NodeTerm((label("east"),))) == [True, False, False]
    assert selected(NodeTerm((), (name("n3"),))) == [False, False, True]
    assert selected(NodeTerm((label("east"),), (name("n3"),))) == [False, False, False]


def test_terms_without_names_read_no_node_names():
    view = session_on().view
    assert view.selected_nodes([NodeTerm((label("east"),)), NodeTerm((label("west"),))]).tolist() == [True, True, False]
    assert "_node_fields" not in view.__dict__


def test_one_of_several_terms_is_enough():
    assert selected(NodeTerm((label("east"),)), NodeTerm((label("west"),))) == [True, True, False]


def test_an_empty_term_and_no_term_select_nothing():
    assert selected(NodeTerm()) == [False, False, False]
    assert selected() == [False, False, False]


def test_codes_of_a_label_follow_its_values():
    assert session_on().view.label_codes("zone").tolist() == [1, 2, 0]


def test_pods_are_found_by_shape():
    big = {"cpu": "2"}
    view = session_on(pod("a-0"), pod("b-0", requests=big), pod("c-0")).view
    assert view.pods_of_shapes(np.array([True, False])).tolist() == [0, 2]
    assert view.pods_of_shapes(np.array([False, True])).tolist() == [1]
    assert view.pods_of_shapes(np.array([True, True])).tolist() == [0, 1, 2]
    assert view.pods_of_shapes(np.array([False, False])).tolist() == []


def test_assigned_pods_have_or_are_promised_a_node():
    session = session_on(
        pod("a-0", on="n1"),
        pod("b-0", on="n2", leaving=True),
        pod("c-0", on="n2", status={"phase": "Succeeded"}),
        pod("d-0", on="elsewhere"),
        pod("e-0"),
    )
    everybody = np.arange(5, dtype=np.int64)
    pods, nodes = session.view.assigned(everybody)
    assert list(zip(pods.tolist(), nodes.tolist(), strict=True)) == [(0, 0), (1, 1)]
    with session.statement("test") as statement:
        waiting = np.array([4], np.int64)
        statement.place_pods(waiting, np.array([2], np.int64), session.no_extra, promise=True)
        assert session.view.assigned(waiting)[1].tolist() == [2]
    assert session.view.assigned(waiting)[1].tolist() == []


def test_a_moving_pod_counts_on_both_nodes_until_undone():
    session = session_on(pod("a-0", on="n1"))
    mover = np.array([0], np.int64)
    with session.statement("test") as statement:
        statement.evict(mover)
        assert session.view.assigned(mover)[1].tolist() == [0]
        statement.place_pods(mover, np.array([1], np.int64), session.no_extra, promise=True)
        pods, nodes = session.view.assigned(mover)
        assert (pods.tolist(), sorted(nodes.tolist())) == ([0, 0], [0, 1])
    assert session.view.assigned(mover)[1].tolist() == [0]


def test_pods_are_found_by_label_key_and_foreign_scheduler():
    manifests = (
        pod("a-0", labels={"role": "head", "other": "x"}),
        pod("b-0", labels={"other": "x"}),
        pod("c-0", labels={"role": ""}, schedulerName="elsewhere"),
    )
    view = session_on(*manifests).view
    assert view.pods_labelled("role").tolist() == [0, 2]
    assert view.pods_labelled("other").tolist() == [0, 1]
    assert view.pods_labelled("kai-scheduler").tolist() == []
    assert view.pods_of_others().tolist() == [2]
    changed = attrs.evolve(view.snapshot)  # nobody has numbered its kinds
    again = Session(changed, Profile(actions=(), plugins=()), Recorder(), Silent()).view
    assert again.pods_labelled("role").tolist() == [0, 2]
    assert again.pods_of_others().tolist() == [2]
