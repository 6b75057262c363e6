from unittest import mock

import attrs
import pytest

from kai.actions.search import waiting
from kai.actions.search.solver import Search
from kai.deciding.engine.cycle import run_cycle
from kai.framework.parameters import Parameters
from kai.testing import RecordingSink, default_profile_with, snapshot

SPREAD = {
    "left": {"queue": "calm", "each": {"gpu": 1}, "runs_on": "a"},
    "right": {"queue": "calm", "each": {"gpu": 1}, "runs_on": "b"},
}
NODES = {"a": {"gpu": 2, "cpu": 8, "memory": 8}, "b": {"gpu": 2, "cpu": 8, "memory": 8}}


def searches(nodes, queues, groups, **parameters):
    """Return for how many groups a cycle searched, and how many decisions it made."""
    taken = snapshot(nodes=nodes, queues=queues, groups=groups)
    whole = default_profile_with()
    actions = tuple(action for action in whole.actions if action.name in {"allocate", "consolidation"})
    profile = attrs.evolve(whole, actions=actions, parameters=Parameters(**parameters))
    sink = RecordingSink()
    with mock.patch.object(waiting, "Search", wraps=Search) as search:
        run_cycle(taken, profile, sink)
    return search.call_count, len(sink.decisions)


def test_a_group_that_moving_can_help_is_searched_for():
    queues = {"calm": {"quota": 4}, "other": {"quota": 2}}
    tried, decided = searches(NODES, queues, {**SPREAD, "whole": {"queue": "other", "each": {"gpu": 2}}})
    assert tried == 1
    assert decided == 3  # one pod moves, and two places are promised


def flood(**each):
    """Return groups of one queue that all differ in what they ask for."""
    return {f"g{at}": {"queue": "other", "each": {**each, "memory": 0.001 * (at + 1)}} for at in range(20)}


@pytest.mark.parametrize(
    ("queue", "each"),
    [
        pytest.param({"quota": 2, "limit": 1}, {"gpu": 2}, id="its queue would hold more than its limit"),
        pytest.param({"quota": 2}, {"gpu": 2, "cpu": 17}, id="all nodes together have less CPU"),
        pytest.param({"quota": 8}, {"gpu": 3}, id="all nodes together have fewer GPUs"),
    ],
)
def test_hopeless_consolidations_are_not_searched(queue, each):
    queues = {"calm": {"quota": 4}, "other": queue}
    assert searches(NODES, queues, {**SPREAD, **flood(**each)}) == (0, 0)


FOUR = {name: {"gpu": 4, "cpu": 8, "memory": 8} for name in "abc"}
QUEUES = {"calm": {"quota": 12}, "other": {"quota": 4}}


def among(held, fixed=(), each=4, members=1, **parameters):
    """Return for how many groups a cycle searched; a name ends with its node, and ``fixed`` names may not move."""
    groups = {
        name: {"queue": "calm", "each": {"gpu": gpus}, "runs_on": name[-1], "preemptible": name not in fixed}
        for name, gpus in held.items()
    }
    groups["whole"] = {"queue": "other", "members": members, "each": {"gpu": each}}
    return searches(FOUR, QUEUES, groups, **parameters)


def test_a_node_that_only_small_victims_hold_is_searched():
    assert among({"xa": 2, "xb": 2, "xc": 3}) == (1, 3)


def test_a_victim_as_large_as_the_request_frees_nothing():
    held = {"xa": 4, "xb": 2, "xc": 2}
    assert among(held, fixed={"xb", "xc"}) == (0, 0)
    assert among(held, fixed={"xb", "xc"}, shortcuts=False) == (1, 0)


def test_nodes_whose_pods_must_stay_free_nothing():
    held = {"xa": 2, "ya": 1, "xb": 2, "xc": 3}
    assert among(held, fixed={"xa", "xb", "xc"}) == (0, 0)
    assert among(held, fixed={"xa", "xb", "xc"}, shortcuts=False) == (1, 0)


def test_a_gang_needs_as_many_nodes_as_pods():
    held = {"xa": 1, "xb": 1, "xc": 2}
    assert among(held, members=2) == (1, 6)
    assert among(held, fixed={"xb", "xc"}, members=2) == (0, 0)


def test_without_short_cuts_the_search_itself_finds_out():
    queues = {"calm": {"quota": 4}, "other": {"quota": 2, "limit": 1}}
    tried, decided = searches(
        NODES, queues, {**SPREAD, "whole": {"queue": "other", "each": {"gpu": 2}}}, shortcuts=False
    )
    assert tried == 1
    assert decided == 0
