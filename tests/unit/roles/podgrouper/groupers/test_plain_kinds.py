"""Kinds whose whole difference is a name, an owner or a priority."""

import pytest

from kai.roles.podgrouper import Settings
from tests.unit.roles.podgrouper.workloads import (
    failure_of,
    group_of,
    pod_group,
    pod_of,
    priority_class,
    spec_of,
    thing,
)


def test_pods_of_a_deployment_are_grouped_one_by_one():
    deployment = thing("apps/v1", "Deployment", labels={"app": "web"})
    replica_set = thing("apps/v1", "ReplicaSet", "rs", owners=[deployment])
    group = group_of(pod_of(replica_set), replica_set, deployment)
    assert group["metadata"]["name"] == "pg-pod-0-pod-0-uid"
    assert group["metadata"]["ownerReferences"][0]["kind"] == "Pod"
    assert group["metadata"]["labels"] == {"app": "web"}
    assert group["spec"] == {"minMember": 1, "queue": "default-queue", "priorityClassName": "inference"}


def test_daemon_set_pods_get_single_groups_with_its_labels():
    owner = thing("apps/v1", "DaemonSet", labels={"kai.scheduler/queue": "team"})
    groups = [group_of(pod_of(owner, name=name), owner) for name in ("a", "b")]
    assert [group["metadata"]["name"] for group in groups] == ["pg-a-a-uid", "pg-b-b-uid"]
    assert groups[0]["metadata"]["ownerReferences"][0]["name"] == "a"
    assert groups[0]["spec"] == {"minMember": 1, "queue": "team", "priorityClassName": "train"}


@pytest.mark.parametrize(
    ("api_version", "kind", "priority"),
    [("kubeflow.org/v1beta1", "Notebook", "build"), ("egx.nvidia.io/v1", "SPOTRequest", "inference")],
)
def test_some_kinds_have_a_default_priority_unless_labelled(api_version, kind, priority):
    plain = thing(api_version, kind)
    assert spec_of(pod_of(plain), plain)["priorityClassName"] == priority
    labelled = thing(api_version, kind, labels={"priorityClassName": "high"})
    assert spec_of(pod_of(labelled), labelled, priority_class("high"))["priorityClassName"] == "high"


def test_an_aml_job_needs_all_its_nodes():
    job = thing("amlarc.azureml.com/v1alpha1", "AmlJob")
    job["spec"] = {"job": {"options": {"envs": {"AZUREML_NODE_COUNT": 3}}}}
    assert spec_of(pod_of(job), job)["minMember"] == 3
    job["spec"] = {"job": {"options": {}}}
    assert "spec.job.options.envs.AZUREML_NODE_COUNT: found nothing" in failure_of(pod_of(job), job)


def test_a_bare_pod_is_a_workload():
    group = group_of(pod_of(labels={"a": "1"}))
    assert group["metadata"]["name"] == "pg-pod-0-pod-0-uid"
    assert group["metadata"]["labels"] == {"a": "1"}


def test_spark_pods_share_the_group_of_their_application():
    labels = {"spark-app-name": "app", "spark-app-selector": "spark-123"}
    driver = pod_of(name="driver", labels=labels)
    executor = pod_of(driver, name="executor", labels=labels)
    assert group_of(driver)["metadata"]["name"] == "spark-123"
    group = group_of(executor, driver)
    assert group["metadata"]["name"] == "spark-123"
    assert group["metadata"]["ownerReferences"][0]["name"] == "driver"
    assert group["spec"]["minMember"] == 1


def test_a_spark_application_without_a_name_is_refused():
    labels = {"spark-app-name": "app", "spark-app-selector": ""}
    assert "spark-app-selector" in failure_of(pod_of(labels=labels))


def test_one_spark_label_is_not_enough():
    assert group_of(pod_of(labels={"spark-app-selector": "x"}))["metadata"]["name"] == "pg-pod-0-pod-0-uid"


def test_a_cron_job_groups_each_run():
    cron = thing("batch/v1", "CronJob", "nightly")
    run = thing("batch/v1", "Job", "nightly-1", owners=[cron], annotations={"kai.scheduler/batch-min-member": "3"})
    group = group_of(pod_of(run), run, cron)
    assert group["metadata"]["name"] == "pg-nightly-1-nightly-1-uid"
    assert group["spec"]["minMember"] == 1


def test_a_cron_job_without_a_job_between_is_refused():
    cron = thing("batch/v1", "CronJob", "nightly")
    assert "expected a Job among the owners" in failure_of(pod_of(cron), cron)


@pytest.mark.parametrize(("name", "stem"), [("search-7", "search"), ("alone", "alone"), ("a-b-0", "a-b")])
def test_a_runai_job_groups_pods_by_name_stem(name, stem):
    job = thing("run.ai/v1", "RunaiJob")
    assert group_of(pod_of(job, name=name), job)["metadata"]["name"] == f"pg-{stem}-work-uid"


@pytest.mark.parametrize(("parallelism", "legacy"), [(1, "pg-work-work-uid"), (2, "pg-search-7-work-uid")])
def test_a_runai_job_keeps_an_old_groups_name(parallelism, legacy):
    job = thing("run.ai/v1", "RunaiJob", spec={"parallelism": parallelism})
    pod, old = pod_of(job, name="search-7"), pod_group(legacy)
    assert group_of(pod, job, old)["metadata"]["name"] == legacy
    without = Settings(legacy_groups=False)
    assert group_of(pod, job, old, settings=without)["metadata"]["name"] == "pg-search-work-uid"


@pytest.mark.parametrize(
    ("spec", "minimum"),
    [
        ({"tasks": [{"replicas": 2}, {"replicas": 3}]}, 5),
        ({"minAvailable": 2, "tasks": [{"replicas": 2}, {"replicas": 3}]}, 2),
        ({"tasks": [{"replicas": 4, "minAvailable": 1}, {}]}, 2),
        (
            {"minAvailable": 5, "tasks": [{"name": "a", "replicas": 2}, {"replicas": 3, "dependsOn": {"name": ["a"]}}]},
            2,
        ),
        ({}, 1),
    ],
)
def test_a_volcano_jobs_gang_has_its_first_pods(spec, minimum):
    job = thing("batch.volcano.sh/v1alpha1", "Job", spec=spec)
    assert spec_of(pod_of(job), job)["minMember"] == minimum


def test_a_role_instance_excludes_components_that_start_later():
    late = {"rolebasedgroup.workloads.x-k8s.io/component-depends-on": '{"startAfter": ["main"]}'}
    components = [{"name": "main", "size": 2}, {"name": "late", "size": 4, "annotations": late}]
    instance = thing("workloads.x-k8s.io/v1alpha2", "RoleInstance", spec={"components": components})
    assert spec_of(pod_of(instance), instance)["minMember"] == 2


def test_an_annotated_role_based_group_is_one_gang():
    roles = [
        {"name": "router", "dependencies": ["decode"]},
        {"name": "decode", "replicas": 2, "leaderWorkerPattern": {"size": 3}},
        {"name": "engine", "customComponentsPattern": {"components": [{"size": 2}, {}]}},
    ]
    gang = {"rbg.workloads.x-k8s.io/group-gang-scheduling": "true"}
    group = thing("workloads.x-k8s.io/v1alpha2", "RoleBasedGroup", "group", annotations=gang, spec={"roles": roles})
    parts = thing("workloads.x-k8s.io/v1alpha2", "RoleInstanceSet", "set", owners=[group])
    instance = thing("workloads.x-k8s.io/v1alpha2", "RoleInstance", owners=[parts])
    assert spec_of(pod_of(instance), instance, parts, group)["minMember"] == 9
