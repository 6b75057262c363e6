"""Sub-groups within sub-groups: which node sets are tried. No try is left out that could succeed."""

import attrs
import pytest
from hypothesis import given

from kai.actions import placing
from kai.deciding.engine.cycle import run_cycle
from kai.deciding.engine.shortcuts import SAME_TRY
from kai.deciding.engine.statement import Statement
from kai.facts.model.constraints import TopologyConstraint
from kai.facts.model.groups import SubGroup
from kai.testing import RecordingSink, default_profile_with, snapshot
from tests.properties.strategies import EVERY_SHAPE, RACK, ZONE, snapshots

LEVELS = {"default": [ZONE, RACK]}


@pytest.fixture
def placed(monkeypatch):
    """Return how many pods each call was asked to place, in order."""
    calls, place_pods = [], Statement.place_pods

    def counting(statement, pods, *about, **options):
        calls.append(len(pods))
        return place_pods(statement, pods, *about, **options)

    monkeypatch.setattr(Statement, "place_pods", counting)
    return calls


def decide(taken, *, without=()):
    """Return what was decided, in order, and why the others wait."""
    profile = default_profile_with()
    profile = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, without=without))
    sink = RecordingSink()
    report = run_cycle(taken, profile, sink)
    return repr(list(sink.decisions)), {group: repr(record) for group, record in report.records.items()}


def nested(depth, **siblings):
    """Return a group of sub-groups within each other that prefer a rack each.

    No node takes the pod of the last one, yet the sums of all domains say that they do. Beside each may be another one.
    """
    parts = {}
    for at in range(depth):
        parts[f"s{at}"] = {"preferred": RACK, **({"parent": f"s{at - 1}"} if at else {})}
        if siblings and at + 1 < depth:
            parts[f"a{at}"] = {"parent": f"s{at}", **siblings}
    parts["last"] = {"parent": f"s{depth - 1}", "members": 1, "each": {"gpu": 1, "cpu": 9}}
    parts["other"] = {"parent": f"s{depth - 1}", "members": 1, "each": {"cpu": 1}}
    return {"subgroups": parts}


def racks(group):
    """Return nodes of 8 cores, in six racks of four zones, and ``group``."""
    nodes = {
        f"n-{rack}-{at}": {"gpu": 8, "cpu": 8, "labels": {ZONE: f"z{rack % 4}", RACK: f"r{rack}"}}
        for rack in range(6)
        for at in range(2)
    }
    return snapshot(nodes, {"g": group}, topologies=LEVELS)


def test_failed_tries_are_not_repeated_at_any_nesting_depth(placed):
    tries = []
    for depth in (4, 8):
        placed.clear()
        decided, _ = decide(racks(nested(depth)))
        assert decided == "[]"
        tries.append(len(placed))
    assert tries == [17, 17]


def test_differing_subgroups_stop_at_the_most_tries(placed, monkeypatch):
    """Each pod beside them may be elsewhere, so that no try is like another; their number is a power of the depth."""
    decided, told = decide(racks(nested(8, members=1, each={"cpu": 1})))
    assert (decided, len(placed) > 100) == ("[]", True)
    placed.clear()
    monkeypatch.setattr(placing, "MOST_TRIES", 100)
    decided, told_less = decide(racks(nested(8, members=1, each={"cpu": 1})))
    assert decided == "[]"
    assert 0 < len(placed) <= 100
    assert told_less.keys() == told.keys()
    assert "TRIES_SPENT" not in told[0]
    assert "TRIES_SPENT" in told_less[0]


def tree(*levels):
    """Return sub-groups within each other, with a pair of required and preferred level each, and a leaf beside each."""
    out = [SubGroup(name="", parent=-1, leaf=False, minimum=None)]
    above = 0
    for at, pair in enumerate(levels):
        constraint = TopologyConstraint("tree", *pair)
        out.append(SubGroup(name=f"s{at}", parent=above, leaf=False, minimum=None, constraint=constraint))
        above = len(out) - 1
        out.append(SubGroup(name=f"a{at}", parent=above, leaf=True, minimum=at % 2))
    out.append(SubGroup(name="last", parent=above, leaf=True, minimum=1))
    return tuple(out)


NESTED = (
    tree(("", ZONE), ("", RACK)),
    tree(("", RACK), ("", RACK), ("", ZONE)),
    tree((ZONE, RACK), (RACK, "")),
    tree(("", ZONE), (ZONE, RACK), ("", RACK)),
    tree(("", RACK), (RACK, "")),
)


@given(snapshots(nodes=(2, 7), groups=(1, 3), pods=2, trees=NESTED, shapes=EVERY_SHAPE))
def test_groups_are_decided_alike_with_repeated_tries(taken):
    assert decide(taken) == decide(taken, without=(SAME_TRY.name,))
