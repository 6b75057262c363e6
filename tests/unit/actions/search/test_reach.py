"""Scenarios are left out whose victims give the aggressor no nodes to go to, and no others."""

from unittest import mock

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.actions.consolidate import Consolidate
from kai.actions.reclaim import Reclaim
from kai.actions.search.replacing import Replacing
from kai.deciding.engine.host import BudgetAnswer, Unlimited
from kai.facts.model.axis import GroupRow, SubGroupRow
from kai.framework.parameters import UNBOUNDED
from kai.plugins.topology import Topology
from tests.unit.actions.search.stage import opened, row, told

LEVELS = ["zone", "rack", "host"]
TREE = "default"
"""The topology of sub-groups in short scenarios."""
BOTH = ("one-node", "no-domain")


@attrs.define
class Counting(Unlimited):
    """Counts the scenarios that are asked for."""

    granted: int = 0

    def grant(self):
        self.granted += 1
        return BudgetAnswer.GO


def cluster(racks, per_rack=2, gpus=2):
    """Return full nodes in racks, two racks in a zone, with a job on each GPU."""
    nodes = {
        f"n{at}": {
            "gpu": gpus,
            "labels": {"zone": f"z{at // per_rack // 2}", "rack": f"r{at // per_rack}", "host": f"n{at}"},
        }
        for at in range(racks * per_rack)
    }
    jobs = {
        f"{name}-{at}": {"queue": "lent", "each": {"gpu": 1}, "runs_on": name} for name in nodes for at in range(gpus)
    }
    return nodes, jobs


def queues(gpus):
    return {"lent": {"quota": {"gpu": 0}}, "owner": {"quota": {"gpu": gpus}}}


def in_racks(parts, pods, level="rack"):
    """Return a group in a zone, with parts that each need a domain of ``level``."""
    part = {"members": pods, "each": {"gpu": 1}, "required": level}
    subgroups = {f"s{at}": part for at in range(parts)}
    return {"queue": "owner", "topology": {"topology": TREE, "required": "zone"}, "subgroups": subgroups}


def reclaimed(nodes, groups, plugins=(), **parameters):
    """Return what a reclaim decides, and how many scenarios it asked for."""
    budget = Counting()
    session = opened(groups, nodes, queues(64), {TREE: LEVELS}, budget, plugins, **parameters)
    Reclaim().run(session)
    return told(session), budget.granted


def test_nodes_narrower_than_the_domain_are_not_tried():
    nodes, jobs = cluster(racks=8)
    groups = {**jobs, "wants": in_racks(parts=2, pods=2)}
    quick, few = reclaimed(nodes, groups)
    slow, many = reclaimed(nodes, groups, without=BOTH)
    assert quick == slow
    assert sum(each.startswith("Evict") for each in quick[0]) == 4
    assert few < many / 2


@pytest.mark.parametrize("name", BOTH)
def test_either_shortcut_alone_leaves_the_decisions_alone(name):
    nodes, jobs = cluster(racks=4)
    groups = {**jobs, "wants": in_racks(parts=2, pods=2)}
    assert reclaimed(nodes, groups, without=(name,))[0] == reclaimed(nodes, groups, shortcuts=False)[0]


def test_too_few_victims_of_one_node_are_passed_over():
    nodes, jobs = cluster(racks=2)
    gang = {"queue": "owner", "members": 4, "each": {"gpu": 2}}
    quick, few = reclaimed(nodes, {**jobs, "wants": gang})
    slow, many = reclaimed(nodes, {**jobs, "wants": gang}, without=("one-node",))
    assert quick == slow != []
    assert few < many


@st.composite
def contests(draw):
    """Draw full nodes in racks, whose jobs are single pods or gangs over nodes, and a gang that needs domains."""
    nodes, jobs = cluster(racks=draw(st.integers(1, 4)), per_rack=draw(st.integers(1, 2)))
    names = sorted(jobs)
    while len(names) > 1 and draw(st.booleans()):
        one, other = (names.pop(draw(st.integers(0, len(names) - 1))) for _ in range(2))
        gang = {"queue": "lent", "members": 2, "minimum": draw(st.integers(1, 2)), "each": {"gpu": 1}}
        jobs[f"both-{one}"] = {**gang, "runs_on": [jobs.pop(each)["runs_on"] for each in (one, other)]}
    for name in draw(st.lists(st.sampled_from(sorted(jobs)), max_size=2, unique=True)):
        if len(jobs) > 1:
            del jobs[name]
    part = {"members": draw(st.integers(1, 3)), "each": {"gpu": draw(st.integers(1, 2))}}
    level, above = (draw(st.sampled_from(("", *LEVELS))) for _ in range(2))
    if level:
        part[draw(st.sampled_from(("required", "preferred")))] = level
    wants = {"queue": "owner", "subgroups": {f"s{at}": part for at in range(draw(st.integers(1, 3)))}}
    if above:
        wants["topology"] = {"topology": TREE, draw(st.sampled_from(("required", "preferred"))): above}
    return nodes, {**jobs, "wants": wants}


@settings(max_examples=40)
@given(contests(), st.sampled_from(((), *((name,) for name in BOTH))))
def test_shortcuts_reclaim_as_the_long_way_does(contest, without):
    nodes, groups = contest
    assert reclaimed(nodes, groups, without=without)[0] == reclaimed(nodes, groups, without=BOTH)[0]


@settings(max_examples=40)
@given(contests(), st.data(), st.booleans())
def test_nodes_that_are_ruled_out_have_no_part(contest, data, stop):
    """The twin is the partition itself, with all nodes empty and with the nodes that are."""
    nodes, groups = contest
    idle = {"wants": groups["wants"]}
    for there in (idle, groups):
        session = opened(there, nodes, queues(64), {TREE: LEVELS}, plugins=(Topology(stop_at_required=stop),))
        group = GroupRow(row(session, "wants"))
        reached = np.array(data.draw(st.lists(st.booleans(), min_size=len(nodes), max_size=len(nodes))), np.bool_)
        portion = session.portion(int(group))
        for at in (portion.root, *portion.leaves):
            pods = portion.pods()
            pods = pods if at == portion.root else pods[session.facts.pods.leaf[pods] == at]
            for domains in session.policy.splitting:
                if domains.rules_out(group, SubGroupRow(at), pods, np.flatnonzero(reached)):
                    found = domains.partition(group, SubGroupRow(at), pods, np.flatnonzero(reached))
                    assert not any(len(part) for part in found.parts)


@st.composite
def packings(draw):
    """Draw nodes with jobs of some GPUs, and gangs that want more on one node than any has free."""
    nodes = {f"n{at}": {"gpu": 4} for at in range(draw(st.integers(2, 5)))}
    jobs = {}
    for name in nodes:
        for at, gpus in enumerate(draw(st.sampled_from(((1,), (1, 1), (1, 2), (2,), (1, 1, 1))))):
            jobs[f"{name}-{at}"] = {"queue": "lent", "each": {"gpu": gpus}, "runs_on": name}
    for at in range(draw(st.integers(1, 3))):
        each = {"gpu": draw(st.sampled_from((2, 3, 4)))}
        jobs[f"wants-{at}"] = {"queue": "lent", "members": draw(st.integers(1, 2)), "each": each}
    return nodes, jobs


@settings(max_examples=40)
@given(packings(), st.sampled_from((("too-few",), ("one-node",), ("too-few", *BOTH))))
def test_shortcuts_move_pods_as_the_long_way_does(packing, without):
    nodes, groups = packing
    taken = []
    for left_out in ((), without):
        session = opened(groups, nodes, {"lent": {}}, max_consolidation_preemptees=UNBOUNDED, without=left_out)
        Consolidate().run(session)
        taken.append(told(session))
    assert taken[0] == taken[1]


def test_moves_to_places_as_large_are_not_tried():
    """Each pair holds its nodes as the gang before it does: it could only move to a place that the gang needs."""
    nodes = {f"n{at}": {"gpu": 4} for at in range(6)}
    jobs = {f"one-{name}": {"queue": "lent", "each": {"gpu": 1}, "runs_on": name} for name in ("n4", "n5")}
    pairs = {
        f"pair-{at}": {"queue": "lent", "members": 2, "each": {"gpu": 4}, "runs_on": [f"n{2 * at}", f"n{2 * at + 1}"]}
        for at in range(2)
    }
    groups = {**jobs, **pairs, "wants": {"queue": "lent", "each": {"gpu": 4}}}
    tried = []
    for without in ((), ("too-few",)):
        session = opened(groups, nodes, {"lent": {}}, max_consolidation_preemptees=UNBOUNDED, without=without)
        with mock.patch.object(Replacing, "run", autospec=True, side_effect=Replacing.run) as run:
            Consolidate().run(session)
        tried.append((told(session), run.call_count))
    (quick, few), (slow, many) = tried
    assert quick == slow != []
    assert few < many
