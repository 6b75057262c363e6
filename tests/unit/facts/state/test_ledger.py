"""The ledger undoes exactly what was not sealed, whatever was done."""

import numpy as np
import pytest

from kai.facts.kernels import booking
from kai.facts.kernels.columns import CPU, OP_EVICT, OP_PIPELINE
from kai.facts.model.pod import Status
from kai.framework.decisions import Cause
from kai.testing import snapshot
from kai.testing.views import open_session
from tests.doubles.audit import WrongBooksError, audit

GROUPS = {
    "runs": {"members": 3, "minimum": 1, "each": {"gpu": 1}, "runs_on": "n1"},
    "half": {"each": {"fraction": 0.5}, "runs_on": "n1"},
    "waits": {"members": 2, "minimum": 1, "each": {"gpu": 1}},
}


class Licences:
    """A plugin that counts what is left in a column of its own."""

    def open(self, session):
        self.left = session.track(np.array([5, 7]))
        return []


@pytest.fixture
def plugin():
    return Licences()


@pytest.fixture
def session(plugin):
    return open_session(snapshot({"n1": {"gpu": 4}, "n2": {"gpu": 1}}, GROUPS), plugin)


@pytest.fixture
def ledger(session):
    return session.ledger


def pod(session, name):
    return next(row for row, each in enumerate(session.snapshot.pods) if each.name == name)


def status(session, name):
    return Status(int(session.columns.status[pod(session, name)]))


# --------------------------------------------------------------------------------------------------------- undo


def test_undo_restores_every_byte(session, ledger):
    mark, before = ledger.mark, ledger.fingerprint()
    ledger.evict(pod(session, "runs-0"))
    ledger.evict(pod(session, "half-0"))
    ledger.pipeline(pod(session, "waits-0"), session.snapshot.node_rows["n2"], 0, keep=False)
    assert ledger.fingerprint() != before
    ledger.undo_to(mark)
    assert ledger.fingerprint() == before


def test_undo_stops_at_its_mark(session, ledger):
    ledger.evict(pod(session, "runs-0"))
    mark, between = ledger.mark, ledger.fingerprint()
    ledger.evict(pod(session, "runs-1"))
    ledger.undo_to(mark)
    assert ledger.fingerprint() == between
    assert status(session, "runs-0") is Status.RELEASING
    assert status(session, "runs-1") is Status.RUNNING


def test_undo_takes_back_what_was_noted_as_done(session, ledger):
    mark = ledger.mark
    ledger.evict(pod(session, "runs-0"))
    ledger.undo_to(mark)
    assert ledger.operations().tolist() == []


def test_undo_restores_the_columns_of_plugins(plugin, ledger):
    mark = ledger.mark
    ledger.add(plugin.left, 1, -3)
    assert plugin.left.values.tolist() == [5, 4]
    ledger.undo_to(mark)
    assert plugin.left.values.tolist() == [5, 7]


def test_undo_is_exact_after_the_logs_have_grown(session, ledger):
    mark, before = ledger.mark, ledger.fingerprint()
    ledger.evict(pod(session, "runs-0"))
    ledger.reserve(10_000)
    ledger.evict(pod(session, "runs-1"))
    ledger.undo_to(mark)
    assert ledger.fingerprint() == before


# ------------------------------------------------------------------------------------------------------ changes


def test_an_eviction_releases_what_its_pod_holds(session, ledger):
    node = session.snapshot.node_rows["n1"]
    idle, releasing = ledger.columns.idle[node, 2], ledger.columns.releasing[node, 2]
    ledger.evict(pod(session, "runs-0"))
    assert ledger.columns.idle[node, 2] == idle
    assert ledger.columns.releasing[node, 2] == releasing + 1000


def test_undoing_an_eviction_restores_the_pods_state(session, ledger):
    node = session.snapshot.node_rows["n1"]
    releasing = int(ledger.columns.releasing[node, 2])
    ledger.evict(pod(session, "runs-0"))
    ledger.reserve(1)
    booking.unevict(ledger.facts, ledger.columns, ledger.offsets, pod(session, "runs-0"))
    assert status(session, "runs-0") is Status.RUNNING
    assert ledger.columns.node[pod(session, "runs-0")] == node
    assert ledger.columns.releasing[node, 2] == releasing


def test_operations_keep_the_order_they_were_made(session, ledger):
    ledger.evict(pod(session, "runs-1"))
    ledger.pipeline(pod(session, "waits-0"), session.snapshot.node_rows["n1"], 0, keep=False)
    ledger.evict(pod(session, "runs-0"))
    assert ledger.operations().tolist() == [
        [OP_EVICT, pod(session, "runs-1")],
        [OP_PIPELINE, pod(session, "waits-0")],
        [OP_EVICT, pod(session, "runs-0")],
    ]


def test_room_for_more_changes_keeps_those_that_were_made(session, ledger):
    ledger.evict(pod(session, "runs-0"))
    before = ledger.operations().tolist()
    ledger.reserve(10_000)
    assert ledger.operations().tolist() == before


def test_only_a_partial_gpu_has_a_slot(session, ledger):
    columns = ledger.columns
    slots = {name: columns.placement_slots[columns.placement[pod(session, name)]] for name in ("runs-0", "half-0")}
    assert {name: int((found >= 0).sum()) for name, found in slots.items()} == {"runs-0": 0, "half-0": 1}


# --------------------------------------------------------------------------------------------------------- seal


def test_a_lost_promise_leaves_a_device_unshared():
    groups = {name: {"each": {"fraction": 0.3}} for name in ("first", "second", "third")}
    whole = {"each": {"gpu": 1}, "runs_on": "n1", "leaving": 1}
    session = open_session(snapshot({"n1": {"gpu": 1}}, {"going": whole, **groups}))
    first, second, third = (pod(session, f"{name}-0") for name in groups)
    with session.statement("test", Cause.PREEMPT) as statement:
        assert place(session, statement, first) is Status.PIPELINED
        assert place(session, statement, second) is Status.PIPELINED
        statement.evict(np.array([first]))
        assert place(session, statement, third) is Status.PIPELINED
        audit(session.ledger)


def place(session, statement, row):
    statement.place_pods(np.array([row]), session.all_nodes, session.no_extra, promise=False)
    return Status(int(session.columns.status[row]))


def test_nothing_before_a_seal_can_be_undone(session, ledger):
    ledger.evict(pod(session, "runs-0"))
    ledger.seal()
    sealed = ledger.fingerprint()
    assert ledger.mark == ledger.final
    ledger.undo_to(0)
    assert ledger.fingerprint() == sealed
    assert status(session, "runs-0") is Status.RELEASING


def test_after_a_seal_nothing_is_left_to_be_committed(session, ledger):
    ledger.evict(pod(session, "runs-0"))
    ledger.seal()
    assert ledger.operations().tolist() == []
    assert ledger.columns.evicted_status[pod(session, "runs-0")] == 0


def test_what_was_allocated_is_bound_once_it_is_settled(session, ledger):
    with session.statement("test") as statement:
        pods = np.array([pod(session, "waits-0")], np.int64)
        statement.place_pods(pods, session.all_nodes, session.no_extra, promise=False)
        assert status(session, "waits-0") is Status.ALLOCATED
        ledger.settle()
        assert status(session, "waits-0") is Status.BINDING


# ------------------------------------------------------------------------------------------------------- checks


def test_plugins_cannot_write_what_the_ledger_keeps_for_them(plugin, ledger):
    with pytest.raises(ValueError, match="read-only"):
        plugin.left.values[0] = 1
    assert ledger.fingerprint()


def test_books_that_agree_pass_the_check(session, ledger):
    ledger.evict(pod(session, "runs-0"))
    audit(ledger)


def test_a_cell_that_does_not_agree_fails_the_check(session, ledger):
    ledger.columns.releasing[session.snapshot.node_rows["n2"], CPU] += 1
    with pytest.raises(WrongBooksError, match="releasing"):
        audit(ledger)
