import pytest

from kai.api.codec.structuring import structure_as
from kai.api.conventions.caps import REFUSED
from kai.api.scheduling.pod_group import PodGroup
from kai.facts.model.constraints import TopologyConstraint
from kai.intake.groups import fault_of_tree
from tests.unit.intake.making import group, other, pod, queue, taken

BACKOFF = {
    "schedulingConditions": [{"transitionID": "9", "nodePool": "other"}, {"transitionID": "10", "nodePool": "default"}]
}


def priority_class(name, value, *, default=False):
    return other("PriorityClass", "scheduling.k8s.io/v1", name, value=value, globalDefault=default)


def read(made, *others):
    return taken(made, *others).groups[0]


def tree(made, *others) -> list[tuple[str, str, bool, int | None]]:
    found = read(made, *others).subgroups
    return [
        (each.name, found[each.parent].name if each.parent >= 0 else "-", each.leaf, each.minimum) for each in found
    ]


@pytest.mark.parametrize(
    ("named", "classes", "priority"),
    [
        ("", [], 50),
        ("gone", [], 50),
        ("high", [priority_class("high", 200)], 200),
        ("gone", [priority_class("usual", 75, default=True)], 75),
        ("", [priority_class("b", 2, default=True), priority_class("a", 1, default=True)], 1),
    ],
)
def test_the_priority_comes_from_class_or_default_or_50(named, classes, priority):
    assert read(group("g", priorityClassName=named), *classes).priority == priority


@pytest.mark.parametrize(
    ("stated", "priority", "preemptible"),
    [("", 99, True), ("", 100, False), ("preemptible", 200, True), ("non-preemptible", 1, False)],
)
def test_what_is_stated_counts_before_the_priority(stated, priority, preemptible):
    made = group("g", priorityClassName="c", preemptibility=stated)
    assert read(made, priority_class("c", priority)).preemptible == preemptible


def test_times_durations_and_marks():
    annotations = {
        "kai.scheduler/last-start-timestamp": "1970-01-01T00:00:10Z",
        "kai.scheduler/last-eviction-timestamp": "1970-01-01T00:00:20Z",
        "kai.scheduler/stale-podgroup-timestamp": "1970-01-01T00:00:30Z",
    }
    made = group(
        "g",
        metadata={"annotations": annotations, "creationTimestamp": "1970-01-01T00:00:05Z"},
        stalenessGracePeriod="-1s",
        preemptionDelay="1m",
        markUnschedulable=False,
        schedulingBackoff=-1,
    )
    found = read(made)
    assert (found.created, found.last_start, found.last_eviction, found.stale_since) == (5, 10, 20, 30)
    assert (found.staleness_grace, found.preemption_delay) == (-1, 60)
    assert (found.mark_unschedulable, found.scheduling_backoff) == (False, -1)


def test_a_time_that_cannot_be_read_counts_as_absent():
    made = group("g", metadata={"annotations": {"kai.scheduler/last-start-timestamp": "yesterday"}})
    assert read(made).last_start is None


def test_the_queue_is_named_and_found():
    found = taken(group("a", queue="q"), group("b", queue="gone"), queue("p"), queue("q")).groups
    assert [(each.queue, each.queue_row) for each in found] == [("q", 1), ("gone", -1)]


@pytest.mark.parametrize(("least", "minimum"), [({}, 1), ({"minMember": 0}, 0), ({"minMember": 4}, 4)])
def test_without_sub_groups_all_pods_are_in_one_leaf(least, minimum):
    assert tree(group("g", **least)) == [("", "-", False, None), ("default", "", True, minimum)]


def test_sub_groups_that_are_parents_hold_no_pods():
    subgroups = [
        {"name": "workers", "parent": "pair", "minMember": 2},
        {"name": "pair", "minSubGroup": 1},
        {"name": "leader", "parent": "pair"},
        {"name": "alone", "minMember": 3},
    ]
    assert tree(group("g", subGroups=subgroups, minSubGroup=2, minMember=9)) == [
        ("", "-", False, 2),
        ("alone", "", True, 3),
        ("pair", "", False, 1),
        ("leader", "pair", True, 0),
        ("workers", "pair", True, 2),
    ]


@pytest.mark.parametrize(
    ("subgroups", "complaint"),
    [
        ([{"name": "a"}, {"name": "a"}], 'found "a" twice'),
        ([{"name": "a", "parent": "b"}], 'found parent "b" of "a"'),
        ([{"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}], "among its own parents"),
        ([{"name": "a", "parent": "a"}], "among its own parents"),
    ],
)
def test_an_unusable_tree_becomes_one_leaf_of_minimum_one(subgroups, complaint):
    made = group("g", subGroups=subgroups, minSubGroup=1, topologyConstraint={"topology": "t"})
    assert tree(made) == [("", "-", False, None), ("default", "", True, 1)]
    assert complaint in read(made).tree_error
    assert read(made).subgroups[0].constraint is None


@pytest.mark.parametrize(
    ("least", "subgroups", "complaint"),
    [
        (2, [{"name": "x"}], "spec.minSubGroup: found 2, expected at most 1, the number of its sub-groups"),
        (
            1,
            [{"name": "x", "minSubGroup": 3}, {"name": "y", "parent": "x"}, {"name": "z", "parent": "x"}],
            "spec.subGroups[0].minSubGroup: found 3, expected at most 2, the number of its sub-groups",
        ),
        (1, [{"name": "x", "minSubGroup": 1}, {"name": "y", "parent": "x"}], ""),
    ],
)
def test_more_required_subgroups_than_exist_is_a_fault(least, subgroups, complaint):
    made = group("g", subGroups=subgroups, minSubGroup=least)
    assert fault_of_tree(structure_as(PodGroup, made).spec) == complaint
    assert read(made).tree_error == read(made).held == ""


def nested(depth):
    names = [f"s{at:04}" for at in range(depth)]
    parents = [{}, *({"parent": name} for name in names)]
    below = [{"minSubGroup": 1}] * (depth - 1) + [{"minMember": 1}]
    return [{"name": name, **up, **least} for name, up, least in zip(names, parents, below, strict=False)]


@pytest.mark.parametrize(
    ("subgroups", "complaint"),
    [
        (nested(17), "spec.subGroups: found sub-groups nested 17 deep, expected at most 16"),
        (nested(500), "spec.subGroups: found sub-groups nested 500 deep, expected at most 16"),
        ([{"name": f"s{at}"} for at in range(4097)], "spec.subGroups: found 4097 sub-groups, expected at most 4096"),
    ],
)
def test_too_large_a_tree_holds_the_group_back(subgroups, complaint):
    waits = pod("waits", group="g", labels={"kai.scheduler/subgroup-name": subgroups[-1]["name"]})
    runs = pod("runs", group="g", labels={"kai.scheduler/subgroup-name": "any"}, node="n", phase="Running")
    found = taken(group("g", subGroups=subgroups), queue("q"), waits, runs, pod("else"))
    assert found.groups[0].held == complaint
    assert [each.name for each in found.groups[0].subgroups] == ["", "default"]
    assert found.groups[0].queue_row == 0
    rows = {each.name: row for row, each in enumerate(found.pods)}
    assert found.pod_group[[rows["waits"], rows["runs"]]].tolist() == [0, 0]
    assert found.pod_subgroup[[rows["waits"], rows["runs"]]].tolist() == [-1, 1]


def test_a_tree_may_reach_its_permitted_depth_and_size():
    wide = [*nested(15), *({"name": f"w{at}", "parent": "s0013"} for at in range(4081))]
    for subgroups in (nested(16), wide):
        found = read(group("g", subGroups=subgroups))
        assert (found.held, found.tree_error) == ("", "")
        assert len(found.subgroups) == len(subgroups) + 1


def test_a_constraint_counts_only_with_a_topology():
    wanted = {"topology": "t", "requiredTopologyLevel": "zone", "preferredTopologyLevel": "example.com/rack"}
    subgroups = [
        {"name": "a", "topologyConstraint": {"requiredTopologyLevel": "zone"}},
        {"name": "b", "topologyConstraint": wanted},
    ]
    root, a, b = read(group("g", subGroups=subgroups, topologyConstraint=wanted)).subgroups
    assert root.constraint == b.constraint == TopologyConstraint("t", "zone", "example.com/rack")
    assert a.constraint is None


@pytest.mark.parametrize(("backoff", "kept"), [(None, True), (-1, True), (1, False)])
def test_a_group_with_backoff_skips_a_pool_that_failed(backoff, kept):
    spec = {} if backoff is None else {"schedulingBackoff": backoff}
    assert bool(taken(group("g", status=BACKOFF, **spec)).groups) == kept


def test_a_group_that_failed_in_another_pool_is_tried():
    status = {"schedulingConditions": [*BACKOFF["schedulingConditions"], {"transitionID": "11", "nodePool": "other"}]}
    assert taken(group("g", status=status, schedulingBackoff=1)).groups
    assert taken(group("g", schedulingBackoff=1)).groups


def test_groups_belong_to_node_pools():
    ours = group("a", metadata={"labels": {"kai.scheduler/node-pool": "ours"}})
    assert [each.name for each in taken(ours, group("b")).groups] == ["b"]
    assert [(each.name, each.node_pool) for each in taken(ours, group("b"), node_pool="ours").groups] == [("a", "ours")]


def test_pods_find_the_leaf_that_their_label_names():
    subgroups = [{"name": "a"}, {"name": "b"}]
    labelled = pod("p", group="g", labels={"kai.scheduler/subgroup-name": "b"})
    strange = pod("q", group="g", labels={"kai.scheduler/subgroup-name": "c"})
    snapshot = taken(labelled, strange, pod("r", group="g"), pod("s"), group("g", subGroups=subgroups))
    assert snapshot.pod_group.tolist() == [0, 0, 0, -1]
    assert snapshot.pod_subgroup.tolist() == [2, -1, -1, -1]


def test_a_group_refused_for_its_annotations_is_held():
    found = read(group("g", metadata={"annotations": {REFUSED: "metadata.labels: found 2,000 labels"}}))
    assert (found.held, found.held_code) == ("metadata.labels: found 2,000 labels", "PodGroupRefused")
