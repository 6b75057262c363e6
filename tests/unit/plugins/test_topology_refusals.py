"""A topology that has no room says what each of its domains lacks."""

import pytest

from kai.deciding.engine.cycle import run_cycle
from kai.deciding.explain.messages import explanations, group_message
from kai.testing import RecordingSink, default_profile_with, snapshot

TREE = {"tree": ["zone", "rack"]}
NO_ROOM = "Not enough resources for the workload"
REFUSED = "topology tree, requirement rack couldn't be satisfied for job <default/gang>"


def records(gang, **groups):
    nodes = {
        f"n-{rack}": {"gpu": gpus, "cpu": 8, "labels": {"zone": "z", "rack": rack}}
        for rack, gpus in (("a", 4), ("b", 2))
    }
    topology = {"topology": "tree", "required": "rack"}
    taken = snapshot(nodes, {"gang": {**gang, "topology": topology}, **groups}, topologies=TREE)
    report = run_cycle(taken, default_profile_with(), RecordingSink())
    row = next(row for row, group in enumerate(taken.groups) if group.name == "gang")
    return report.records[row].reasons


def test_pods_that_are_alike_are_counted():
    found = records({"members": 3, "each": {"gpu": 2}})
    assert [(each.reason, each.message) for each in explanations(found)] == [
        (NO_ROOM, "node-group z.a can allocate only 2 of 3 required pods"),
        (NO_ROOM, "node-group z.b can allocate only 1 of 3 required pods"),
        ("PodSchedulingErrors", REFUSED),
    ]
    assert group_message(found).startswith("Unable to schedule podgroup: node-group z.a can allocate only 2 of 3")


def test_only_domains_with_pods_of_the_group_are_listed():
    found = records({"members": 3, "minimum": 2, "each": {"gpu": 2}, "runs_on": ["n-a", "n-a"]})
    assert [each.message for each in explanations(found)] == [
        "node-group z.a can allocate only 0 of 1 required pods",
        REFUSED,
    ]


@pytest.mark.parametrize(("cpu", "short"), [(1, ["GPUs"]), (9, ["CPU cores", "GPUs"])])
def test_for_pods_that_differ_it_says_what_is_short(cpu, short):
    parts = {"with": {"members": 3, "each": {"gpu": 2}}, "without": {"members": 1, "each": {"cpu": cpu}}}
    found = records({"subgroups": parts})
    lines = [f"node-group(s) didn't have enough resources: {name}" for name in short]
    assert [each.message for each in explanations(found)] == [", ".join(lines), ", ".join(lines), REFUSED]
    text = group_message(found)
    assert all(f"2 {line}" in text for line in lines)


@pytest.mark.parametrize(
    ("required", "preferred", "told"),
    [
        ("", "row", "'row' as the preferred"),
        ("zone", "row", "'row' as the preferred"),
        ("row", "rack", "'row' as the required"),
        ("row", "aisle", "'row' as the required"),
    ],
)
def test_a_level_that_the_topology_lacks_is_named(required, preferred, told):
    constraint = {"topology": "tree", "required": required, "preferred": preferred}
    gang = {"members": 2, "each": {"gpu": 1}, "topology": {key: value for key, value in constraint.items() if value}}
    nodes = {"n": {"gpu": 2, "labels": {"zone": "z", "rack": "r"}}}
    taken = snapshot(nodes, {"gang": gang}, topologies=TREE)
    report = run_cycle(taken, default_profile_with(), RecordingSink())
    assert f"workload specified {told} topology constraint level" in group_message(report.records[0].reasons)
