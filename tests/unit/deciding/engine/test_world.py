"""A world shows who is where and what follows from it, first as it was booked, then as statements change it."""

import attrs
import numpy as np
import pytest

from kai.deciding.engine.session import base_of
from kai.deciding.engine.world import World
from kai.facts.model.pod import ACTIVE_ALLOCATED, Status
from kai.framework import Effect, NodeFilter, Placement
from kai.framework.parameters import Parameters
from kai.testing import snapshot
from kai.testing.views import open_session
from tests.doubles.audit import audit

NODES = {"n1": {"gpu": 4}, "n2": {"gpu": 4}}
GROUPS = {
    "plain": {"members": 2, "each": {"gpu": 1}, "runs_on": {"n1": 1}},
    "parts": {
        "subgroups": {
            "top": {"minimum_subgroups": 1},
            "zebra": {"parent": "top", "members": 1, "each": {"gpu": 1}},
            "ant": {"parent": "top", "members": 2, "each": {"gpu": 2}},
        }
    },
}


@pytest.fixture
def taken():
    return snapshot(NODES, GROUPS)


@pytest.fixture
def world(taken):
    return open_session(taken)


def group(world, name):
    return next(row for row, each in enumerate(world.snapshot.groups) if each.name == name)


def subgroup(world, name):
    first = int(world.facts.groups.first_subgroup[group(world, "parts")])
    names = [each.name for each in world.snapshot.groups[group(world, "parts")].subgroups]
    return first + names.index(name)


def names(world, pods):
    return [world.snapshot.pods[pod].name for pod in pods]


# ------------------------------------------------------------------------------------------------------ opening


def test_before_plugins_open_a_world_shows_what_was_booked(taken):
    early = World(taken, base_of(taken), Parameters())
    assert names(early, early.pods_in(ACTIVE_ALLOCATED)) == ["plain-0"]
    assert early.columns.idle[taken.node_rows["n1"], 2] == 3000


def test_facts_that_plugins_decide_belong_to_one_world(taken):
    base = base_of(taken)
    first, second = (World(taken, base, Parameters()) for _ in range(2))
    first.facts.shapes.mask[:] = 7
    assert not second.facts.shapes.mask.any()
    assert not base.facts.shapes.mask.any()


def test_a_pod_avoids_nodes_that_a_plugin_refuses(taken):
    def only_second(pod, nodes):
        del pod
        return nodes == taken.node_rows["n2"]

    class OnlySecond:
        def open(self, session):
            return [NodeFilter(only_second)]

    world = open_session(taken, OnlySecond())
    pod = int(world.portion(group(world, "plain")).chunk()[0])
    with world.statement("test") as statement:
        statement.place_pods(np.array([pod], np.int64), world.all_nodes, world.no_extra, promise=False)
        assert world.columns.node[pod] == taken.node_rows["n2"]


def test_a_tracked_column_follows_placements_and_their_undo(taken):
    class Licences:
        def open(self, session):
            self.left = session.track(np.array([3]))
            return [Placement(effects=self.effects)]

        def effects(self, pod, node, detail):
            del pod, node, detail
            return [Effect(self.left, 0, -1)]

    plugin = Licences()
    world = open_session(taken, plugin)
    with world.statement("test") as statement:
        pods = world.portion(group(world, "plain")).chunk()
        statement.place_pods(pods, world.all_nodes, world.no_extra, promise=False)
        assert plugin.left.values.tolist() == [2]
    assert plugin.left.values.tolist() == [3]


def test_a_released_world_holds_nothing(world):
    world.release()
    assert vars(world) == {}


# ---------------------------------------------------------------------------------------------------- sub-groups


def test_children_come_by_name(world):
    assert [world.subgroup_name(row) for row in world.children(subgroup(world, "top"))] == ["ant", "zebra"]


def test_a_leaf_has_no_children(world):
    assert world.children(subgroup(world, "ant")) == ()


def test_each_sub_group_belongs_to_its_group(world):
    starts = world.facts.groups.first_subgroup
    for row in range(len(world.snapshot.groups)):
        below = range(int(starts[row]), int(starts[row + 1]))
        assert {world.group_of_subgroup(each) for each in below} == {row}


def test_a_subgroup_with_minimum_of_children_has_its_own(world):
    root = int(world.facts.groups.first_subgroup[group(world, "parts")])
    assert world.has_own_minimum(subgroup(world, "top"))
    assert not world.has_own_minimum(root)


def test_a_leaf_takes_scores_of_its_nearest_scored_subgroup(world):
    leaf, top = subgroup(world, "ant"), subgroup(world, "top")
    assert world.scores_below(leaf) is world.no_extra
    world.subgroup_scores[top] = np.ones(2)
    assert world.scores_below(leaf) is world.subgroup_scores[top]
    world.subgroup_scores[leaf] = np.zeros(2)
    assert world.scores_below(leaf) is world.subgroup_scores[leaf]


# ---------------------------------------------------------------------------------------------- groups and pods


def test_groups_are_ordered_by_age():
    world = open_session(snapshot(NODES, {name: {"each": {"gpu": 1}} for name in "zma"}))
    rows = world.oldest_first(np.arange(3, dtype=np.int64))
    assert [world.snapshot.groups[row].name for row in rows] == ["z", "m", "a"]


def test_groups_of_one_age_are_ordered_by_uid():
    made = snapshot(NODES, {name: {"each": {"gpu": 1}} for name in "zma"})
    alike = tuple(attrs.evolve(each, created=0.0) for each in made.groups)
    world = open_session(attrs.evolve(made, groups=alike))
    rows = world.oldest_first(np.arange(3, dtype=np.int64))
    assert [world.snapshot.groups[row].name for row in rows] == ["a", "m", "z"]


def test_a_group_has_the_pods_of_all_its_subgroups(world):
    assert sorted(names(world, world.pods_of(group(world, "parts")))) == ["parts-0", "parts-1", "parts-2"]


def test_pods_are_found_by_status_as_it_is_now(world):
    assert names(world, world.pods_in(1 << Status.RELEASING)) == []
    with world.statement("test") as statement:
        statement.evict(world.portion(group(world, "plain")).holding(ACTIVE_ALLOCATED))
        assert names(world, world.pods_in(1 << Status.RELEASING)) == ["plain-0"]


def test_a_pod_counts_in_quota_for_what_it_asks(world):
    pod = int(world.portion(group(world, "parts")).pods_of(subgroup(world, "ant"))[0])
    assert world.accepted(pod)[2] == 2000


def test_footprints_of_pods_compare_by_what_they_ask_for(world):
    shape = world.facts.pods.shape
    one, other = world.portion(group(world, "plain")).pods()
    larger = world.portion(group(world, "parts")).pods_of(subgroup(world, "ant"))[0]
    assert world.footprint(int(shape[one])) == world.footprint(int(shape[other]))
    assert world.footprint(int(shape[one])) != world.footprint(int(shape[larger]))


def test_keys_of_some_groups_equal_those_computed_for_all(taken):
    few, all_at_once = open_session(taken), open_session(taken)
    rows = np.arange(len(taken.groups))[::-1]
    assert few.keys_of(rows).tolist() == all_at_once.group_keys[rows].tolist()
    assert "group_keys" not in few.__dict__
    assert few.oldest_first(rows).tolist() == all_at_once.base.group_order.tolist()


def test_groups_wait_initially_or_after_a_change(world):
    assert {world.snapshot.groups[row].name for row in world.waiting_groups()} == {"parts", "plain"}
    pending = [pod for pod in world.pods_of(group(world, "plain")) if world.columns.status[pod] == Status.PENDING]
    with world.statement("allocate") as statement:
        statement.place_pods(np.array(pending), world.all_nodes, world.no_extra, promise=False)
        statement.commit()
    assert [world.snapshot.groups[row].name for row in world.waiting_groups()] == ["parts"]
    with world.statement("reclaim") as statement:
        statement.evict(world.pods_of(group(world, "plain")))
        assert [world.snapshot.groups[row].name for row in world.waiting_groups()] == ["parts"]


@pytest.mark.parametrize("verbs", ["place", "evict", "move", "place and forget"])
def test_a_released_session_leaves_the_next_one_clean_books(taken, verbs, monkeypatch):
    if "forget" in verbs:
        monkeypatch.setattr("kai.facts.state.ledger.MOST_FINAL", -(1 << 20))
    opened = open_session(taken).ledger.fingerprint()
    session = open_session(taken)
    pods = session.pods_of(group(session, "plain"))
    with session.statement("reclaim") as statement:
        if verbs in ("evict", "move"):
            statement.evict(pods)
        if verbs != "evict":
            statement.place_pods(pods, session.all_nodes[1:], session.no_extra, promise=verbs == "move")
        statement.commit()
    with session.statement("allocate") as statement:
        statement.evict(session.pods_of(group(session, "parts")))
    assert session.ledger.fingerprint() != opened
    assert session.ledger.is_whole == ("forget" not in verbs)
    memory = session.ledger.arena.ctypes.data
    session.release()
    del statement
    again = open_session(taken)
    assert again.ledger.fingerprint() == opened
    assert again.ledger.arena.ctypes.data == memory
    audit(again.ledger)
