import pytest

from tests.unit.roles.podgrouper.workloads import decide, failure_of, pod_of, spec_of, subgroup_of, thing, tree_of

ROLE, INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
SIZE = "kai.scheduler/segment-size"
SEGMENT_REQUIRED = "kai.scheduler/segment-topology-required-placement"


def job(masters=1, workers=2, *, template=None, annotations=None, **spec):
    roles = {}
    if masters is not None:
        roles["Master"] = {"replicas": masters}
    if workers is not None:
        roles["Worker"] = {"replicas": workers}
        if template:
            roles["Worker"]["template"] = {"metadata": {"annotations": template}}
    spec["pytorchReplicaSpecs"] = roles
    return thing("kubeflow.org/v1", "PyTorchJob", annotations=annotations, spec=spec)


def worker(work, index=0, **annotations):
    return pod_of(work, labels={ROLE: "worker", INDEX: str(index)}, annotations=annotations)


def policy(minimum):
    return {"runPolicy": {"schedulingPolicy": {"minAvailable": minimum}}}


@pytest.mark.parametrize(
    ("spec", "minimum", "workers"),
    [
        ({}, 3, 2),
        ({"elasticPolicy": {"minReplicas": 2}}, 2, 1),
        (policy(1), 1, 0),
        ({"elasticPolicy": {"minReplicas": 2}, **policy(3)}, 3, 2),
    ],
)
def test_master_and_workers_are_subgroups_of_a_gang(spec, minimum, workers):
    found = spec_of(worker(job(**spec)), job(**spec))
    assert found["minMember"] == minimum
    assert tree_of(found) == {"master": (None, 1, None), "worker": (None, workers, None)}


@pytest.mark.parametrize(("masters", "workers", "names"), [(2, None, ["master"]), (None, 2, ["worker"])])
def test_a_role_that_is_not_there_has_no_subgroup(masters, workers, names):
    work = job(masters, workers)
    assert list(tree_of(spec_of(pod_of(work), work))) == names


@pytest.mark.parametrize(
    ("masters", "workers", "tree"),
    [
        ({"replicas": 1}, {"replicas": 0}, {"master": (None, 1, None), "worker": (None, 0, None)}),
        ({}, {"replicas": 2}, {"master": (None, 1, None), "worker": (None, 2, None)}),
        ({"replicas": 1}, {}, {"master": (None, 1, None), "worker": (None, 1, None)}),
    ],
)
def test_replicas_default_to_one_and_may_be_zero(masters, workers, tree):
    work = job()
    work["spec"]["pytorchReplicaSpecs"] = {"Master": masters, "Worker": workers}
    found = spec_of(pod_of(work, labels={ROLE: "master"}), work)
    assert tree_of(found) == tree
    assert found["minMember"] == sum(minimum for _, minimum, _ in tree.values())


@pytest.mark.parametrize("role", ["master", "worker"])
def test_a_pod_goes_to_the_subgroup_of_its_role(role):
    assert subgroup_of(decide(pod_of(job(), labels={ROLE: role}), job())) == role


def test_workers_form_segments_with_a_smaller_last_one():
    work = job(workers=5)
    pod = worker(work, 4, **{SIZE: "2"})
    assert tree_of(spec_of(pod, work)) == {
        "master": (None, 1, None),
        "worker": (None, None, 3),
        "worker-0": ("worker", 2, None),
        "worker-1": ("worker", 2, None),
        "worker-2": ("worker", 1, None),
    }
    assert subgroup_of(decide(pod, work)) == "worker-2"


def test_segments_beyond_the_minimum_are_elastic():
    work = job(workers=6, **policy(4))
    tree = tree_of(spec_of(worker(work, **{SIZE: "2"}), work))
    assert [tree[f"worker-{segment}"][1] for segment in range(3)] == [2, 2, 0]


def test_a_master_is_not_in_a_segment():
    work = job(workers=4)
    pod = pod_of(work, labels={ROLE: "master"}, annotations={SIZE: "2"})
    assert subgroup_of(decide(pod, work)) == "master"


def test_no_workers_leave_the_worker_subgroup_a_leaf():
    work = job(workers=0, **policy(1))
    assert tree_of(spec_of(worker(work, **{SIZE: "2"}), work))["worker"] == (None, 0, None)


def test_the_pod_states_the_segment_size_before_the_template():
    work = job(workers=4, template={SIZE: "4"})
    assert tree_of(spec_of(worker(work), work))["worker"] == (None, None, 1)
    assert tree_of(spec_of(worker(work, **{SIZE: "2"}), work))["worker"] == (None, None, 2)


@pytest.mark.parametrize("size", ["0", "-2", "two"])
@pytest.mark.parametrize("place", ["pod", "template"])
def test_an_unusable_segment_size_is_refused(size, place):
    work = job(workers=4, template={SIZE: size} if place == "template" else None)
    pod = worker(work, **({SIZE: size} if place == "pod" else {}))
    assert SIZE in failure_of(pod, work)


@pytest.mark.parametrize("labels", [{}, {INDEX: "x"}, {INDEX: "-1"}])
def test_a_worker_in_segments_needs_its_index(labels):
    work = job(workers=4)
    pod = pod_of(work, labels={ROLE: "worker", **labels}, annotations={SIZE: "2"})
    assert INDEX in failure_of(pod, work)


def test_too_many_segments_are_refused():
    work = job(workers=10_001)
    assert "number of segments: found 10001" in failure_of(worker(work, **{SIZE: "1"}), work)


@pytest.mark.parametrize(
    ("of_pod", "template", "annotations", "found"),
    [
        ({"kai.scheduler/topology": "p", SEGMENT_REQUIRED: "rack"}, {}, {}, ("p", "rack")),
        ({SEGMENT_REQUIRED: "rack"}, {"kai.scheduler/topology": "t", SEGMENT_REQUIRED: "host"}, {}, ("t", "rack")),
        ({}, {SEGMENT_REQUIRED: "rack"}, {"kai.scheduler/topology": "j"}, ("j", "rack")),
        ({"kai.scheduler/topology": "p"}, {}, {}, None),
        ({SEGMENT_REQUIRED: "rack"}, {}, {}, None),
    ],
)
def test_segments_are_constrained_by_pod_then_template_then_job(of_pod, template, annotations, found):
    work = job(workers=2, template=template, annotations=annotations)
    spec = spec_of(worker(work, **of_pod, **{SIZE: "2"}), work)
    constraint = next(each for each in spec["subGroups"] if each["name"] == "worker-0").get("topologyConstraint")
    wanted = None if found is None else dict(zip(("topology", "requiredTopologyLevel"), found, strict=True))
    assert constraint == wanted
