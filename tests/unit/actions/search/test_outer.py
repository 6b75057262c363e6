"""Sets of victims grow batch by batch: surplus pods one by one, then gangs as a whole."""

import numpy as np
import pytest

from kai.actions.search.group_states import GroupStates
from kai.actions.search.outer import CompiledVictims, Filters, PlainVictims, Terms, give_up
from kai.facts.kernels.prefix import AT_A_TIME
from kai.framework.scenario import NO_BATCHES
from tests.unit.actions.search.stage import opened, pods_of, row

GROUPS = {
    "elastic": {"members": 3, "minimum": 2, "each": {"gpu": 1}, "runs_on": "n1"},
    "gang": {"members": 2, "each": {"gpu": 1}, "runs_on": "n1"},
    "wants": {"priority": 60, "each": {"gpu": 4}},
}
NODES = {"n1": {"gpu": 5}}


@pytest.fixture
def session():
    return opened(GROUPS, NODES)


def names(session, pods):
    return [session.snapshot.pods[pod].name for pod in pods]


def test_a_group_gives_up_one_surplus_pod_and_keeps_the_rest(session):
    pods, rest = give_up(session.portion(row(session, "elastic")), set())
    assert names(session, pods) == ["elastic-2"]
    assert names(session, rest.pods()) == ["elastic-0", "elastic-1"]


def test_without_surplus_a_group_gives_up_all_its_pods(session):
    _, rest = give_up(session.portion(row(session, "elastic")), set())
    pods, nothing = give_up(rest, set())
    assert sorted(names(session, pods)) == ["elastic-0", "elastic-1"]
    assert nothing is None


def test_a_group_with_known_victims_gives_up_none_now_and_the_others_later(session):
    last = pods_of(session, "elastic")[2]
    pods, rest = give_up(session.portion(row(session, "elastic")), {last})
    assert names(session, pods) == []
    assert names(session, rest.pods()) == ["elastic-0", "elastic-1"]


def test_a_group_of_which_all_pods_are_known_victims_has_none_left(session):
    pods, rest = give_up(session.portion(row(session, "gang")), set(pods_of(session, "gang")))
    assert names(session, pods) == []
    assert rest is None


def grown(session, victims, free=0, goes_on=lambda: True):
    """Return the batches of each outer scenario that passes the filters of the group that wants."""
    aggressor = session.portion(row(session, "wants"))
    waiting = tuple(aggressor.chunk().tolist())
    room, feasible = np.full(len(session.all_nodes), free, np.int64), np.zeros(0, np.int64)
    filters = Filters(session, aggressor, waiting, room, feasible)
    terms = Terms(
        aggressor=aggressor,
        waiting=waiting,
        recorded=NO_BATCHES,
        free=room,
        feasible=feasible,
        filters=filters,
        goes_on=goes_on,
    )
    return [[sorted(names(session, batch)) for batch in outer.batches] for outer in victims.outers(terms)]


def the_long_way(session, member):
    return PlainVictims(session, session.oldest_first(np.flatnonzero(member).astype(np.int64)))


def by_kernel(session, member):
    states = GroupStates(session)
    states.refresh()
    return CompiledVictims(session, states, member)


either_way = pytest.mark.parametrize("victims", [the_long_way, by_kernel])


def member(session, *groups):
    out = np.zeros(len(session.snapshot.groups), np.bool_)
    out[[row(session, name) for name in groups]] = True
    return out


@either_way
def test_surplus_goes_before_gangs_and_the_youngest_before_the_oldest(session, victims):
    made = grown(session, victims(session, member(session, "elastic", "gang")))
    assert made[-1] == [["elastic-2"], ["gang-0", "gang-1"], ["elastic-0", "elastic-1"]]


@either_way
def test_a_set_that_cannot_be_enough_is_not_even_proposed(session, victims):
    made = grown(session, victims(session, member(session, "elastic", "gang")))
    assert [len(batches) for batches in made] == [3]


@either_way
def test_where_there_is_room_already_the_first_set_is_empty_and_each_next_one_larger(session, victims):
    made = grown(session, victims(session, member(session, "elastic", "gang")), free=4000)
    assert [len(batches) for batches in made] == [0, 1, 2, 3]


@either_way
def test_only_pods_of_groups_that_may_be_taken_are_in_a_set(session, victims):
    assert grown(session, victims(session, member(session, "gang")), free=3000) == [[["gang-0", "gang-1"]]]


@either_way
def test_without_groups_to_take_from_nothing_is_proposed(session, victims):
    assert grown(session, victims(session, member(session))) == []


@pytest.mark.parametrize("left", [0, 1, 99])
def test_a_set_grows_no_further_than_there_is_time(left):
    """Filters may refuse the victims of a whole cluster, one after the other."""
    crowd = {"members": 2 * AT_A_TIME, "minimum": 0, "each": {"gpu": 1}, "runs_on": "n1"}
    session = opened({"crowd": crowd, "wants": {"members": 2, "each": {"gpu": 4}}}, {"n1": {"gpu": 4}})
    asked = []

    def goes_on():
        asked.append(len(asked))
        return len(asked) <= left

    assert grown(session, by_kernel(session, member(session, "crowd")), -(10**9), goes_on) == []
    assert len(asked) == min(left + 1, 2)


def test_a_set_that_no_domain_of_the_group_holds_grows_no_further_than_there_is_time(monkeypatch):
    monkeypatch.setattr("kai.actions.search.outer.AT_A_TIME", 1)
    nodes = {f"n{at}": {"gpu": 1, "labels": {"rack": f"r{at}"}} for at in range(4)}
    groups = {f"v{at}": {"each": {"gpu": 1}, "runs_on": f"n{at}"} for at in range(4)}
    wants = {"members": 2, "each": {"gpu": 1}, "topology": {"topology": "tree", "required": "rack"}}
    session = opened({**groups, "wants": wants}, nodes, topologies={"tree": ["rack"]})
    asked = []
    made = grown(
        session, by_kernel(session, member(session, *groups)), goes_on=lambda: asked.append(1) or len(asked) < 2
    )
    assert made == []
    assert len(asked) == 2
