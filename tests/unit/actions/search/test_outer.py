"""Sets of victims grow batch by batch: surplus pods one by one, then gangs as a whole."""

import itertools

import numpy as np
import pytest

from kai.actions.placing import place_group
from kai.actions.search.group_states import GroupStates
from kai.actions.search.outer import CompiledVictims, Devices, Filters, PlainVictims, Terms, give_up
from kai.facts.kernels.prefix import AT_A_TIME
from kai.framework.decisions import Cause
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


def test_a_group_gives_up_one_surplus_pod_first(session):
    pods, rest = give_up(session.portion(row(session, "elastic")), set())
    assert names(session, pods) == ["elastic-2"]
    assert names(session, rest.pods()) == ["elastic-0", "elastic-1"]


def test_without_surplus_a_group_gives_up_all_its_pods(session):
    _, rest = give_up(session.portion(row(session, "elastic")), set())
    pods, nothing = give_up(rest, set())
    assert sorted(names(session, pods)) == ["elastic-0", "elastic-1"]
    assert nothing is None


def test_known_victims_of_a_group_are_not_given_again(session):
    last = pods_of(session, "elastic")[2]
    pods, rest = give_up(session.portion(row(session, "elastic")), {last})
    assert names(session, pods) == []
    assert names(session, rest.pods()) == ["elastic-0", "elastic-1"]


def test_a_group_of_only_known_victims_gives_none(session):
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
        devices=None,
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
def test_surplus_and_younger_victims_go_first(session, victims):
    made = grown(session, victims(session, member(session, "elastic", "gang")))
    assert made[-1] == [["elastic-2"], ["gang-0", "gang-1"], ["elastic-0", "elastic-1"]]


@either_way
def test_sets_that_cannot_suffice_are_not_proposed(session, victims):
    made = grown(session, victims(session, member(session, "elastic", "gang")))
    assert [len(batches) for batches in made] == [3]


@either_way
def test_free_room_makes_the_first_set_empty(session, victims):
    made = grown(session, victims(session, member(session, "elastic", "gang")), free=4000)
    assert [len(batches) for batches in made] == [0, 1, 2, 3]


@either_way
def test_only_groups_that_may_be_victims_are_proposed(session, victims):
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


def test_growing_sets_stop_when_time_is_up(monkeypatch):
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


def rejected(session, wants, victims, counts):
    """Return how many sets of ``victims`` the count of devices rejects, and which of these would serve ``wants``."""
    part = session.portion(row(session, wants))
    devices = Devices.of(session, part.chunk().tolist())
    if devices is None:
        return 0, []
    sets = [pods for count in counts for pods in itertools.combinations(victims, count)]
    refused = [pods for pods in sets if not devices.begin().add(pods)]
    wrong = []
    for pods in refused:
        statement = session.statement("reclaim", Cause.RECLAIM, part.group)
        statement.evict(np.array(pods, np.int64))
        if place_group(session, statement, part, session.all_nodes, promise=True):
            wrong.append(pods)
        statement.discard()
    return len(refused), wrong


@pytest.mark.parametrize("asked", [{"gpu": 1}, {"gpu": 2}, {"fraction": 0.7}, {"gpu_memory": 60}], ids=str)
@pytest.mark.parametrize("promised", range(4))
def test_no_sufficient_victims_are_rejected_for_their_devices(asked, promised):
    shares = {
        f"s{at}": {"members": 2, "each": {"fraction": (0.5, 0.4, 0.5, 0.4)[at]}, "runs_on": "n"} for at in range(4)
    }
    groups = {**shares, "one": {"each": {"fraction": 0.8}, "runs_on": "n"}, "first": {"each": {"gpu": 1}}}
    session = opened({**groups, "second": {"each": {"fraction": 0.3}}, "wants": {"each": asked}}, {"n": {"gpu": 5}})
    for at in range(promised):  # what is promised changes how devices that become free count
        statement = session.statement("reclaim", Cause.RECLAIM, -1)
        statement.evict(np.array(pods_of(session, f"s{at}"), np.int64))
        first = session.portion(row(session, ("first", "second", "first")[at]))
        place_group(session, statement, first, session.all_nodes, promise=True)
        statement.commit()
    left = [pod for at in range(promised, 4) for pod in pods_of(session, f"s{at}")] + pods_of(session, "one")
    count, wrong = rejected(session, "wants", left, range(len(left) + 1))
    assert wrong == []
    assert count or promised


def test_two_half_devices_do_not_make_a_whole_one():
    halves = {name: {"members": 2, "each": {"fraction": 0.5}, "runs_on": "n"} for name in ("one", "two")}
    session = opened({**halves, "wants": {"each": {"gpu": 1}}}, {"n": {"gpu": 2}})
    devices = Devices.of(session, pods_of(session, "wants"))
    one, two = pods_of(session, "one"), pods_of(session, "two")
    assert not devices.begin().add([one[0], two[0]])
    assert devices.begin().add([one[0], two[0], one[1]])


def test_devices_are_not_counted_where_none_is_shared(session):
    assert Devices.of(session, pods_of(session, "wants")) is None
