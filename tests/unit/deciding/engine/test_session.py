"""A session says which groups wait, remembers why, and hands out what statements commit."""

import attrs
import numpy as np
import pytest

from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine.cycle import Profile
from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import Session, base_of
from kai.facts.model.placement import Past
from kai.framework.decisions import Bind, Cause, Recorder
from kai.framework.hooks import Placement, PluginUse
from kai.framework.verdict import Code, Verdict
from kai.testing import snapshot

ONE = {"each": {"gpu": 1}}


def opened(groups, observer=None, nodes=None):
    return Session(snapshot(nodes or {"n1": {"gpu": 4}}, groups), default_profile(), Recorder(), observer or Silent())


def row(session, name):
    return next(at for at, group in enumerate(session.snapshot.groups) if group.name == name)


def waiting(session):
    return [session.snapshot.groups[at].name for at in session.waiting_groups()]


def bind(session, *names):
    """Bind the next pods of groups, each group in a statement of its own."""
    for name in names:
        with session.statement("allocate") as statement:
            pods = session.portion(row(session, name)).chunk()
            statement.place_pods(pods, session.all_nodes, session.no_extra, promise=False)
            statement.commit()


# ---------------------------------------------------------------------------------------------------- who waits


def test_groups_that_wait_come_oldest_first_whatever_their_names():
    session = opened({"z": ONE, "m": ONE, "a": ONE})
    assert waiting(session) == ["z", "m", "a"]


def test_a_group_with_all_pods_placed_does_not_wait():
    assert waiting(opened({"runs": {**ONE, "runs_on": "n1"}, "waits": ONE})) == ["waits"]


def test_a_group_below_its_minimum_does_not_wait():
    assert waiting(opened({"short": {"members": 1, "minimum": 2, **ONE}, "whole": ONE})) == ["whole"]


def test_a_gated_pod_does_not_count_towards_the_minimum():
    gated = {**ONE, "spec": {"schedulingGates": [{"name": "quota"}]}}
    assert waiting(opened({"gated": gated, "free": ONE})) == ["free"]


def test_a_group_needing_one_of_two_subgroups_waits():
    parts = {"left": {"members": 1, "each": {"gpu": 1}}, "right": {"members": 0, "minimum": 1}}
    assert waiting(opened({"job": {"minimum": 1, "subgroups": parts}})) == ["job"]


def test_a_placed_group_stops_waiting():
    session = opened({"first": ONE, "second": ONE})
    assert waiting(session) == ["first", "second"]
    bind(session, "first")
    assert waiting(session) == ["second"]


def test_an_undone_statement_leaves_its_group_waiting():
    session = opened({"first": ONE})
    with session.statement("allocate") as statement:
        statement.place_pods(session.portion(0).chunk(), session.all_nodes, session.no_extra, promise=False)
        assert waiting(session) == []
    assert waiting(session) == ["first"]


# ------------------------------------------------------------------------------------------- what is handed out


def test_each_statement_reaches_the_sink_alone_in_order():
    session = opened({"first": ONE, "second": ONE})
    bind(session, "second", "first")
    names = [[session.snapshot.pods[each.pod].group for each in made] for made in session._sink.statements]
    assert names == [["second"], ["first"]]


def test_the_observer_gets_each_statements_action_and_size():
    heard = []

    class Listening(Silent):
        def committed(self, action, decisions, /):
            heard.append((action, decisions))

    session = opened({"pair": {"members": 2, **ONE}, "one": ONE}, Listening())
    bind(session, "pair", "one")
    assert heard == [("allocate", 2), ("allocate", 1)]


@pytest.mark.parametrize("many", [1, 20])
def test_decisions_are_counted_by_kind(many):
    gang = {"members": many, "each": {"cpu": 1}}
    session = opened({"gang": gang})
    bind(session, "gang")
    assert session.counts == {"binds": many, "evictions": 0, "pipelines": 0}


def test_the_stamp_grows_only_with_commits():
    session = opened({"first": ONE})
    with session.statement("allocate") as statement:
        statement.place_pods(session.portion(0).chunk(), session.all_nodes, session.no_extra, promise=False)
    assert session.stamp == 0
    bind(session, "first")
    assert session.stamp == 1
    assert [type(each) for each in session._sink.decisions] == [Bind]


# ---------------------------------------------------------------------------------------------- who was helped


def help_group(session, name, victim):
    """Evict a pod of ``victim`` and promise its place to ``name``."""
    with session.statement("preempt", Cause.PREEMPT, row(session, name)) as statement:
        statement.evict(session.portion(row(session, victim)).pods()[:1])
        pods = session.portion(row(session, name)).chunk()
        statement.place_pods(pods, session.all_nodes, session.no_extra, promise=True)
        statement.commit()


FULL = {
    "left": {**ONE, "runs_on": "n1"},
    "right": {**ONE, "runs_on": "n1"},
    "first": ONE,
    "second": ONE,
}


def test_helped_groups_are_named_in_their_order():
    session = opened(FULL, nodes={"n1": {"gpu": 2}})
    assert session.awaited.keys() == ()
    help_group(session, "second", "left")
    help_group(session, "first", "right")
    assert session.awaited.keys() == ("default/second", "default/first")


def test_a_group_allocated_idle_resources_awaits_nothing():
    session = opened({"first": ONE})
    bind(session, "first")
    assert session.awaited.keys() == ()


def test_a_group_losing_pods_goes_behind_later_helped_ones():
    groups = {**FULL, "left": {"members": 2, "minimum": 1, **ONE, "runs_on": {"n1": 1}}}
    taken = attrs.evolve(snapshot({"n1": {"gpu": 2}}, groups), past=Past(awaited=("default/left",)))
    session = Session(taken, default_profile(), Recorder(), Silent())
    help_group(session, "first", "left")
    help_group(session, "left", "right")
    assert session.awaited.keys() == ("default/first", "default/left")


def test_a_group_without_promise_is_not_awaited_any_more():
    taken = attrs.evolve(snapshot({"n1": {"gpu": 4}}, {"first": ONE}), past=Past(awaited=("default/first",)))
    assert Session(taken, default_profile(), Recorder(), Silent()).awaited.keys() == ()


# ------------------------------------------------------------------------------------------------ what is kept


def test_a_reason_is_remembered_once():
    session = opened({"first": ONE})
    for _ in range(2):
        session.refuse(0, Verdict.refused(Code.NOT_ELIGIBLE, rule="test"))
    assert [reason.code for reason in session.record(0).reasons] == [Code.NOT_ELIGIBLE]


def test_a_group_has_one_portion_all_through_the_session():
    session = opened({"first": ONE})
    assert session.portion(0) is session.portion(0)


def test_attending_to_a_group_returns_the_previous_one():
    session = opened({"first": ONE, "second": ONE})
    assert [session.attend(1), session.attend(0), session.attend(-1)] == [-1, 1, 0]


def test_a_snapshots_base_is_made_once_and_never_changed():
    session = opened({"first": ONE})
    base = base_of(session.snapshot)
    before = base.open(session.snapshot).arena
    bind(session, "first")
    assert base_of(session.snapshot) is base
    assert np.array_equal(base.open(session.snapshot).arena, before)
    assert not np.array_equal(session.ledger.arena, before)


# ---------------------------------------------------------------------------------------------------- bind requests


class Licences:
    """A plugin that takes a licence for each pod, and tells the bind request which."""

    def open(self, session):
        del session

        def encode(pod, node, detail):
            return {"selectedLicence": f"{detail} of pod {pod} on node {node}"}

        return [Placement(kind="licence", choose=lambda *_: "blue", encode=encode)]


def test_a_bind_carries_what_the_plugin_encodes_for_it():
    taken, recorder = snapshot({"n1": {"gpu": 4}}, {"a": ONE}), Recorder()
    session = Session(taken, Profile(actions=(), plugins=(PluginUse(name="l", plugin=Licences()),)), recorder, Silent())
    bind(session, "a")
    (decision,) = recorder.decisions
    assert dict(decision.request) == {"selectedLicence": "blue of pod 0 on node 0"}
