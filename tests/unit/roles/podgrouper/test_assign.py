from tests.unit.roles.podgrouper.workloads import decide, pod_of, subgroup_of, thing

JOB = thing(
    "kubeflow.org/v1",
    "PyTorchJob",
    spec={"pytorchReplicaSpecs": {"Master": {"replicas": 1}, "Worker": {"replicas": 2}}},
)
ROLE = "training.kubeflow.org/replica-type"
SUBGROUP = "kai.scheduler/subgroup-name"
IN_GROUP = {"pod-group-name": "pg-work-work-uid"}


def test_group_and_subgroup_are_written_in_one_patch():
    patch = decide(pod_of(JOB, labels={ROLE: "worker"}), JOB).pod_patch
    assert patch == {"metadata": {"annotations": IN_GROUP, "labels": {SUBGROUP: "worker"}}}


def test_only_what_is_wrong_is_written():
    outcome = decide(pod_of(JOB, labels={ROLE: "worker", SUBGROUP: "master"}, annotations=IN_GROUP), JOB)
    assert outcome.pod_patch == {"metadata": {"labels": {SUBGROUP: "worker"}}}


def test_a_correctly_assigned_pod_is_not_patched():
    pod = pod_of(JOB, labels={ROLE: "worker", SUBGROUP: "worker"}, annotations=IN_GROUP)
    assert decide(pod, JOB).pod_patch is None


def test_a_foreign_subgroup_is_kept_if_none_is_known():
    outcome = decide(pod_of(JOB, labels={SUBGROUP: "theirs"}, annotations=IN_GROUP), JOB)
    assert outcome.pod_patch is None
    assert subgroup_of(outcome) is None
