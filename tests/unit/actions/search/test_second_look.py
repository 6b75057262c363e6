import itertools
from unittest import mock

import numpy as np
import pytest

from kai.actions.consolidate import Consolidate
from kai.actions.reclaim import Reclaim
from kai.actions.search.losses import Cost, Giver, Givers, Offers, Room
from kai.actions.search.plans import Planner
from kai.actions.search.second_look import MOST_LEFT_OUT, PATIENCE, Looks, SecondLook
from kai.framework.decisions import Cause
from tests.unit.actions.search.stage import opened, row, told

ASKED = (0, 1)


def left_out(looks, asked=ASKED):
    """Return how many looks are left out until one is made."""
    count = 0
    while looks.leaves_out(asked):
        count += 1
    return count


def test_more_and_more_second_looks_are_skipped_in_vain():
    looks, found = Looks(), []
    for _ in range(PATIENCE + 6):
        found.append(left_out(looks))
        looks.note(ASKED, in_vain=True)
    assert found == [0] * PATIENCE + [1, 3, 7, MOST_LEFT_OUT, MOST_LEFT_OUT, MOST_LEFT_OUT]


def test_a_successful_look_cancels_one_in_vain():
    looks = Looks()
    for _ in range(PATIENCE):
        looks.note(ASKED, in_vain=True)
    looks.note(ASKED, in_vain=False)
    assert left_out(looks) == 0
    looks.note(ASKED, in_vain=True)
    assert left_out(looks) == 1


def test_looks_for_other_requests_are_still_made():
    looks = Looks()
    for _ in range(PATIENCE):
        looks.note(ASKED, in_vain=True)
    assert left_out(looks, (0, 2)) == 0


def test_no_second_look_is_taken_when_all_must_move():
    spread = {name: {"each": {"gpu": 1}, "runs_on": [name[-1]]} for name in ("on-a", "on-b")}
    session = opened({**spread, "whole": {"each": {"gpu": 2}}}, {"a": {"gpu": 2}, "b": {"gpu": 2}})
    with mock.patch.object(SecondLook, "look_again") as look:
        Consolidate().run(session)
    assert look.call_count == 0
    assert len(told(session)) == 1


def test_half_of_each_of_two_devices_is_no_device():
    halves = {"members": 2, "minimum": 1, "each": {"fraction": 0.5}, "runs_on": ["n", "n"]}
    session = opened({"one": halves, "two": halves, "whole": {"each": {"gpu": 1}}}, {"n": {"gpu": 2}})
    part = session.portion(row(session, "whole"))
    one, two = (Giver(session, row(session, name)) for name in ("one", "two"))
    room = Room(session, part, part.chunk().tolist(), session.all_nodes * 0)
    assert not room.could_hold({**one.places(1), **two.places(1)})
    assert room.could_hold(one.places(2))
    assert not room.could_hold({})


@pytest.mark.parametrize("asked", [{"gpu": 1}, {"fraction": 0.6}, {"gpu": 2}, {}], ids=str)
def test_offers_are_estimated_together_as_each_alone(asked):
    halves = {"members": 3, "minimum": 1, "each": {"fraction": 0.5}, "runs_on": ["n", "n", "m"]}
    whole = {"members": 2, "minimum": 1, "each": {"gpu": 1}, "runs_on": ["n", "m"]}
    groups = {"one": halves, "two": halves, "three": whole, "four": {"each": {"fraction": 0.3}, "runs_on": ["m"]}}
    session = opened({**groups, "wants": {"members": 2, "each": asked}}, {"n": {"gpu": 4}, "m": {"gpu": 4}})
    part = session.portion(row(session, "wants"))
    room = Room(session, part, part.chunk().tolist(), session.all_nodes * 0)
    givers = [Giver(session, row(session, name)) for name in groups]
    places = {giver.group: giver.places if room.whole else giver.freed for giver in givers}
    offers = Offers(givers, whole=room.whole)
    ways = list(zip(offers.groups.tolist(), offers.steps.tolist(), strict=True))
    assert len(ways) == 7
    for count in range(3):
        for rest in itertools.combinations(givers, count):
            freed = summed(places[each.group](each.steps) for each in rest)
            alone = [room.could_hold(summed([freed, places[group](steps)])) for group, steps in ways]
            assert room.could_hold_each(freed, offers).tolist() == alone


def test_cheaper_offers_are_those_that_sort_first():
    groups = {f"g{at}": {"members": at, "minimum": 1, "each": {"gpu": 1}, "runs_on": ["n"] * at} for at in (1, 2, 3)}
    session = opened(groups, {"n": {"gpu": 8}})
    offers = Offers([Giver(session, row(session, name)) for name in groups], whole=True)
    costs = [Cost(*each) for each in offers.costs.tolist()]
    rest = Cost(0, 1, 50, 1, 1000)
    for bound in itertools.product((0, 1), (0, 1, 2), (0, 50), (1, 2, 3), (2000, 3000)):
        sums = [[mine + more for mine, more in zip(rest, cost, strict=True)] for cost in costs]
        wanted = [bound[0] > 0 or each[1:] < [*bound[1:]] for each in sums]
        assert offers.cheaper(rest, Cost(*bound)).tolist() == wanted


@pytest.mark.parametrize("freeing", [True, False])
def test_groups_cost_together_what_each_costs_alone(freeing):
    halves = {"members": 3, "minimum": 2, "each": {"fraction": 0.5}, "runs_on": ["n", "n", "m"]}
    tree = {"a": {"members": 1, "minimum": 1}, "b": {"members": 1, "minimum": 1}}
    groups = {
        "halves": halves,
        "quarter": {"each": {"fraction": 0.25}, "runs_on": ["m"], "started": "90s"},
        "wholes": {"started": "3s", "members": 2, "minimum": 0, "each": {"gpu": 2}, "runs_on": ["n", "m"]},
        "none": {"each": {"cpu": 1}, "runs_on": ["n"]},
        "partly": {"members": 2, "minimum": 2, "each": {"gpu": 1}, "runs_on": ["n"]},
        "tree": {"subgroups": tree, "each": {"gpu": 1}, "runs_on": ["n", "m"]},
        "waits": {"each": {"gpu": 1}},
    }
    session = opened(groups, {"n": {"gpu": 8}, "m": {"gpu": 8}})
    rows = np.arange(len(groups))
    costs = {group: giver.cost(giver.steps) for group in rows.tolist() if (giver := Giver(session, group)).steps}
    wanted = [
        group for group in sorted(costs, key=lambda each: (costs[each], each)) if not freeing or costs[group].gpus
    ]
    assert len(wanted) == (5 if freeing else 6)
    assert Givers(session).cheapest(rows, 10, freeing=freeing) == wanted


@pytest.mark.parametrize("quota", [0, 2, 4, 6])
@pytest.mark.parametrize("members", [1, 2])
def test_drafts_are_gathered_as_if_each_alone(quota, members):
    running = {
        f"r{at}": {"queue": f"q{at % 2}", "members": 2, "minimum": members, "each": {"gpu": 1}, "runs_on": ["n", "n"]}
        for at in range(4)
    }
    queues = {"q0": {"quota": quota}, "q1": {"quota": 0}, "owed": {"quota": 8}}
    groups = {**running, "wants": {"queue": "owed", "each": {"gpu": 3}}}
    plain, quick = (planner_for(opened(groups, {"n": {"gpu": 8}}, queues)) for _ in range(2))
    nodes, rows = np.ones(1, np.bool_), quick._givers()
    surplus = {group: plain.giver(group).surplus for group in rows if plain.giver(group).surplus}
    wanted = [
        plain._gather(rows, begin, keep=keep)[0]
        for _ in ("by cost", "by use")
        for begin, keep in (({}, False), *([(surplus, False)] if surplus else []), ({}, True))
    ]
    assert list(quick._drafts(nodes, rows)) == [draft for draft in wanted if draft is not None]
    assert quick._papers == plain._papers


def planner_for(session):
    """Return a planner of plans with which ``wants`` reclaims from all other groups."""
    part, used = session.portion(row(session, "wants")), session.columns.queue_used.copy()
    member = np.arange(len(session.snapshot.groups)) != part.group
    return Planner(session, part, Cause.RECLAIM, member, session.all_nodes * 0, used, Givers(session))


def summed(parts):
    """Return amounts by place, added up."""
    out = {}
    for each in parts:
        for place, amount in each.items():
            out[place] = out.get(place, 0) + amount
    return out


def shared_devices(devices, wholes):
    """Return groups with two halves on each device of a node, and so many that wait for a whole one and for a half."""
    halves = {
        f"r{device}-{at}": {
            "queue": "lent",
            "each": {"fraction": 0.5},
            "runs_on": "n",
            "labels": {"runai-gpu-group": str(device)},
        }
        for device in range(devices)
        for at in range(2)
    }
    parts = ({"fraction": 0.5}, {"gpu": 1})
    waiting = {f"w{at}": {"queue": "owed", "each": parts[at % 2]} for at in range(2 * wholes)}
    return halves | waiting


def test_victims_are_given_back_even_when_looks_are_skipped():
    groups = shared_devices(12, 8)
    session = opened(groups, {"n": {"gpu": 12}}, queues={"lent": {"quota": 0}, "owed": {"quota": 12}})
    with mock.patch.object(SecondLook, "give_back", autospec=True, side_effect=SecondLook.give_back) as given:
        Reclaim().run(session)
    made = [each for statement in told(session) for each in statement]
    assert given.call_count > 0
    assert sum(each.startswith("Nominate w") for each in made) == 16
    assert sum(each.startswith("Evict") for each in made) == 8 + 2 * 8


def test_among_equal_plans_those_only_giving_back_come_first():
    groups = shared_devices(3, 1)
    session = opened(groups, {"n": {"gpu": 3}}, queues={"lent": {"quota": 0}, "owed": {"quota": 3}})
    part, member = session.portion(row(session, "w1")), np.zeros(len(session.snapshot.groups), np.bool_)
    member[[row(session, name) for name in groups if name.startswith("r")]] = True
    used = session.columns.queue_used.copy()
    planner = Planner(session, part, Cause.RECLAIM, member, session.all_nodes * 0, used, Givers(session))
    found = {row(session, name): 1 for name in ("r2-0", "r2-1", "r1-0")}
    first, *others = planner.plans(found)
    assert first == {row(session, name): 1 for name in ("r2-0", "r2-1")}
    assert all(planner.cost(first) <= planner.cost(each) for each in others)
    assert list(planner.given_back(found)) == [first]
