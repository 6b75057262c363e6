"""A search takes as few victims as it can, and takes none unless its aggressor gets a place."""

import attrs
import numpy as np
import pytest

from kai.actions.search.group_states import GroupStates
from kai.actions.search.outer import CompiledVictims, PlainVictims
from kai.actions.search.second_look import Looks
from kai.actions.search.solver import Outcome, Search
from kai.deciding.engine.host import BudgetAnswer, Unlimited
from kai.framework import Code, Verdict, VictimProposals, Victims
from kai.framework.decisions import Cause, Evict, Nominate
from tests.unit.actions.search.stage import opened, row, told

NODES = {"n1": {"gpu": 2}, "n2": {"gpu": 2}}
ONE = {"priority": 40, "each": {"gpu": 1}}
FULL = {
    "oldest": {**ONE, "runs_on": "n1"},
    "older": {**ONE, "runs_on": "n1"},
    "younger": {**ONE, "runs_on": "n2"},
    "youngest": {**ONE, "runs_on": "n2"},
}


@pytest.fixture(params=[True, False], ids=["with shortcuts", "the long way"])
def shortcuts(request):
    return request.param


def search(session, aggressor, victims, cause=Cause.PREEMPT, explain=None, *, shortcuts=True):
    """Search for ``aggressor`` among ``victims`` and say how it ended."""
    member = np.zeros(len(session.snapshot.groups), np.bool_)
    member[[row(session, name) for name in victims]] = True
    states = GroupStates(session) if shortcuts else None
    if states is None:
        takes = PlainVictims(session, session.oldest_first(np.flatnonzero(member).astype(np.int64)))
    else:
        states.refresh()
        takes = CompiledVictims(session, states, member)
    portion = session.portion(row(session, aggressor))
    return Search(session, portion, cause, takes, states, "priority", explain, Looks()).run()


def wants(gpus, members=1):
    return {**FULL, "wants": {"priority": 60, "members": members, "each": {"gpu": gpus}}}


def test_one_pod_evicts_only_the_youngest_pod(shortcuts):
    session = opened(wants(1), NODES)
    assert search(session, "wants", FULL, shortcuts=shortcuts) is Outcome.PLACED
    assert told(session) == [["Evict youngest-0", "Nominate wants-0"]]


def test_victims_and_their_aggressor_are_in_one_statement(shortcuts):
    session = opened(wants(1, members=3), NODES)
    assert search(session, "wants", FULL, shortcuts=shortcuts) is Outcome.PLACED
    (made,) = session._sink.statements
    assert sum(isinstance(each, Evict) for each in made) == 3
    assert sum(isinstance(each, Nominate) for each in made) == 3


def test_no_victim_goes_unless_the_whole_gang_gets_places(shortcuts):
    session = opened(wants(1, members=3), NODES)
    before = session.ledger.fingerprint()
    assert search(session, "wants", ("younger", "youngest"), shortcuts=shortcuts) is Outcome.FAILED
    assert told(session) == []
    assert session.ledger.fingerprint() == before


def test_a_group_needing_one_subgroup_evicts_for_one(shortcuts):
    parts = {name: {"members": 2, "each": {"gpu": 1}} for name in ("first", "second")}
    session = opened({**FULL, "wants": {"priority": 60, "minimum": 1, "subgroups": parts}}, NODES)
    assert search(session, "wants", FULL, shortcuts=shortcuts) is Outcome.PLACED
    (made,) = told(session)
    assert sorted(made) == ["Evict younger-0", "Evict youngest-0", "Nominate wants-0", "Nominate wants-1"]


def test_no_victim_is_evicted_for_an_unplaceable_pod(shortcuts):
    session = opened(wants(3), NODES)
    before = session.ledger.fingerprint()
    assert search(session, "wants", FULL, shortcuts=shortcuts) is Outcome.FAILED
    assert told(session) == []
    assert session.ledger.fingerprint() == before


def test_a_pod_needing_a_whole_node_evicts_its_pods(shortcuts):
    session = opened(wants(2), NODES)
    assert search(session, "wants", FULL, shortcuts=shortcuts) is Outcome.PLACED
    (made,) = told(session)
    assert sorted(made) == ["Evict younger-0", "Evict youngest-0", "Nominate wants-0"]


def test_a_search_never_places_a_group_without_victims(shortcuts):
    session = opened(wants(1), {"n1": {"gpu": 2}, "n2": {"gpu": 4}})
    assert search(session, "wants", (), shortcuts=shortcuts) is Outcome.FAILED
    assert told(session) == []


def test_a_group_without_pods_that_wait_needs_no_search(shortcuts):
    session = opened(FULL, NODES)
    assert search(session, "oldest", ("youngest",), shortcuts=shortcuts) is Outcome.FAILED
    assert told(session) == []


def test_a_consolidation_moves_its_victims_or_does_nothing(shortcuts):
    apart = {"left": {**ONE, "runs_on": "n1"}, "right": {**ONE, "runs_on": "n2"}}
    session = opened({**apart, "wants": {"each": {"gpu": 2}}}, NODES)
    assert search(session, "wants", apart, Cause.CONSOLIDATE, shortcuts=shortcuts) is Outcome.PLACED
    (made,) = session._sink.statements
    assert [each.moved_to >= 0 for each in made if isinstance(each, Evict)] == [True]
    session = opened(wants(1), NODES)
    assert search(session, "wants", FULL, Cause.CONSOLIDATE, shortcuts=shortcuts) is Outcome.FAILED
    assert told(session) == []


def test_an_eviction_names_its_aggressor_and_its_rule(shortcuts):
    session = opened(wants(1), NODES)
    search(session, "wants", FULL, shortcuts=shortcuts)
    evicted = session._sink.decisions[0]
    assert (evicted.cause, evicted.rule) == (Cause.PREEMPT, "priority")
    assert evicted.aggressor == row(session, "wants")


def test_messages_get_the_numbers_of_before_the_eviction(shortcuts):
    session = opened(wants(1), NODES)
    search(session, "wants", FULL, explain=lambda *about: {"gpus": about[2][2]}, shortcuts=shortcuts)
    assert session._sink.decisions[0].facts == {"victim": {"gpus": 4000.0}, "aggressor": {"gpus": 4000.0}}


@attrs.define
class Ending(Unlimited):
    """A budget that ends a search after so many scenarios."""

    left: int
    group: BudgetAnswer = BudgetAnswer.GO

    def begin_group(self):
        return self.group

    def grant(self):
        self.left -= 1
        return BudgetAnswer.GO if self.left >= 0 else BudgetAnswer.STOP


def test_a_search_out_of_time_leaves_no_trace(shortcuts):
    for left in range(20):
        session = opened(wants(1, members=3), NODES, budget=Ending(left))
        before = session.ledger.fingerprint()
        if search(session, "wants", FULL, shortcuts=shortcuts) is Outcome.PLACED:
            break
        assert told(session) == []
        assert session.ledger.fingerprint() == before
    assert left > 0
    assert len(told(session)) == 1


def test_a_group_without_time_is_not_searched(shortcuts):
    session = opened(wants(1), NODES, budget=Ending(9, BudgetAnswer.STOP))
    assert search(session, "wants", FULL, shortcuts=shortcuts) is Outcome.STOPPED
    assert told(session) == []


@attrs.define
class Passing(Unlimited):
    """A budget that ends a search after so many scenarios that are passed over."""

    left: int
    seen: int = 0

    def pass_over(self):
        self.seen += 1
        return BudgetAnswer.GO if self.seen <= self.left else BudgetAnswer.STOP


@attrs.frozen
class Repeating:
    """A plugin that proposes the same victims again and again."""

    times: int = 50

    def open(self, session):
        del session

        def propose(outers):
            for outer in outers:
                yield from [outer.scenario(outer.batches)] * self.times

        return [VictimProposals(propose)]


def test_skipped_scenarios_ask_the_budget_too(shortcuts):
    """A generator may propose thousands that failed before."""
    budget = Passing(3)
    spare = Judging("youngest")
    groups = {**wants(1), "youngest": {**FULL["youngest"]}}
    session = opened(groups, NODES, plugins=(Repeating(), spare), budget=budget)
    before = session.ledger.fingerprint()
    assert search(session, "wants", ("youngest",), shortcuts=shortcuts) is Outcome.STOPPED
    assert budget.seen == 4
    assert session.ledger.fingerprint() == before


@attrs.define
class Judging:
    """A plugin that refuses sets of victims with a pod of one group."""

    spared: str
    asked: int = 0

    def open(self, session):
        def accept(scenario, cause):
            del cause
            self.asked += 1
            groups = {session.snapshot.pods[pod].group for pod in scenario.victims()}
            return Verdict.refused(Code.NOT_ELIGIBLE, rule="test") if self.spared in groups else Verdict()

        return [Victims(accept=accept, accepts_by_victims=True)]


def test_victims_that_a_plugin_does_not_accept_stay(shortcuts):
    judge = Judging("youngest")
    session = opened(wants(1), NODES, plugins=(judge,))
    search(session, "wants", FULL, shortcuts=shortcuts)
    assert judge.asked
    assert not [line for made in told(session) for line in made if line == "Evict youngest-0"]


def test_rejected_scenarios_leave_everything_unchanged(shortcuts):
    session = opened(wants(1), NODES, plugins=(Judging("youngest"),))
    before = session.ledger.fingerprint()
    assert search(session, "wants", ("youngest",), shortcuts=shortcuts) is Outcome.FAILED
    assert told(session) == []
    assert session.ledger.fingerprint() == before


def test_growing_victims_stops_when_the_budget_ends(monkeypatch):
    """What no domain holds is never proposed, so the budget would not be asked about it."""
    monkeypatch.setattr("kai.actions.search.outer.AT_A_TIME", 1)
    nodes = {f"n{at}": {"gpu": 1, "labels": {"rack": f"r{at}"}} for at in range(4)}
    full = {f"v{at}": {**ONE, "runs_on": f"n{at}"} for at in range(4)}
    wants = {"members": 2, "priority": 60, "each": {"gpu": 1}, "topology": {"topology": "tree", "required": "rack"}}
    budget = Passing(5)
    session = opened({**full, "wants": wants}, nodes, topologies={"tree": ["rack"]}, budget=budget)
    assert search(session, "wants", full) is Outcome.STOPPED
    assert budget.seen == 6
