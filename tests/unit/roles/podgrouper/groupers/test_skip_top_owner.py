import json

import pytest

from kai.roles.podgrouper import Settings
from tests.unit.roles.podgrouper.workloads import group_of, pod_of, priority_class, spec_of, thing

QUEUE = "kai.scheduler/queue"


def test_workflow_pods_get_single_groups_with_its_labels():
    flow = thing("argoproj.io/v1alpha1", "Workflow", labels={QUEUE: "q", "a": "flow"}, annotations={"note": "x"})
    group = group_of(pod_of(flow, labels={"a": "pod"}), flow)
    assert group["metadata"]["name"] == "pg-pod-0-pod-0-uid"
    assert group["metadata"]["labels"] == {QUEUE: "q", "a": "pod"}
    assert group["metadata"]["annotations"]["note"] == "x"
    assert group["spec"]["queue"] == "q"


def test_the_owner_below_the_top_follows_its_own_rules():
    top = thing("run.ai/v7", "TrainingWorkload", "top", annotations={"kai.scheduler/batch-min-member": "3"})
    job = thing("batch/v1", "Job", owners=[top])
    group = group_of(pod_of(job), job, top)
    assert group["metadata"]["name"] == "pg-work-work-uid"
    assert group["spec"]["minMember"] == 3


def test_wrappers_in_wrappers_are_all_looked_through():
    top = thing("run.ai/v1", "DistributedWorkload", "top", labels={QUEUE: "q"})
    train = thing("trainer.kubeflow.org/v1alpha1", "TrainJob", "train", owners=[top], labels={"b": "1"})
    jobs = {"replicatedJobs": [{"name": "w", "template": {}}]}
    inner = thing("jobset.x-k8s.io/v1alpha2", "JobSet", "inner", owners=[train], spec=jobs)
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "w", "jobset.sigs.k8s.io/job-index": "0"}
    group = group_of(pod_of(inner, labels=labels), inner, train, top)
    assert group["metadata"]["name"] == "pg-inner-inner-uid"
    assert group["metadata"]["labels"] == {QUEUE: "q", "b": "1"}


def defaults(**entry):
    return thing("v1", "ConfigMap", "defaults", namespace="kai", data={"types": json.dumps([entry])})


DEFAULTS = Settings(defaults_namespace="kai", defaults_name="defaults")


def test_defaults_of_the_wrappers_kind_become_labels():
    top = thing("run.ai/v1", "InferenceWorkload", "top")
    job = thing("batch/v1", "Job", owners=[top])
    config_map = defaults(typeName="InferenceWorkload", priorityName="high", preemptibility="non-preemptible")
    group = group_of(pod_of(job), job, top, config_map, priority_class("high"), settings=DEFAULTS)
    assert group["spec"]["priorityClassName"] == "high"
    assert group["spec"]["preemptibility"] == "non-preemptible"
    assert group["metadata"]["labels"]["priorityClassName"] == "high"


def test_a_missing_default_priority_class_is_ignored():
    top = thing("run.ai/v1", "InferenceWorkload", "top")
    job = thing("batch/v1", "Job", owners=[top])
    config_map = defaults(typeName="InferenceWorkload", priorityName="gone")
    assert spec_of(pod_of(job), job, top, config_map, settings=DEFAULTS)["priorityClassName"] == "train"


TORCH = {"pytorchReplicaSpecs": {"Worker": {"replicas": 3}}}


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("workload.codeflare.dev/v1beta2", "AppWrapper"),
        ("kubeflow.org/v1beta1", "Trial"),
        ("disaggregatedset.x-k8s.io/v1", "DisaggregatedSet"),
        ("workloads.x-k8s.io/v1alpha2", "RoleBasedGroup"),
    ],
)
def test_a_gang_takes_the_labels_of_its_skipped_owner(version, kind):
    top = thing(version, kind, "top", labels={QUEUE: "q"})
    job = thing("kubeflow.org/v1", "PyTorchJob", owners=[top], spec=TORCH)
    group = group_of(pod_of(job, labels={"training.kubeflow.org/replica-type": "worker"}), job, top)
    assert group["metadata"]["name"] == "pg-work-work-uid"
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (3, "q")


def test_an_experiment_is_a_gang_for_each_trial():
    top = thing("kubeflow.org/v1beta1", "Experiment", "top", labels={QUEUE: "q"})
    trial = thing("kubeflow.org/v1beta1", "Trial", "trial", owners=[top])
    job = thing("kubeflow.org/v1", "PyTorchJob", owners=[trial], spec=TORCH)
    spec = spec_of(pod_of(job, labels={"training.kubeflow.org/replica-type": "worker"}), job, trial, top)
    assert (spec["minMember"], spec["queue"]) == (3, "q")


def test_a_karta_describes_a_kind_inside_a_wrapper_too():
    top = thing("workload.codeflare.dev/v1beta2", "AppWrapper", "top")
    flow = thing("example.com/v1", "Flow", owners=[top], spec={"workers": 3})
    assert spec_of(pod_of(flow, labels={"role": "worker"}), flow, top, karta_of_flows())["minMember"] == 3


def karta_of_flows():
    root = {"name": "flow", "kind": {"group": "example.com", "version": "v1", "kind": "Flow"}, "statusDefinition": {}}
    child = {
        "name": "worker",
        "ownerRef": "flow",
        "scaleDefinition": {"replicasPath": ".spec.workers"},
        "podSelector": {"componentTypeSelector": {"keyPath": ".metadata.labels.role", "value": "worker"}},
    }
    group = {"podGroup": {"name": "gang"}}
    spec = {
        "structureDefinition": {"rootComponent": root, "childComponents": [child]},
        "optimizationInstructions": {"gangScheduling": group},
    }
    labels = {"run.ai/karta-group": "example.com", "run.ai/karta-version": "v1", "run.ai/karta-kind": "Flow"}
    return thing("run.ai/v1alpha1", "Karta", "flow", namespace="", labels=labels, spec=spec)


def test_pods_of_a_spark_connect_take_its_queue():
    connect = thing("sparkoperator.k8s.io/v1alpha1", "SparkConnect", "session", labels={QUEUE: "q"})
    assert spec_of(pod_of(connect), connect)["queue"] == "q"
    server = thing("v1", "Pod", "session-server", owners=[connect])
    labels = {"spark-app-name": "session", "spark-app-selector": "spark-1"}
    group = group_of(pod_of(server, labels=labels), server, connect)
    assert (group["metadata"]["name"], group["spec"]["queue"]) == ("spark-1", "q")
