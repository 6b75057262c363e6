import pytest

from tests.unit.roles.podgrouper.workloads import (
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

MIN_MEMBER = "kai.scheduler/batch-min-member"


def replicated(name="w", replicas=None, parallelism=None, *, completions=None, after=None, **annotations):
    template = {"metadata": {"annotations": annotations}}
    spec = {"parallelism": parallelism, "completions": completions}
    if parallelism is not None or completions is not None:
        template["spec"] = {key: count for key, count in spec.items() if count is not None}
    more = {"replicas": replicas, "dependsOn": after}
    return {"name": name, "template": template, **{key: value for key, value in more.items() if value is not None}}


def job_set(*jobs, order=None, annotations=None):
    spec = {"replicatedJobs": list(jobs), **({"startupPolicy": {"startupPolicyOrder": order}} if order else {})}
    return thing("jobset.x-k8s.io/v1alpha2", "JobSet", annotations=annotations, spec=spec)


def pod(work, job="w", index="0"):
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": job, "jobset.sigs.k8s.io/job-index": index}
    return pod_of(work, labels={key: value for key, value in labels.items() if value is not None})


def test_a_set_is_a_tree_of_jobs_and_replicas():
    work = job_set(replicated("driver"), replicated("w", 2, 3))
    spec = spec_of(pod(work), work)
    assert spec["minSubGroup"] == 2
    assert "minMember" not in spec
    assert tree_of(spec) == {
        "driver": (None, None, 1),
        "driver-replica-0": ("driver", 1, None),
        "w": (None, None, 2),
        "w-replica-0": ("w", 3, None),
        "w-replica-1": ("w", 3, None),
    }
    assert subgroup_of(decide(pod(work, "w", "1"), work)) == "w-replica-1"


@pytest.mark.parametrize(
    ("order", "annotation", "minimum"),
    [("AnyOrder", None, 2), ("InOrder", None, 1), ("InOrder", "2", 2), (None, "1", 1), (None, "9", 2)],
)
def test_how_many_jobs_must_start_together(order, annotation, minimum):
    annotations = {MIN_MEMBER: annotation} if annotation else None
    work = job_set(replicated("driver"), replicated(), order=order, annotations=annotations)
    assert spec_of(pod(work), work)["minSubGroup"] == minimum


@pytest.mark.parametrize("status", ["Ready", "Complete"])
def test_jobs_that_wait_for_others_hold_none_back(status):
    """The controller makes the last job when the others are so far, and the gang must not wait for it until then."""
    after = [{"name": "data", "status": status}, {"name": "model", "status": status}]
    work = job_set(replicated("data"), replicated("model"), replicated("w", after=after))
    assert spec_of(pod(work, "data"), work)["minSubGroup"] == 1
    stated = job_set(replicated("data"), replicated("w", after=after), annotations={MIN_MEMBER: "2"})
    assert spec_of(pod(stated, "data"), stated)["minSubGroup"] == 2


def test_a_job_that_waits_for_none_waits_for_none():
    work = job_set(replicated("data"), replicated("w", after=[]))
    assert spec_of(pod(work), work)["minSubGroup"] == 2


@pytest.mark.parametrize(
    ("parallelism", "completions", "minimum"), [(4, 2, 2), (2, 4, 2), (3, None, 3), (None, 4, 1), (4, 0, 0)]
)
def test_a_replicas_minimum_is_at_most_its_jobs_pods(parallelism, completions, minimum):
    work = job_set(replicated("w", 1, parallelism, completions=completions))
    assert tree_of(spec_of(pod(work), work))["w-replica-0"] == ("w", minimum, None)


@pytest.mark.parametrize(("more", "minimum"), [({}, 1), ({"alpha.jobset.sigs.k8s.io/node-selector": "true"}, 3)])
def test_exclusive_zones_do_not_block_the_first_pod(more, minimum):
    work = job_set(replicated("w", 1, 3), annotations={"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack", **more})
    assert tree_of(spec_of(pod(work), work))["w-replica-0"] == ("w", minimum, None)


def test_a_template_may_state_the_minimum_of_a_replica():
    work = job_set(replicated("w", 1, 2, **{MIN_MEMBER: "5"}))
    assert tree_of(spec_of(pod(work), work))["w-replica-0"] == ("w", 5, None)


@pytest.mark.parametrize("text", ["0", "x"])
def test_an_unusable_minimum_is_refused(text):
    of_set = job_set(replicated(), annotations={MIN_MEMBER: text})
    assert MIN_MEMBER in failure_of(pod(of_set), of_set)
    of_template = job_set(replicated(**{MIN_MEMBER: text}))
    assert "spec.replicatedJobs[0].template" in failure_of(pod(of_template), of_template)


@pytest.mark.parametrize(
    ("job", "index", "message"),
    [
        (None, "0", "replicatedjob-name"),
        ("w", None, "job-index"),
        ("w", "7", "found 'w-replica-7', expected a replica of JobSet"),
    ],
)
def test_a_pod_must_be_one_of_a_replica(job, index, message):
    work = job_set(replicated())
    assert message in failure_of(pod(work, job, index), work)


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([], "spec.replicatedJobs: found nothing"),
        ([{"replicas": 1}], "spec.replicatedJobs[0].name"),
        (["w"], "spec.replicatedJobs[0]: found 'w', expected a map"),
        ([replicated("w", -1)], "spec.replicatedJobs[0].replicas: found -1"),
        ([replicated("w", after="data")], "spec.replicatedJobs[0].dependsOn: found 'data', expected a list"),
    ],
)
def test_a_malformed_set_is_refused(jobs, message):
    work = job_set(*jobs)
    assert message in failure_of(pod(work), work)


def test_only_a_topology_with_a_level_constrains_leaves():
    whole = {"kai.scheduler/topology": "t", "kai.scheduler/topology-required-placement": "rack"}
    work = job_set(replicated("w", 1, **whole), replicated("x", 1, **{"kai.scheduler/topology": "t"}))
    found = {each["name"]: each.get("topologyConstraint") for each in spec_of(pod(work), work)["subGroups"]}
    assert found["w-replica-0"] == {"topology": "t", "requiredTopologyLevel": "rack"}
    assert found["x-replica-0"] is None
    assert found["w"] is None


@pytest.mark.parametrize(
    ("order", "old", "name"),
    [
        (None, "pg-work-work-uid", "pg-work-work-uid"),
        ("InOrder", "pg-work-work-uid-driver", "pg-work-work-uid-w"),
    ],
)
def test_a_set_with_a_flat_group_stays_flat(order, old, name):
    work = job_set(replicated("driver"), replicated(), order=order, annotations={MIN_MEMBER: "3"})
    group = group_of(pod(work, index=None), work, pod_group(old))
    assert group["metadata"]["name"] == name
    assert group["spec"]["minMember"] == 3
    assert not group["spec"].get("subGroups")


def test_groups_of_other_sets_do_not_keep_it_flat():
    work = job_set(replicated())
    shaped = pod_group("pg-work-work-uid", spec={"subGroups": [{"name": "w"}]})
    assert spec_of(pod(work), work, pod_group("pg-work-work-uid2"), shaped)["minSubGroup"] == 1
