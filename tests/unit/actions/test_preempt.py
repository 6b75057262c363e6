"""Preempt tries nothing where no waiting group has victims, and decides as if it had tried all groups."""

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.actions import preempt
from kai.actions.preempt import Preempt
from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine.cycle import run_cycle
from kai.framework.decisions import Recorder
from tests.properties.strategies import contended, snapshots
from tests.unit.actions.search.stage import opened, told

QUEUES = {"root": {}, "mine": {"parent": "root", "quota": 2}, "theirs": {"parent": "root", "quota": 2}}
NODES = {"n1": {"gpu": 2}}
RUNS = {"queue": "mine", "priority": 40, "each": {"gpu": 2}, "runs_on": "n1"}
WAITS = {"queue": "mine", "priority": 60, "each": {"gpu": 1}}
PROFILE = default_profile()


def some_have_lower(session):
    return preempt._some_have_lower(session, session.waiting_groups())


def some_have_lower_plainly(session):
    """Look at each pair of a waiting group and a group with a place."""
    placed = np.zeros(len(session.snapshot.groups), np.bool_)
    preempt.find_placed(session.facts, session.columns, placed)
    rows = range(len(session.snapshot.groups))
    return any(
        preempt._lower(session, session.portion(waiting), placed & session.facts.groups.preemptible)[victim]
        for waiting in session.waiting_groups().tolist()
        for victim in rows
    )


@pytest.mark.parametrize(
    ("runs", "waits", "expected"),
    [
        pytest.param(RUNS, WAITS, True, id="a lower priority of the same queue"),
        pytest.param({**RUNS, "priority": 60}, WAITS, False, id="no lower priority"),
        pytest.param({**RUNS, "queue": "theirs"}, WAITS, False, id="a lower priority of another queue"),
        pytest.param({**RUNS, "preemptible": False}, WAITS, False, id="not preemptible"),
    ],
)
def test_a_victim_is_preemptible_lower_and_of_the_queue(runs, waits, expected):
    session = opened({"runs": runs, "waits": waits}, NODES, queues=QUEUES)
    assert some_have_lower(session) == some_have_lower_plainly(session) == expected
    Preempt().run(session)
    assert bool(told(session)) == expected


def outcome(snapshot):
    sink = Recorder()
    report = run_cycle(snapshot, PROFILE, sink)
    reasons = {group: record.reasons for group, record in report.records.items()}
    return sink.statements, reasons, report.awaited, report.counts


@given(st.one_of(contended(), snapshots()))
def test_decisions_are_those_of_trying_all_groups(snapshot):
    with mock.patch.object(preempt, "_some_have_lower", return_value=True):
        everything = outcome(snapshot)
    assert outcome(snapshot) == everything
