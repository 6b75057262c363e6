"""Victims are tried by evicting them and placing the aggressor and all groups that lost pods again, by promises."""

import numpy as np
import pytest

from kai.actions.search.group_states import GroupStates
from kai.actions.search.replacing import Replacing
from kai.facts.model.pod import Status
from kai.framework.decisions import Cause
from tests.unit.actions.search.stage import opened, pods_of, row

RUNS = {"priority": 40, "each": {"gpu": 1}, "runs_on": "n1"}
WANTS = {"priority": 60, "each": {"gpu": 2}}


@pytest.fixture(params=[True, False], ids=["with shortcuts", "the long way"])
def tried(request):
    """Return a function that tries victims, and says whether it worked and what became of pods."""

    def attempt(nodes, *victims):
        session = opened({"left": RUNS, "right": RUNS, "wants": WANTS}, nodes)
        states = GroupStates(session) if request.param else None
        if states is not None:
            states.refresh()
        gone = np.array([pod for name in victims for pod in pods_of(session, name)], np.int64)
        statement = session.statement("test", Cause.PREEMPT, row(session, "wants"))
        before = session.ledger.fingerprint()
        replacing = Replacing(session, session.all_nodes, states)
        worked = replacing.run(statement, session.portion(row(session, "wants")), gone) is not None
        after = {pod.name: Status(int(session.columns.status[at])) for at, pod in enumerate(session.snapshot.pods)}
        statement.discard()
        assert session.ledger.fingerprint() == before
        return worked, after

    return attempt


def test_victims_without_another_place_are_evicted_for_a_promise(tried):
    worked, after = tried({"n1": {"gpu": 2}}, "left", "right")
    assert worked
    assert after == {
        "left-0": Status.RELEASING,
        "right-0": Status.RELEASING,
        "wants-0": Status.PIPELINED,
    }


def test_a_victim_that_finds_another_place_is_promised_it(tried):
    worked, after = tried({"n1": {"gpu": 2}, "n2": {"gpu": 1}}, "left", "right")
    assert worked
    assert sorted(after[name] for name in ("left-0", "right-0")) == sorted([Status.PIPELINED, Status.RELEASING])


def test_without_a_place_for_the_aggressor_the_trial_fails(tried):
    worked, _ = tried({"n1": {"gpu": 2}}, "left")
    assert not worked


def test_a_victim_whose_place_is_not_needed_keeps_it(tried):
    worked, after = tried({"n1": {"gpu": 3}}, "left", "right")
    assert worked
    assert sorted(after[name] for name in ("left-0", "right-0")) == sorted([Status.RUNNING, Status.RELEASING])
