"""Searches of reclaim that one call makes, and those that it leaves to the long way."""

from unittest import mock

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.actions.reclaim import Reclaim
from kai.actions.search.one_call import OneCall
from kai.actions.search.second_look import SecondLook
from kai.deciding.engine.host import BudgetAnswer, Unlimited
from kai.facts.kernels import reclaiming
from kai.framework import PodFilter, Verdict, Victims
from tests.doubles.audit import audit
from tests.unit.actions.search.stage import opened, row, told

NODES = {"n1": {"gpu": 2}, "n2": {"gpu": 2}}
QUEUES = {"root": {}, "rich": {"parent": "root", "quota": 0}, "poor": {"parent": "root", "quota": 4}}
RUNS = {"queue": "rich", "each": {"gpu": 1}}
WAITS = {"queue": "poor", "each": {"gpu": 1}}
RICH = {"a": {**RUNS, "runs_on": "n1"}, "b": {**RUNS, "runs_on": "n2"}, "c": {**RUNS, "runs_on": "n1"}}
GROUPS = {**RICH, "d": {**RUNS, "runs_on": "n2"}, "one": WAITS, "two": WAITS, "three": WAITS}


@pytest.fixture
def served(monkeypatch):
    """Return what became of groups that searches in one call came to, by name: served, alone, or left."""
    ended = {}
    search = OneCall._search

    def noted(self, heap, group, most):
        outcome = search(self, heap, group, most)
        work, names = self._work, self._session.snapshot.groups
        for at in work.served[: work.state[reclaiming.STATEMENTS], 0].tolist():
            ended[names[at].name] = "served"
        if outcome == reclaiming.LEFT:
            ended[names[int(work.state[reclaiming.GROUP])].name] = "left"
        if most == 0:
            ended[names[group].name] = "alone"
        return outcome

    monkeypatch.setattr(OneCall, "_search", noted)
    return ended


def reclaimed(groups=GROUPS, queues=QUEUES, **options):
    session = opened(groups, NODES, queues=queues, **options)
    Reclaim().run(session)
    audit(session.ledger)
    return session


def explained(session):
    """Return what messages about evictions are made of."""
    return [each for made in session._sink.statements for each in made]


def test_searches_after_the_first_are_made_in_one_call(served):
    quick, slow = reclaimed(), reclaimed(without=("one-call",))
    assert served == {"two": "served", "three": "served"}
    assert explained(quick) == explained(slow)
    assert quick.ledger.fingerprint() == slow.ledger.fingerprint()
    assert [len(made) for made in told(quick)] == [2, 2, 2]


def test_a_group_over_quota_is_noted_without_a_search(served):
    queues = {**QUEUES, "rich": {"parent": "root", "quota": 3}, "poor": {"parent": "root", "quota": 1}}
    session = reclaimed(queues=queues)
    assert served == {}
    assert len(told(session)) == 1
    assert session.record(row(session, "two")).notes
    assert session.record(row(session, "three")).notes


def test_a_group_of_several_pods_takes_the_plain_path(served):
    groups = {**GROUPS, "two": {**WAITS, "members": 2}}
    assert [len(made) for made in told(reclaimed(groups))] == [2, 4, 2]
    assert served == {"two": "left", "three": "served"}


def test_many_changed_groups_give_the_same_result(served, monkeypatch):
    monkeypatch.setattr("kai.actions.search.one_call.FEW", 1)
    monkeypatch.setattr("kai.actions.search.group_states.FEW", 1)
    quick = reclaimed()
    assert served == {"two": "served", "three": "served"}
    assert explained(quick) == explained(reclaimed(without=("one-call",)))


def halves():
    """Return four waiting pods that ask for half a GPU each, beside pods that hold all GPUs."""
    waiting = {name: {"queue": "poor", "each": {"fraction": 0.5}} for name in ("one", "two", "three", "four")}
    return {**RICH, "d": {**RUNS, "runs_on": "n2"}, **waiting}


def test_sharing_pods_are_served_in_one_call_alike(served):
    quick = reclaimed(halves(), victims="as-peer")
    slow = reclaimed(halves(), victims="as-peer", without=("one-call",))
    assert served == {"two": "served", "three": "served", "four": "served"}
    assert explained(quick) == explained(slow)
    assert quick.ledger.fingerprint() == slow.ledger.fingerprint()
    assert sorted(len(made) for made in told(quick)) == [1, 2, 2, 2]


def test_an_excess_victim_beside_smaller_ones_is_searched_plainly(served):
    groups = {**halves(), "d": {**RUNS, "each": {"fraction": 0.9}, "runs_on": "n2"}}
    quick, slow = reclaimed(groups), reclaimed(groups, without=("one-call",))
    assert "left" in served.values()
    assert explained(quick) == explained(slow)
    assert quick.ledger.fingerprint() == slow.ledger.fingerprint()


def test_without_smaller_victims_no_second_look_is_taken(served):
    with mock.patch.object(SecondLook, "look_again") as look:
        quick, slow = reclaimed(halves()), reclaimed(halves(), without=("one-call",))
    assert look.call_count == 0
    assert served == {"two": "served", "three": "served", "four": "served"}
    assert explained(quick) == explained(slow)
    assert quick.ledger.fingerprint() == slow.ledger.fingerprint()


def test_partly_waiting_victims_are_reported_alone_with_equal_results(served):
    elastic = {"queue": "rich", "minimum": 1, "members": 2, "each": {"gpu": 1}}
    groups = {
        **{f"e{at}": {**elastic, "runs_on": [f"n{1 + at % 2}"]} for at in range(4)},
        "one": WAITS,
        "two": WAITS,
        "three": WAITS,
    }
    quick, slow = reclaimed(groups), reclaimed(groups, without=("one-call",))
    assert served["two"] == served["three"] == "alone"
    assert explained(quick) == explained(slow)
    assert quick.ledger.fingerprint() == slow.ledger.fingerprint()


def levels():
    """Return groups, nodes and queues: five leaves of ten in three levels hold all, the others reclaim."""
    tree = {f"top-{at}": {"quota": 10, "weight": 1 + at % 3} for at in range(2)}
    tree |= {f"mid-{at}": {"quota": 4, "weight": 1 + at % 3, "parent": f"top-{at % 2}"} for at in range(5)}
    tree |= {f"leaf-{at}": {"quota": 2, "weight": 1 + at % 3, "parent": f"mid-{at % 5}"} for at in range(10)}
    runs = {f"r{at:02}": {**RUNS, "queue": f"leaf-{at % 5}", "runs_on": f"n{at % 10}"} for at in range(20)}
    asks = {f"w{at:02}": {**WAITS, "queue": f"leaf-{5 + at % 5}"} for at in range(10)}
    more = {f"x{at:02}": {**WAITS, "queue": f"leaf-{at % 5}"} for at in range(0, 10, 2)}
    return {**runs, **asks, **more}, {f"n{at}": {"gpu": 2} for at in range(10)}, tree


def noted(session):
    """Return the notes on each group that has some, by name."""
    names = session.snapshot.groups
    return {names[at].name: record.notes for at, record in session.records.items() if record.notes}


def shares(owners, quota=1):
    """Return groups and queues: `poor` may have `quota` of four GPUs, `needy` the others, and `owners` ask for them."""
    queues = {**QUEUES, "poor": {"parent": "root", "quota": quota}, "needy": {"parent": "root", "quota": 4 - quota}}
    held = {name: group for name, group in GROUPS.items() if group["queue"] == "rich"}
    return {**held, **{f"asks-{at}": {**WAITS, "queue": owner} for at, owner in enumerate(owners)}}, queues


def test_groups_that_may_not_reclaim_are_noted(served):
    groups, queues = shares(["poor", "poor", "poor", "needy", "needy", "needy", "needy"])
    quick, slow = reclaimed(groups, queues), reclaimed(groups, queues, without=("one-call",))
    assert "left" not in served.values()
    assert sorted(noted(quick)) == ["asks-1", "asks-2", "asks-6"]
    assert noted(quick) == noted(slow)
    assert explained(quick) == explained(slow)


@given(
    st.lists(st.sampled_from(("poor", "needy")), min_size=1, max_size=8),
    st.integers(0, 4),
    st.sampled_from((BudgetAnswer.STOP, BudgetAnswer.NEXT_GENERATOR)),
    st.integers(1, 16),
)
def test_notes_are_the_same_whatever_a_budget_refuses(owners, quota, answer, refused):
    groups, queues = shares(owners, quota)
    budgets = Asked(refused, answer), Asked(refused, answer)
    quick = reclaimed(groups, queues, budget=budgets[0])
    slow = reclaimed(groups, queues, budget=budgets[1], without=("one-call",))
    assert noted(quick) == noted(slow)
    assert explained(quick) == explained(slow)
    assert budgets[0].notes == budgets[1].notes


def test_searches_continue_when_the_kernels_record_is_full(served, monkeypatch):
    monkeypatch.setattr("kai.actions.search.one_call.MOST", 1)
    quick = reclaimed()
    assert served == {"two": "served", "three": "served"}
    assert explained(quick) == explained(reclaimed(without=("one-call",)))


def accept(scenario, cause):
    del scenario, cause
    return Verdict()


def admit(pod):
    del pod
    return Verdict()


@pytest.mark.parametrize(
    "extension",
    [
        pytest.param(Victims(accept=accept), id="judges victims"),
        pytest.param(Victims(groups=lambda _, groups, __: np.ones(len(groups), np.bool_)), id="spares groups"),
        pytest.param(PodFilter(admit), id="refuses pods"),
    ],
)
def test_a_plugin_that_must_be_asked_is(extension, served):
    class Asking:
        def open(self, session):
            del session
            return [extension]

    assert [len(made) for made in told(reclaimed(plugins=[Asking()]))] == [2, 2, 2]
    assert served == {}


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"protected": ["a-0"]}, id="disruption budgets"),
        pytest.param({"evicted_gpus_per_cycle": 4.0}, id="caps"),
        *(pytest.param({"without": (name,)}, id=name) for name in ("search", "trial", "first-probe", "last-probe")),
    ],
)
def test_searches_with_more_conditions_take_the_plain_path(options, served):
    assert [len(made) for made in told(reclaimed(**options))] == [2, 2, 2]
    assert served == {}


# ----------------------------------------------------------------------------------------- looks that are left out

SHARED_NODES = {f"n{at}": {"gpu": 3} for at in range(4)}
PARTS = st.sampled_from(({"gpu": 1}, {"fraction": 0.3}, {"fraction": 0.5}, {"fraction": 0.7}))


def in_pairs(started=lambda _: "10m", part=0.5):
    """Return two jobs of a part of a GPU for each GPU."""
    return {
        f"half-{node}-{at}": {
            "queue": "rich",
            "each": {"fraction": part},
            "runs_on": node,
            "labels": {"runai-gpu-group": f"{node}-{at // 2}"},
            "started": started(at),
        }
        for node in SHARED_NODES
        for at in range(6)
    }


def asking(each):
    return {f"asks-{at:02}": {"queue": "poor", "each": wanted} for at, wanted in enumerate(each)}


def shared(groups, **options):
    queues = {"root": {}, "rich": {"parent": "root", "quota": 0}, "poor": {"parent": "root", "quota": 12}}
    session = opened(groups, SHARED_NODES, queues=queues, **options)
    Reclaim().run(session)
    audit(session.ledger)
    return session


def test_searches_without_a_look_are_made_in_one_call(served):
    groups = {**in_pairs(), **asking([{"gpu": 1}] * 12)}
    quick, slow = shared(groups), shared(groups, without=("one-call",))
    assert explained(quick) == explained(slow)
    assert [len(made) for made in told(quick)] == [3] * 12
    # After four looks in vain some are left out.
    assert 0 < sum(end == "served" for end in served.values()) < 8


@settings(max_examples=40)
@given(
    st.lists(PARTS, min_size=1, max_size=4),
    st.lists(st.sampled_from(("10m", "1h", "2h")), min_size=1, max_size=3),
    st.sampled_from((0.5, 0.4)),
)
def test_mixed_pods_reclaim_as_the_long_way_does(wanted, ages, part):
    groups = {
        **in_pairs(lambda at: ages[at % len(ages)], part),
        **asking([wanted[at % len(wanted)] for at in range(16)]),
    }
    quick, slow = shared(groups), shared(groups, without=("one-call",))
    assert explained(quick) == explained(slow)


# -------------------------------------------------------------------------------------------------------- budgets


@attrs.define
class Asked(Unlimited):
    """Grants all but one of the questions, and notes all of them."""

    refused: int
    answer: BudgetAnswer
    notes: list = attrs.field(factory=list)

    def _note(self, what):
        self.notes.append(what)
        return self.answer if len(self.notes) == self.refused else BudgetAnswer.GO

    def begin_group(self):
        """Stop, or go on."""
        return BudgetAnswer.GO if self._note("group") is BudgetAnswer.GO else BudgetAnswer.STOP

    def begin_generator(self, generator):
        """Note its name."""
        self._note(generator)

    def grant(self):
        """Answer."""
        return self._note("scenario")

    def pass_over(self):
        """Answer."""
        return self._note("passed over")


@pytest.mark.parametrize("answer", [BudgetAnswer.STOP, BudgetAnswer.NEXT_GENERATOR])
@pytest.mark.parametrize("refused", range(1, 14))
def test_a_budget_is_asked_what_the_long_way_asks(refused, answer, served):
    quick, slow = Asked(refused, answer), Asked(refused, answer)
    decided = explained(reclaimed(budget=quick)), explained(reclaimed(budget=slow, without=("one-call",)))
    assert decided[0] == decided[1]
    assert quick.notes == slow.notes
    assert served or refused == 1 or answer is BudgetAnswer.STOP


@pytest.mark.parametrize("answer", [BudgetAnswer.STOP, BudgetAnswer.NEXT_GENERATOR])
@pytest.mark.parametrize("refused", range(20, 60, 3))
def test_budgets_refuse_the_same_where_looks_are_left_out(refused, answer):
    groups = {**in_pairs(), **asking([{"gpu": 1}] * 12)}
    quick, slow = Asked(refused, answer), Asked(refused, answer)
    decided = explained(shared(groups, budget=quick)), explained(shared(groups, budget=slow, without=("one-call",)))
    assert decided[0] == decided[1]
    assert quick.notes == slow.notes


@pytest.fixture
def failures(monkeypatch):
    """Return how many scenarios failed in each search that one call served."""
    found, make = [], OneCall._hand_out

    def noted(self, heap):
        found.extend(self._work.served[: self._work.state[reclaiming.STATEMENTS], 2].tolist())
        return make(self, heap)

    monkeypatch.setattr(OneCall, "_hand_out", noted)
    return found


def searched(budget, without=()):
    groups, nodes, queues = levels()
    session = opened(groups, nodes, queues=queues, budget=budget, without=without)
    Reclaim().run(session)
    audit(session.ledger)
    return session


def test_scenarios_after_failed_ones_are_tried_in_one_call(failures):
    quick, slow = searched(Unlimited()), searched(Unlimited(), without=("next-scenario",))
    assert max(failures) == 2
    assert explained(quick) == explained(slow)
    assert quick.ledger.fingerprint() == slow.ledger.fingerprint()


@pytest.mark.parametrize("answer", [BudgetAnswer.STOP, BudgetAnswer.NEXT_GENERATOR])
@pytest.mark.parametrize("refused", [*range(8, 26), 1000])
def test_failed_scenarios_cost_budgets_what_they_cost_elsewhere(refused, answer):
    quick, slow = Asked(refused, answer), Asked(refused, answer)
    decided = explained(searched(quick)), explained(searched(slow, without=("one-call",)))
    assert decided[0] == decided[1]
    assert quick.notes == slow.notes
