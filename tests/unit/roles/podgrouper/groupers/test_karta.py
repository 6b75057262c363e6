import pytest

from kai.roles.podgrouper import Settings
from tests.unit.roles.podgrouper.kartas import FLOW, child, karta, one_group
from tests.unit.roles.podgrouper.workloads import (
    decide,
    failure_of,
    group_of,
    pod_of,
    spec_of,
    subgroup_of,
    thing,
    tree_of,
)


def by_keys(*keys, component="flow", **fields):
    return {
        "podGroups": [{"name": "x", "members": [{"componentName": component, "groupByKeyPaths": list(keys), **fields}]}]
    }


def pod(role="worker", **labels):
    return pod_of(FLOW, labels={"role": role, **labels})


def test_mapped_components_are_subgroups():
    group = group_of(pod(), FLOW, karta(one_group("master", "worker")))
    assert group["metadata"]["name"] == "pg-work-uid-gang"
    assert group["spec"]["minSubGroup"] == 2
    assert tree_of(group["spec"]) == {"master": (None, 1, None), "worker": (None, 2, None)}
    assert subgroup_of(decide(pod("master"), FLOW, karta(one_group("master", "worker")))) == "master"


def test_without_mapped_components_the_whole_workload_is_one_gang():
    spec = spec_of(pod(), FLOW, karta(one_group()))
    assert spec["minMember"] == 3
    assert "subGroups" not in spec


def test_constraints_are_carried_over():
    topology = {"topologyName": "t", "requiredTopologyLevel": "zone", "preferredTopologyLevel": "rack"}
    gangs = one_group("worker", topology=topology)
    gangs["podGroup"]["subGroups"][0]["topology"] = {"topologyName": "t", "preferredTopologyLevel": "host"}
    spec = spec_of(pod(), FLOW, karta(gangs))
    assert spec["topologyConstraint"]["requiredTopologyLevel"] == "zone"
    assert spec["subGroups"][0]["topologyConstraint"] == {"topology": "t", "preferredTopologyLevel": "host"}


@pytest.mark.parametrize(
    ("gangs", "message"),
    [
        (one_group("other"), "found 'other', expected the name of a component"),
        (one_group(topology={"requiredTopologyLevel": "x"}), "expected the name of a topology"),
        (one_group(topology={"topologyName": "x"}), "expected a level, or a preferred one"),
        (by_keys(".metadata.labels.missing"), "expected one value that is not empty"),
        (by_keys(".metadata.labels"), "found 'object', expected a string"),
        (by_keys(".metadata.labels.bad"), "keys that make a name of an object"),
        (by_keys(filters=['.metadata.labels.role == "master"']), "no group in its Karta whose filters it passes"),
        (by_keys(filters=[".x | unheard"]), "there is no function unheard/0"),
    ],
)
def test_a_karta_that_does_not_fit_is_a_failure(gangs, message):
    assert message in failure_of(pod(bad="Not_A_Name"), FLOW, karta(gangs))


def test_the_newer_instruction_wins_over_the_older():
    both = {**one_group("worker"), **by_keys(".metadata.labels.role")}
    assert group_of(pod(), FLOW, karta(both))["metadata"]["name"] == "pg-work-uid-gang"


def test_pods_are_grouped_by_their_keys():
    group = group_of(pod(job="j"), FLOW, karta(by_keys(".metadata.labels.job", ".metadata.labels.role")))
    assert group["metadata"]["name"] == "pg-work-uid-j-worker"
    assert group["spec"]["minMember"] == 3


def test_without_keys_the_name_is_the_workloads():
    assert group_of(pod(), FLOW, karta(by_keys()))["metadata"]["name"] == "pg-work-uid"


def test_a_components_own_instruction_precedes_one_above_it():
    gangs = {"podGroups": [*by_keys()["podGroups"], *by_keys(component="worker")["podGroups"]]}
    assert spec_of(pod("worker"), FLOW, karta(gangs))["minMember"] == 2
    assert spec_of(pod("master"), FLOW, karta(gangs))["minMember"] == 3


INSTANCES = child(
    "worker",
    specDefinition={"podTemplateSpecPath": ".spec.groups[].template"},
    scaleDefinition={"replicasPath": ".spec.groups[].replicas", "minReplicasPath": ".spec.groups[].min"},
    instanceIdPath=".spec.groups[].name",
    podSelector={"componentInstanceSelector": {"idPath": ".metadata.labels.group"}},
)
GROUPS = thing(
    "example.com/v1", "Flow", spec={"groups": [{"name": "a", "replicas": 3, "min": 2}, {"name": "b", "replicas": 4}]}
)


def test_an_instance_counts_by_itself():
    gangs = by_keys(".metadata.labels.group", component="worker")
    described = karta(gangs, children=[INSTANCES])
    for name, scale in (("a", 2), ("b", 4)):
        member = pod_of(GROUPS, labels={"group": name})
        assert spec_of(member, GROUPS, described)["minMember"] == scale
    assert "found 'c', expected one of a, b" in failure_of(pod_of(GROUPS, labels={"group": "c"}), GROUPS, described)


def test_without_any_scale_each_instance_counts_once():
    uncounted = {**INSTANCES, "scaleDefinition": None}
    whole = karta(one_group(), children=[uncounted])
    assert spec_of(pod_of(GROUPS, labels={"group": "a"}), GROUPS, whole)["minMember"] == 2
    each = karta(by_keys(".metadata.labels.group", component="worker"), children=[uncounted])
    assert spec_of(pod_of(GROUPS, labels={"group": "a"}), GROUPS, each)["minMember"] == 1


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"scaleDefinition": {"replicasPath": ".spec.groups[0].replicas"}},
            "found 1, expected 2 results",
        ),
        ({"scaleDefinition": {"replicasPath": ".spec.groups[].name"}}, "expected a whole number of replicas"),
        ({"instanceIdPath": ".spec.groups[].replicas"}, "instanceIdPath: found 3, expected names"),
    ],
)
def test_instances_that_do_not_match_their_scale_fail(fields, message):
    described = karta(one_group("worker"), children=[{**INSTANCES, **fields}])
    assert message in failure_of(pod_of(GROUPS, labels={"group": "a"}), GROUPS, described)


def test_a_component_without_replicas_cannot_be_a_subgroup():
    described = karta(one_group("worker"), children=[child("worker", scaleDefinition={"replicasPath": ".spec.none"})])
    assert "expected at least 1 pod" in failure_of(pod(), FLOW, described)


def test_a_pod_without_component_fails_only_where_needed():
    assert "no component of its Karta" in failure_of(pod("stranger"), FLOW, karta(by_keys()))
    assert subgroup_of(decide(pod("stranger"), FLOW, karta(one_group("worker")))) is None


def test_a_selector_without_value_tests_the_keys_presence():
    exists = {"componentTypeSelector": {"keyPath": ".metadata.labels.member"}}
    described = karta(one_group("worker"), children=[child("worker", podSelector=exists)])
    assert subgroup_of(decide(pod(member="yes"), FLOW, described)) == "worker"
    assert subgroup_of(decide(pod(), FLOW, described)) is None


def test_a_pod_below_a_mapped_component_joins_its_subgroup():
    outer = {"name": "group", "ownerRef": "flow"}
    described = karta(one_group("group"), children=[outer, child("worker", ownerRef="group")])
    assert subgroup_of(decide(pod(), FLOW, described)) == "group"


def test_scales_multiply_down_the_tree():
    groups = child("worker", ownerRef="group")
    outer = {"name": "group", "ownerRef": "flow", "scaleDefinition": {"replicasPath": ".spec.worker.groups // 3"}}
    assert spec_of(pod(), FLOW, karta(one_group(), children=[outer, groups]))["minMember"] == 6


def test_without_any_scale_each_kind_of_pod_counts_once():
    children = [child("master", scaleDefinition=None), child("worker", scaleDefinition=None)]
    assert spec_of(pod(), FLOW, karta(one_group(), children=children))["minMember"] == 2


def falls_back(*objects, settings=None):
    return group_of(pod(), FLOW, *objects, settings=settings)["metadata"]["name"] == "pg-work-work-uid"


def test_two_kartas_for_a_kind_are_none():
    assert falls_back(karta(one_group("worker"), name="a"), karta(one_group("worker"), name="b"))


def test_a_karta_can_be_switched_off():
    assert falls_back(karta(one_group("worker")), settings=Settings(karta_fallback=False))


@pytest.mark.parametrize(
    "broken",
    [
        karta(None),
        karta({"podGroups": []}),
        karta(one_group(), root={"statusDefinition": None}),
        karta(one_group(), root={"ownerRef": "worker"}),
        karta(one_group(), root={"kind": {"group": "example.com", "version": "v2", "kind": "Flow"}}),
        karta(one_group(), children=[child("a"), child("a")]),
        karta(one_group(), children=[child("a", ownerRef=None)]),
        karta(one_group(), children=[child("a", ownerRef="b")]),
        karta(one_group(), children=[child("a", ownerRef="b"), child("b", ownerRef="a")]),
        karta(one_group(), children=[child("a", instanceIdPath=".x")]),
        karta(one_group(), children=[child("a", specDefinition={"podSpecPath": ".a", "podTemplateSpecPath": ".b"})]),
        karta(one_group(), children=[child("a", scaleDefinition={"replicasPath": ".. | .replicas"})]),
        karta(one_group(), children=[child("a", scaleDefinition={"replicasPath": ".x = 1"})]),
        karta(one_group(), children=[child("a", scaleDefinition={"replicasPath": "del(.x)"})]),
        karta(one_group(), children=[child("a", scaleDefinition={"replicasPath": ".["})]),
        karta(one_group(), children=[child("a", specDefinition={"podSpecPath": "recurse"})]),
        karta(one_group(), children="none"),
        karta(by_keys(component="unknown")),
        karta(by_keys("paths")),
    ],
    ids=range(19),
)
def test_a_karta_that_does_not_hold_together_is_none(broken):
    assert falls_back(broken)


def test_a_broken_karta_does_not_block_a_valid_one():
    broken = karta(one_group(), name="broken", root={"statusDefinition": None})
    assert not falls_back(broken, karta(one_group("worker")))


def test_a_karta_that_is_being_deleted_is_none():
    going = karta(one_group("worker"))
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert falls_back(going)


def test_an_unsupported_query_fails_a_karta_only_when_run():
    form = "def twice: . * 2; .status.x | twice"
    status = {"statusMappings": {"running": [{"byExpression": {"expression": form, "expectedResult": "2"}}]}}
    assert not falls_back(karta(one_group("worker"), root={"statusDefinition": status}))
    assert falls_back(karta(one_group("worker"), children=[child("worker", scaleDefinition={"replicasPath": form})]))
