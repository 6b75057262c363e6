"""Which groups search, whose pods they may take, and which failures spare a search."""

import attrs
import numpy as np
import pytest

from kai.actions.preempt import Preempt
from kai.actions.search.waiting import Closed, is_easier, remember, signature_of
from kai.deciding.engine.cycle import run_cycle
from kai.deciding.engine.host import Unlimited
from kai.deciding.engine.shortcuts import HOPELESS
from kai.deciding.explain.messages import reason_text
from kai.framework.verdict import Code, Verdict
from kai.testing import RecordingSink, default_profile_with, snapshot
from tests.unit.actions.search.stage import opened, row, told

NODES = {"n1": {"gpu": 2}}
LOW = {"priority": 40, "each": {"gpu": 1}, "runs_on": "n1"}
HIGH = {"priority": 60, "each": {"gpu": 1}}


def preempted(groups, **parameters):
    session = opened(groups, NODES, **parameters)
    Preempt().run(session)
    return told(session)


# ------------------------------------------------------------------------------------------------- who searches


def test_groups_search_best_first_and_the_oldest_of_equals():
    groups = {"low": LOW, "lower": {**LOW, "priority": 30}, "young": HIGH, "first": {**HIGH, "priority": 70}}
    assert preempted({**groups, "last": HIGH}) == [
        ["Evict lower-0", "Nominate first-0"],
        ["Evict low-0", "Nominate young-0"],
    ]


def test_a_group_with_unelapsed_delay_does_not_search():
    groups = {"low": LOW, "other": LOW, "high": {**HIGH, "preemption_delay": "10h"}}
    session = opened(groups, NODES)
    Preempt().run(session)
    assert told(session) == []
    (reason,) = session.record(row(session, "high")).reasons
    assert reason.code is Code.PREEMPTION_DELAY


def test_a_group_whose_delay_is_over_searches():
    groups = {"low": LOW, "other": LOW, "high": {**HIGH, "preemption_delay": "1m"}}
    assert preempted(groups) == [["Evict other-0", "Nominate high-0"]]


def test_a_depth_of_one_searches_the_best_group_only():
    groups = {"low": LOW, "other": LOW, "high": HIGH, "next": HIGH}
    assert len(preempted(groups)) == 2
    assert len(preempted(groups, queue_depth={"preempt": 1})) == 1


# ----------------------------------------------------------------------------------------------- who may be taken


def test_recently_protected_pods_are_spared_for_other_victims():
    groups = {"low": LOW, "other": LOW, "high": HIGH}
    assert preempted(groups) == [["Evict other-0", "Nominate high-0"]]
    assert preempted(groups, protected=["other-0"]) == [["Evict low-0", "Nominate high-0"]]


def test_a_group_with_only_protected_victims_reports_so():
    session = opened({"low": LOW, "other": LOW, "high": HIGH}, NODES, protected=["low-0", "other-0"])
    Preempt().run(session)
    assert told(session) == []
    (reason,) = session.record(row(session, "high")).reasons
    assert (reason.code, dict(reason.facts)) == (Code.VICTIMS_PROTECTED, {"groups": 2})
    why = "that disruption budgets protect, or that are being moved"
    assert reason_text(reason) == f"No room could be made without 2 jobs {why}"


@pytest.mark.parametrize(
    "victim",
    [
        pytest.param({"preemptible": False}, id="it cannot be taken back"),
        pytest.param({"priority": 60}, id="its priority is not lower"),
        pytest.param({"queue": "theirs"}, id="it is in another queue"),
    ],
)
def test_a_group_keeps_its_pods(victim):
    queues = {"root": {}, "mine": {"parent": "root", "quota": 2}, "theirs": {"parent": "root", "quota": 2}}
    groups = {
        "runs": {"queue": "mine", **LOW, "members": 2, **victim},
        "high": {"queue": "mine", **HIGH},
    }
    session = opened(groups, NODES, queues=queues)
    Preempt().run(session)
    assert told(session) == []


# ------------------------------------------------------------------------------------------------ known failures


@pytest.fixture
def session():
    groups = {
        "one": {"each": {"gpu": 1}},
        "same": {"each": {"gpu": 1}},
        "two": {"each": {"gpu": 2}},
        "pair": {"members": 2, "each": {"gpu": 1}},
        "tied": {"each": {"gpu": 1}, "selector": {"rack": "a"}},
    }
    return opened(groups, NODES)


def portion(session, name):
    return session.portion(row(session, name))


def test_groups_that_differ_in_amounts_only_have_one_signature(session):
    assert signature_of(session, portion(session, "one")) == signature_of(session, portion(session, "two"))


def test_groups_that_may_use_different_nodes_have_different_signatures(session):
    assert signature_of(session, portion(session, "one")) != signature_of(session, portion(session, "tied"))


def failed(session, *names):
    """Return what is known after groups failed in this order."""
    table = {}
    for name in names:
        remember(session, portion(session, name), table, "alike")
    return table["alike"]


@pytest.mark.parametrize(
    ("name", "before", "easier"),
    [
        ("same", "one", False),
        ("two", "one", False),
        ("one", "two", True),
        ("one", "pair", True),
        ("pair", "one", False),
    ],
)
def test_after_a_failure_only_an_easier_group_is_tried(session, name, before, easier):
    assert is_easier(session, portion(session, name), failed(session, before)) is easier


def test_the_smallest_failure_is_kept(session):
    assert failed(session, "two", "one") == failed(session, "one", "two") == failed(session, "one")


# ------------------------------------------------------------------------------------------------ groups passed over


def test_passing_over_a_group_includes_identical_ones(session):
    every = np.arange(len(session.snapshot.groups), dtype=np.int64)
    closed = Closed(session, every)
    closed.close(row(session, "one"), Verdict())
    names = {session.snapshot.groups[at].name for at in np.flatnonzero(closed.mask)}
    assert names == {"one", "same"}


def test_groups_passed_over_with_another_get_its_reason(session):
    every = np.arange(len(session.snapshot.groups), dtype=np.int64)
    closed = Closed(session, every)
    closed.close(row(session, "one"), Verdict.refused(Code.NOT_ELIGIBLE, rule="test"))
    closed.note(np.array([row(session, "same")], np.int64))
    (note,) = session.record(row(session, "same")).notes
    assert note.code is Code.NOT_ELIGIBLE


def test_a_commit_lets_all_groups_be_looked_at_again(session):
    closed = Closed(session, np.arange(len(session.snapshot.groups), dtype=np.int64))
    closed.close(row(session, "one"), Verdict())
    closed.reopen()
    assert not closed.mask.any()


# ------------------------------------------------------------------------------------------------------- many in vain


class Counting(Unlimited):
    """A budget that counts scenarios."""

    tried = 0

    def grant(self):
        Counting.tried += 1
        return super().grant()


def scenarios(count, without=()):
    """Return how many scenarios ``count`` queues try that have half of what they are promised, and what is decided."""
    queues = {"root": {}} | {f"q{at}": {"parent": "root", "quota": 1} for at in range(count)}
    groups = {f"g{at}": {"queue": f"q{at}", "each": {"gpu": 1}} for at in range(count)}
    taken = snapshot({"n": {"gpu": count // 2}}, groups, queues)
    profile = default_profile_with()
    profile = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, without=without))
    Counting.tried, sink = 0, RecordingSink()
    run_cycle(taken, profile, sink, budget=Counting())
    return Counting.tried, repr(sink.decisions)


def test_hopeless_reclaims_do_not_multiply_the_searches():
    """Each search in vain looks at all victims, so that many queues of one pod took the third power of their number."""
    (few, _), (many, decided) = scenarios(8), scenarios(16)
    assert 0 < many <= 2 * few + 2
    all_of_them, decided_so = scenarios(16, without=(HOPELESS.name,))
    assert all_of_them > 4 * many
    assert decided == decided_so
