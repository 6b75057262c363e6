"""A statement is final as a whole or leaves no trace, and hands its decisions out once."""

import numpy as np
import pytest

from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import Session
from kai.facts.model.pod import Status
from kai.framework.decisions import Bind, Cause, Evict, Nominate, Recorder
from kai.testing import snapshot

GROUPS = {
    "runs": {"members": 2, "minimum": 1, "each": {"gpu": 1}, "runs_on": "n1"},
    "waits": {"members": 2, "minimum": 1, "each": {"gpu": 1}},
}


@pytest.fixture
def session():
    taken = snapshot({"n1": {"gpu": 2}, "n2": {"gpu": 1}}, GROUPS)
    return Session(taken, default_profile(), Recorder(), Silent())


def pods(session, *names):
    rows = {pod.name: row for row, pod in enumerate(session.snapshot.pods)}
    return np.array([rows[name] for name in names], np.int64)


def node(session, name):
    return session.snapshot.node_rows[name]


def place(session, statement, *names, promise=False):
    return statement.place_pods(pods(session, *names), session.all_nodes, session.no_extra, promise=promise)


def status(session, name):
    return Status(int(session.columns.status[pods(session, name)[0]]))


def test_a_discard_undoes_only_what_is_not_yet_committed(session, monkeypatch):
    """A long journal is begun anew, and marks are places in it."""
    monkeypatch.setattr("kai.facts.state.ledger.MOST_FINAL", -(1 << 20))
    with session.statement("test") as statement:
        place(session, statement, "waits-0")
        statement.commit()
    before = session.ledger.fingerprint()
    with session.statement("test", Cause.PREEMPT) as statement:
        mark = statement.mark()
        statement.evict(pods(session, "runs-0"))
        statement.roll_back(mark)
        assert session.ledger.fingerprint() == before
        statement.evict(pods(session, "runs-0", "runs-1"))
    assert session.ledger.fingerprint() == before
    assert not session.ledger.is_whole


def test_what_is_not_committed_is_undone_to_the_byte(session):
    before = session.ledger.fingerprint()
    with session.statement("test", Cause.PREEMPT) as statement:
        statement.evict(pods(session, "runs-0"))
        place(session, statement, "waits-0", "waits-1", promise=True)
        assert session.ledger.fingerprint() != before
    assert session.ledger.fingerprint() == before


def test_an_error_inside_undoes_everything_and_passes_on(session):
    def fail():
        with session.statement("test") as statement:
            place(session, statement, "waits-0")
            raise ZeroDivisionError

    before = session.ledger.fingerprint()
    with pytest.raises(ZeroDivisionError):
        fail()
    assert session.ledger.fingerprint() == before


def test_rolling_back_keeps_what_was_before_the_mark(session):
    with session.statement("test") as statement:
        place(session, statement, "waits-0")
        mark, before = statement.mark(), session.ledger.fingerprint()
        statement.evict(pods(session, "runs-0"))
        statement.roll_back(mark)
        assert session.ledger.fingerprint() == before
        assert status(session, "waits-0") is Status.ALLOCATED


def test_what_is_discarded_is_not_handed_out(session):
    with session.statement("test") as statement:
        place(session, statement, "waits-0")
    assert session._sink.statements == []


def test_a_commit_hands_all_decisions_out_in_one_call(session):
    with session.statement("test", Cause.PREEMPT) as statement:
        statement.evict(pods(session, "runs-1"))
        place(session, statement, "waits-0", "waits-1")
        made = statement.commit()
    assert session._sink.statements == [made]
    assert len(made) == 3


def test_decisions_are_returned_in_the_order_they_were_made(session):
    with session.statement("test", Cause.PREEMPT) as statement:
        place(session, statement, "waits-1")
        statement.evict(pods(session, "runs-1"))
        place(session, statement, "waits-0", promise=True)
        made = statement.commit()
    assert [type(each) for each in made] == [Bind, Evict, Nominate]
    assert [each.pod for each in made] == pods(session, "waits-1", "runs-1", "waits-0").tolist()


def test_a_second_commit_returns_only_what_came_since(session):
    with session.statement("test") as statement:
        place(session, statement, "waits-0")
        statement.commit()
        assert statement.commit() == ()
    assert len(session._sink.statements) == 1


def test_what_is_committed_stays_when_the_statement_is_left(session):
    with session.statement("test") as statement:
        place(session, statement, "waits-0")
        statement.commit()
        place(session, statement, "waits-1")
    assert status(session, "waits-0") is Status.BINDING
    assert status(session, "waits-1") is Status.PENDING


def test_an_empty_commit_tells_nothing(session):
    with session.statement("test") as statement:
        assert statement.commit() == ()
    assert session._sink.statements == []
    assert session.stamp == 0


def test_placing_stops_at_the_first_pod_without_a_node(session):
    with session.statement("test") as statement:
        assert place(session, statement, "waits-0", "waits-1") == 1
        assert status(session, "waits-1") is Status.PENDING


def test_releasing_resources_are_promised_and_never_bound(session):
    with session.statement("test", Cause.PREEMPT) as statement:
        statement.evict(pods(session, "runs-0", "runs-1"))
        assert place(session, statement, "waits-0", "waits-1") == 2
        made = statement.commit()
    assert [(type(each), each.node) for each in made[2:]] == [
        (Bind, node(session, "n2")),
        (Nominate, node(session, "n1")),
    ]


def test_a_pod_promised_its_lost_place_is_not_evicted(session):
    before = session.ledger.fingerprint()
    with session.statement("test", Cause.PREEMPT) as statement:
        statement.evict(pods(session, "runs-0"))
        only = np.array([node(session, "n1")], np.int64)
        assert statement.place_pods(pods(session, "runs-0"), only, session.no_extra, promise=True) == 1
        assert statement.commit() == ()
    assert status(session, "runs-0") is Status.RUNNING
    assert session.ledger.columns.node[pods(session, "runs-0")[0]] == node(session, "n1")
    assert session.ledger.fingerprint() == before


def test_a_moved_pod_may_be_promised_its_old_node(session):
    """Its new place is another pod's by then, so it must not return to that one."""
    old, new = (np.array([node(session, name)], np.int64) for name in ("n1", "n2"))
    with session.statement("test", Cause.CONSOLIDATE) as statement:
        statement.evict(pods(session, "runs-0"))
        statement.place_pods(pods(session, "runs-0"), new, session.no_extra, promise=True)
        statement.commit()
    with session.statement("test", Cause.PREEMPT) as statement:
        statement.evict(pods(session, "runs-0"))
        assert statement.place_pods(pods(session, "waits-0"), new, session.no_extra, promise=True) == 1
        assert statement.place_pods(pods(session, "runs-0"), old, session.no_extra, promise=True) == 1
        decisions = statement.commit()
    assert [(type(each), each.pod, each.node) for each in decisions] == [
        (Nominate, pods(session, "waits-0")[0], new[0]),
        (Nominate, pods(session, "runs-0")[0], old[0]),
    ]
    columns = session.ledger.columns
    assert (columns.idle + columns.releasing >= 0).all()


def test_an_eviction_names_the_node_its_pod_moves_to(session):
    with session.statement("test", Cause.CONSOLIDATE) as statement:
        statement.evict(pods(session, "runs-0"))
        only = np.array([node(session, "n2")], np.int64)
        statement.place_pods(pods(session, "runs-0"), only, session.no_extra, promise=True)
        evicted, promised = statement.commit()
    assert (type(evicted), evicted.moved_to) == (Evict, node(session, "n2"))
    assert (type(promised), promised.node) == (Nominate, node(session, "n2"))


def test_an_eviction_has_cause_aggressor_rule_and_facts(session):
    victim = int(pods(session, "runs-0")[0])
    with session.statement("preempt", Cause.PREEMPT, aggressor=1, rule="priority") as statement:
        statement.evict(pods(session, "runs-0"))
        statement.facts = {victim: {"priority": 60}}
        (evicted,) = statement.commit()
    assert (evicted.cause, evicted.aggressor, evicted.rule) == (Cause.PREEMPT, 1, "priority")
    assert evicted.facts == {"priority": 60}
    assert evicted.moved_to == -1


def test_a_committed_eviction_is_the_last_of_its_group(session):
    group = int(session.facts.pods.group[pods(session, "runs-0")[0]])
    with session.statement("test", Cause.PREEMPT) as statement:
        statement.evict(pods(session, "runs-0"))
        assert np.isnan(session.last_eviction[group])
        statement.commit()
    assert session.last_eviction[group] == session.snapshot.now


def test_a_gang_that_waits_for_one_pod_promises_all(session):
    group = int(session.facts.pods.group[pods(session, "waits-0")[0]])
    with session.statement("test") as statement:
        place(session, statement, "waits-0")
        statement.promise_all(group)
        (made,) = statement.commit()
    assert (type(made), made.pod) == (Nominate, pods(session, "waits-0")[0])


def test_promising_one_group_leaves_other_placements_bound(session):
    other = int(session.facts.pods.group[pods(session, "runs-0")[0]])
    with session.statement("test") as statement:
        place(session, statement, "waits-0")
        statement.promise_all(other)
        assert [type(each) for each in statement.commit()] == [Bind]


def test_an_action_without_a_cause_is_the_cause_itself(session):
    with session.statement("evict-overdue") as statement:
        statement.evict(pods(session, "runs-0"))
        (evicted,) = statement.commit()
    assert (evicted.cause, evicted.rule) == (Cause("evict-overdue"), "")


@pytest.mark.parametrize(("rule", "expected"), [("", "it ran too long"), ("another", "another")])
def test_a_statement_without_rule_uses_that_of_its_cause(session, rule, expected):
    overdue = Cause("evict-overdue", rule="it ran too long")
    with session.statement("evict-overdue", overdue, rule=rule) as statement:
        statement.evict(pods(session, "runs-0"))
        (evicted,) = statement.commit()
    assert (evicted.cause, evicted.rule) == (overdue, expected)
