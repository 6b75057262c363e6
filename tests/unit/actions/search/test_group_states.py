"""What searches know of groups follows what was committed."""

import numpy as np

from kai.actions.search.group_states import GroupStates
from kai.framework import PodFilter, Verdict
from kai.framework.decisions import Cause
from kai.testing import snapshot
from kai.testing.views import open_session
from tests.unit.actions.search.stage import opened, pods_of, row

GROUPS = {
    "runs": {"each": {"gpu": 1}, "runs_on": "n1"},
    "half": {"each": {"fraction": 0.5}},
    "waits": {"members": 3, "minimum": 1, "each": {"gpu": 1}},
    "parts": {"subgroups": {"left": {"members": 1}, "right": {"members": 1}}},
}
NODES = {"n1": {"gpu": 4}}


def admit_all(pod):
    del pod
    return Verdict()


def chosen(session, mask):
    return {session.snapshot.groups[at].name for at in np.flatnonzero(mask)}


def test_groups_with_a_pod_on_a_node_are_known():
    session = opened(GROUPS, NODES)
    states = GroupStates(session)
    states.refresh()
    assert chosen(session, states.placed) == {"runs"}


def test_what_was_committed_since_is_known_after_a_refresh():
    session = opened(GROUPS, NODES)
    states = GroupStates(session)
    states.refresh()
    with session.statement("test", Cause.PREEMPT) as statement:
        statement.evict(np.array(pods_of(session, "runs"), np.int64))
        pods = np.array(pods_of(session, "waits")[:1], np.int64)
        statement.place_pods(pods, session.all_nodes, session.no_extra, promise=False)
        statement.commit()
    states.refresh()
    assert chosen(session, states.placed) == {"waits"}


def test_single_leaf_groups_are_plain_and_sharing_inexact():
    session = opened(GROUPS, NODES)
    states = GroupStates(session)
    assert chosen(session, states.plain) == {"runs", "half", "waits"}
    assert chosen(session, states.exact) == {"runs", "waits"}


def test_a_group_that_a_plugin_concerns_is_not_plain():
    class Asking:
        def open(self, session):
            return [PodFilter(admit_all, concerns=session.facts.shapes.kind == 0)]

    session = open_session(snapshot(NODES, {**GROUPS, "cpu": {"each": {"cpu": 1}}}), Asking())
    plain = chosen(session, GroupStates(session).plain)
    assert "cpu" not in plain
    assert "runs" in plain


def test_room_covers_evicting_the_pods_and_placing_their_groups():
    session = opened(GROUPS, NODES)
    pods = np.array(pods_of(session, "waits")[:1], np.int64)
    assert GroupStates(session).room_for(pods) == 2 * (1 + 3)


def test_a_group_holds_what_its_placed_pods_hold():
    session = opened(GROUPS, NODES)
    states = GroupStates(session)
    states.refresh()
    assert states.arrays.holding[row(session, "runs")].tolist()[2] == 1000
    assert states.arrays.holding[row(session, "waits")].tolist()[2] == 0
