import pytest

from kai.api.conventions.caps import MOST_ANNOTATIONS, excess_of
from tests.unit.roles.podgrouper.workloads import (
    REQUIRED,
    TOPOLOGY,
    decide,
    failure_of,
    group_of,
    pod_of,
    spec_of,
    subgroup_of,
    thing,
    tree_of,
)

NAME = "grove.io/topology-name"


def gang(*parts, configs=None, annotations=None, labels=None, **spec):
    fields = {"podgroups": list(parts), **spec}
    if configs is not None:
        fields["topologyConstraintGroupConfigs"] = configs
    return thing("scheduler.grove.io/v1alpha1", "PodGang", "g", labels=labels, annotations=annotations, spec=fields)


def part(name="a", replicas=1, *pods, **pack):
    found = {"name": name, "minReplicas": replicas, "podReferences": [{"namespace": "ns", "name": pod} for pod in pods]}
    return {**found, **({"topologyConstraint": {"packConstraint": pack}} if pack else {})}


def top(**metadata):
    return thing("grove.io/v1alpha1", "PodCliqueSet", "set", **metadata)


def pod(owner, **labels):
    return pod_of(owner, labels={"grove.io/podgang": "g", **labels})


def test_a_pod_gang_becomes_a_group_with_leaf_subgroups():
    owner, found = top(), gang(part("a", 1, "pod-0"), part("b", 2, "pod-1"))
    group = group_of(pod(owner), owner, found)
    assert group["metadata"]["name"] == "pg-g-g-uid"
    assert group["metadata"]["ownerReferences"][0]["kind"] == "PodGang"
    assert group["spec"]["minMember"] == 3
    assert tree_of(group["spec"]) == {"a": (None, 1, None), "b": (None, 2, None)}
    assert subgroup_of(decide(pod(owner), owner, found)) == "a"


def test_parts_that_sit_together_have_a_parent():
    configs = [{"name": "both", "podGroupNames": ["a", "b"]}, {"name": "none", "podGroupNames": []}]
    owner, found = top(), gang(part("a"), part("b"), part("c"), configs=configs)
    assert tree_of(spec_of(pod(owner), owner, found)) == {
        "both": (None, None, 2),
        "a": ("both", 1, None),
        "b": ("both", 1, None),
        "c": (None, 1, None),
    }


def test_the_gangs_own_annotation_names_the_topology_first():
    owner = top()
    found = gang(part(required="rack"), annotations={NAME: "mine", TOPOLOGY: "kai"})
    found["spec"]["topologyConstraint"] = {"packConstraint": {"preferred": "host"}}
    spec = spec_of(pod(owner), owner, found)
    assert spec["topologyConstraint"] == {"topology": "mine", "preferredTopologyLevel": "host"}
    assert spec["subGroups"][0]["topologyConstraint"] == {"topology": "mine", "requiredTopologyLevel": "rack"}


def test_what_the_gang_leaves_open_the_top_owner_says():
    owner = top(
        labels={"priorityClassName": "high", "kai.scheduler/preemptibility": "preemptible", "a": "owner"},
        annotations={TOPOLOGY: "t", REQUIRED: "rack", "kai.scheduler/preemption-delay": "60s"},
    )
    group = group_of(pod(owner), owner, gang(part(), labels={"a": "gang"}))
    assert group["metadata"]["labels"]["a"] == "gang"
    spec = group["spec"]
    assert (spec["priorityClassName"], spec["preemptibility"], spec["preemptionDelay"]) == (
        "high",
        "preemptible",
        "1m0s",
    )
    assert spec["topologyConstraint"] == {"topology": "t", "requiredTopologyLevel": "rack"}


def test_kubectls_annotation_on_the_top_owner_is_not_copied():
    applied = "kubectl.kubernetes.io/last-applied-configuration"
    owner = top(annotations={applied: '{"env": "secret"}', "mine": "1"})
    annotations = group_of(pod(owner), owner, gang(part()))["metadata"]["annotations"]
    assert annotations["mine"] == "1"
    assert applied not in annotations


def test_annotations_of_gang_and_owner_stay_within_the_limit():
    half = "a" * (MOST_ANNOTATIONS // 2)
    owner = top(annotations={"of.set": half, TOPOLOGY: "t"})
    group = group_of(pod(owner), owner, gang(part(), annotations={"of.gang": half}))
    assert not excess_of(group["metadata"])
    assert group["spec"]["topologyConstraint"] == {"topology": "t"}


def test_the_gangs_priority_applies_without_a_label():
    owner, found = top(), gang(part(), priorityClassName="spec")
    assert spec_of(pod(owner), owner, found)["priorityClassName"] == "spec"


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (gang(part(required="rack")), "expected annotation grove.io/topology-name"),
        (gang(part("a", 0)), "spec.podgroups[0].minReplicas: found 0"),
        (gang({"name": "a", "minReplicas": 1}), "spec.podgroups[0].podReferences: found nothing"),
        (gang({"minReplicas": 1, "podReferences": []}), "spec.podgroups[0].name: found nothing"),
        (gang(configs=[{"podGroupNames": ["a"]}]), "spec.topologyConstraintGroupConfigs[0].name: found nothing"),
        (gang(configs="x"), "spec.topologyConstraintGroupConfigs: found 'x', expected a list"),
        (gang("x"), "spec.podgroups[0]: found 'x', expected a map"),
    ],
)
def test_a_malformed_gang_is_refused(found, message):
    owner = top()
    assert message in failure_of(pod(owner), owner, found)


def test_a_gang_does_not_reach_into_another_namespace():
    owner, found = top(), gang(part("a", 1, "pod-0"))
    found["spec"]["podgroups"][0]["podReferences"][0]["namespace"] = "other"
    assert "found 'other', expected namespace \"ns\"" in failure_of(pod(owner), owner, found)


def test_an_unknown_preemptibility_is_refused_here():
    owner = top(labels={"kai.scheduler/preemptibility": "maybe"})
    assert "kai.scheduler/preemptibility" in failure_of(pod(owner), owner, gang(part()))


def test_a_pod_must_name_a_gang_that_exists():
    owner = top()
    assert "grove.io/podgang" in failure_of(pod_of(owner), owner)
    assert failure_of(pod(owner), owner) == 'PodGang "ns/g": not found'


def test_a_dynamo_deployments_labels_reach_the_group():
    dynamo = thing(
        "nvidia.com/v1beta1", "DynamoGraphDeployment", "d", labels={"kai.scheduler/preemptibility": "preemptible"}
    )
    owner = top(owners=[dynamo])
    clique = thing("grove.io/v1alpha1", "PodClique", "c", owners=[owner])
    spec = spec_of(pod(clique), clique, owner, dynamo, gang(part()))
    assert spec["preemptibility"] == "preemptible"


@pytest.mark.parametrize(("of_gang", "queue"), [({}, "set"), ({"kai.scheduler/queue": "gang"}, "gang")])
def test_the_sets_queue_applies_if_the_gang_names_none(of_gang, queue):
    owner = top(labels={"kai.scheduler/queue": "set"})
    found = gang(part("a", 1, "pod-0"), labels=of_gang)
    assert spec_of(pod(owner), owner, found)["queue"] == queue
