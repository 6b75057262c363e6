import pytest

from tests.unit.roles.podgrouper.workloads import (
    PREFERRED,
    REQUIRED,
    TOPOLOGY,
    decide,
    failure_of,
    group_of,
    pod_group,
    pod_of,
    spec_of,
    subgroup_of,
    thing,
    tree_of,
)


def cluster(*groups, name="work", head=None, **metadata):
    spec = {"workerGroupSpecs": list(groups), **({"headGroupSpec": head} if head else {})}
    return thing("ray.io/v1", "RayCluster", name, spec=spec, **metadata)


def template(**annotations):
    return {"template": {"metadata": {"annotations": annotations}}}


def test_a_cluster_is_a_gang_of_head_and_workers():
    work = cluster({"groupName": "a", "replicas": 3, "minReplicas": 2}, {"replicas": 1, "numOfHosts": 4})
    spec = spec_of(pod_of(work), work)
    assert spec["minMember"] == 1 + 2 + 4
    assert tree_of(spec) == {
        "headgroup": (None, 1, None),
        "a": (None, 2, None),
        "worker-group-1": (None, 4, None),
    }


@pytest.mark.parametrize(
    "group", [{"suspend": True, "replicas": 2}, {"suspended": True, "replicas": 2}, {"replicas": 0}, {}]
)
def test_a_group_that_wants_no_workers_is_left_out(group):
    work = cluster(group)
    assert list(tree_of(spec_of(pod_of(work), work))) == ["headgroup"]


def test_a_cluster_without_worker_groups_is_its_head():
    work = thing("ray.io/v1", "RayCluster", spec={})
    assert spec_of(pod_of(work), work)["minMember"] == 1


@pytest.mark.parametrize(
    ("group", "workers"),
    [
        ({"minReplicas": 2}, 2),
        ({"replicas": 0, "minReplicas": 2, "maxReplicas": 5}, 2),
        ({"replicas": 1, "minReplicas": 2}, 2),
        ({"replicas": 8, "maxReplicas": 3}, 3),
        ({"replicas": 8, "minReplicas": 2, "maxReplicas": 3}, 2),
        ({"replicas": 3, "maxReplicas": 2147483647}, 3),
    ],
)
def test_a_group_needs_at_most_the_operators_workers(group, workers):
    work = cluster({"groupName": "a", **group})
    assert tree_of(spec_of(pod_of(work), work))["a"] == (None, workers, None)


@pytest.mark.parametrize(("least", "workers"), [(0, 0), (2, 2)])
def test_an_autoscaled_cluster_needs_only_its_minimum_of_workers(least, workers):
    """Else a running cluster would be a gang that lacks pods, and stale, whenever there is no room for more."""
    work = cluster({"groupName": "a", "replicas": 5, "minReplicas": least})
    work["spec"]["enableInTreeAutoscaling"] = True
    spec = spec_of(pod_of(work), work)
    assert spec["minMember"] == 1 + workers
    assert tree_of(spec)["a"] == (None, workers, None)


@pytest.mark.parametrize(("group", "subgroup"), [("headgroup", "headgroup"), ("a", "a"), ("other", None), (None, None)])
def test_a_pod_joins_its_ray_group_if_known(group, subgroup):
    work = cluster({"groupName": "a", "replicas": 1})
    assert subgroup_of(decide(pod_of(work, labels={"ray.io/group": group} if group else None), work)) == subgroup


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("RayJob", {"rayClusterName": "c"}),
        ("RayService", {"activeServiceStatus": {"rayClusterName": "c"}}),
        ("RayService", {"pendingServiceStatus": {"rayClusterName": "c"}}),
    ],
)
def test_the_job_or_service_owns_its_clusters_group(kind, status):
    top = thing("ray.io/v1", kind, "top", status=status)
    work = cluster({"groupName": "a", "replicas": 2}, name="c", owners=[top])
    group = group_of(pod_of(work), work, top)
    assert group["metadata"]["name"] == "pg-top-top-uid"
    assert group["spec"]["minMember"] == 3


@pytest.mark.parametrize("status", [{}, {"rayClusterName": ""}])
def test_a_job_with_an_unknown_cluster_is_retried(status):
    job = thing("ray.io/v1", "RayJob", status=status)
    assert "status.rayClusterName" in failure_of(pod_of(job), job)


def test_a_job_whose_cluster_is_gone_is_refused():
    job = thing("ray.io/v1", "RayJob", status={"rayClusterName": "c"})
    assert failure_of(pod_of(job), job) == 'RayCluster "ns/c": not found'


def test_ray_has_a_priority_label_of_its_own():
    work = cluster(labels={"ray.io/priority-class-name": "mine"})
    assert spec_of(pod_of(work), work)["priorityClassName"] == "mine"


def test_a_group_that_has_no_subgroups_gets_none():
    work = cluster({"groupName": "a", "replicas": 1})
    pod = pod_of(work, labels={"ray.io/group": "a"})
    old = pod_group("pg-work-work-uid", owners=[work], spec={"minMember": 9})
    outcome = decide(pod, work, old)
    assert outcome.group.manifest["spec"]["minMember"] == 2
    assert "subGroups" not in outcome.group.manifest["spec"]
    assert subgroup_of(outcome) is None


def test_templates_constrain_their_groups():
    head = template(**{TOPOLOGY: "t", PREFERRED: "host"})
    work = cluster({"groupName": "a", "replicas": 1, **template(**{TOPOLOGY: "t", REQUIRED: "rack"})}, head=head)
    found = {each["name"]: each.get("topologyConstraint") for each in spec_of(pod_of(work), work)["subGroups"]}
    assert found == {
        "headgroup": {"topology": "t", "preferredTopologyLevel": "host"},
        "a": {"topology": "t", "requiredTopologyLevel": "rack"},
    }


def test_a_topology_constrains_nothing_without_level_and_vice_versa():
    plain = cluster(head=template(**{TOPOLOGY: "t"}))
    assert "topologyConstraint" not in spec_of(pod_of(plain), plain)["subGroups"][0]
    wrong = cluster(head=template(**{REQUIRED: "rack"}))
    assert "spec.headGroupSpec.template.metadata.annotations" in failure_of(pod_of(wrong), wrong)


def test_the_submitter_pod_waits_for_no_gang():
    job = thing("ray.io/v1", "RayJob", spec={}, status={"rayClusterName": "work"})
    labels = {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "work"}
    written = group_of(pod_of(job, labels=labels), job, cluster({"replicas": 3}))
    assert written["metadata"]["name"].endswith("-submitter")
    assert (written["spec"]["minMember"], written["spec"].get("subGroups")) == (1, None)
