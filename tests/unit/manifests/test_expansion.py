from pathlib import Path
from typing import Any

import pytest
import yaml

from kai.manifests import Surroundings, expand
from kai.manifests.grouping import PRIORITY_CLASSES
from kai.manifests.unused import NOT_EXPANDED
from kai.manifests.workloads.table import LOOKING, MODELS, source_of

TEMPLATE = {"spec": {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "image": "i"}]}}
BY_OWNER = "one group for each top owner that kai may read"
CASES = yaml.safe_load((Path(__file__).parent / "controllers.yaml").read_text())


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": {**TEMPLATE["spec"], **spec}}


def workload(kind: str, version: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "w", **metadata}, "spec": spec}


def deployment(**spec: Any) -> dict[str, Any]:
    return workload("Deployment", "apps/v1", {"replicas": 2, "template": TEMPLATE, **spec})


def of_kind(expansion: Any, kind: str) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in expansion.manifests if each["kind"] == kind}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["about"])
def test_each_workload_expands_into_its_pods_and_groups(case):
    found = expand(list(yaml.safe_load_all(case["given"])))
    assert not found.problems
    groups = {name: group["spec"] for name, group in of_kind(found, "PodGroup").items()}
    members: dict[str, list[str]] = {name: [] for name in groups}
    for name, pod in of_kind(found, "Pod").items():
        members[pod["metadata"]["annotations"]["pod-group-name"]].append(name)
    shown = {
        name: {
            "pods": members[name],
            "minimum": spec.get("minMember", spec.get("minSubGroup")),
            **({"subgroups": [each["name"] for each in spec["subGroups"]]} if spec.get("subGroups") else {}),
        }
        for name, spec in groups.items()
    }
    assert shown == case["groups"]
    assert [str(each) for each in found.unused] == case.get("unused", [])


def test_every_pod_names_its_controller_as_owner():
    pods = of_kind(expand([deployment()]), "Pod")
    assert [pod["metadata"]["ownerReferences"][0]["kind"] for pod in pods.values()] == ["ReplicaSet"] * 2
    assert {pod["metadata"]["namespace"] for pod in pods.values()} == {"default"}


def test_workloads_that_own_each_other_are_refused():
    def owned(name: str, by: str) -> dict[str, Any]:
        owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": by, "uid": by}
        return {**deployment(), "metadata": {"name": name, "uid": name, "ownerReferences": [owner]}}

    found = expand([owned("x", by="y"), owned("y", by="x")])
    way = "Deployment default/{0} -> Deployment default/{1} -> Deployment default/{0}"
    told = "metadata.ownerReferences: found a circle, {}, expected owners that end"
    assert [(problem.at, problem.message) for problem in found.problems] == [
        (0, told.format(way.format("x", "y"))),
        (1, told.format(way.format("y", "x"))),
    ]


@pytest.mark.parametrize(
    ("group", "said"),
    [("here", []), ("ghost", ["not used: 1 Pod (the pod group that its annotation names is not there)"])],
)
def test_a_pod_naming_a_missing_group_is_reported_unused(group, said):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"pod-group-name": group}},
        **template(),
    }
    there = workload("PodGroup", "scheduling.run.ai/v2alpha2", {"queue": "q"}, name="here")
    assert [str(each) for each in expand([pod, there]).unused] == said


ASTRAY = "not used: 1 Pod (the pod group that its annotation names is not there)"


@pytest.mark.parametrize(
    ("granted", "node", "said"),
    [
        ('{"queue":"q","group":"ghost"}', "n1", []),
        ('{"queue":"q","group":"ghost"}', "", [ASTRAY]),
        ('{"queue":"","group":"ghost"}', "n1", [ASTRAY]),
        ("{", "n1", [ASTRAY]),
    ],
)
def test_a_running_pod_granted_to_a_deleted_group_counts(granted, node, said):
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "annotations": {"pod-group-name": "ghost", "kai.scheduler/granted": granted}},
        **template(),
        "status": {"phase": "Running"},
    }
    pod["spec"] = {**pod["spec"], "nodeName": node}
    assert [str(each) for each in expand([pod]).unused] == said


def left_alone(**annotations: str) -> dict[str, Any]:
    made = {"metadata": {"annotations": annotations}, **TEMPLATE}
    return workload("Job", "batch/v1", {"template": made}, annotations={"kai.scheduler/skip-podgrouper": "true"})


def test_ungrouped_pods_with_a_missing_group_are_reported():
    found = expand([left_alone(**{"pod-group-name": "ghost"})])
    assert not found.problems
    assert [str(each) for each in found.unused] == [
        "not used: 1 Pod (the pod group that its annotation names is not there)"
    ]


def test_pods_skipped_by_the_grouper_must_name_a_group():
    (problem,) = expand([left_alone()]).problems
    said = 'Job "default/w" carries kai.scheduler/skip-podgrouper, and the pod names no pod group'
    assert problem.message == said


def test_a_workload_with_pods_present_is_not_expanded():
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w-1", "uid": "u"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "ownerReferences": [owner], "annotations": {"pod-group-name": "g"}},
        "spec": TEMPLATE["spec"],
    }
    replica_set = workload("ReplicaSet", "apps/v1", {"replicas": 5, "template": TEMPLATE}, name="w-1", uid="u")
    assert of_kind(expand([replica_set, pod]), "Pod") == {"p": pod}


def test_what_is_not_used_is_counted_with_the_reason():
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
    wrong = {"apiVersion": "scheduling.run.ai/v9", "kind": "PodGroup", "metadata": {"name": "g"}}
    shard = {"apiVersion": "kai.scheduler/v1", "kind": "SchedulingShard", "metadata": {"name": "x"}}
    own = workload("Training", "acme.io/v1", {"template": TEMPLATE})
    other = deployment(template=template(schedulerName="volcano"))
    found = expand([service, service, wrong, shard, own, other, deployment(replicas=0)])
    assert [str(each) for each in found.unused] == [
        "not used: 1 PodGroup (found apiVersion scheduling.run.ai/v9, expected scheduling.run.ai/v2alpha2)",
        "not used: 1 SchedulingShard (it configures the scheduler; give it with --config)",
        "not used: 1 Deployment (its pods are for scheduler volcano, not for kai-scheduler)",
        f"not used: 1 Training of acme.io ({NOT_EXPANDED}; its pods are grouped in a cluster as {BY_OWNER})",
        "not used: 2 Service (scheduling does not read this kind)",
        "not used: 1 Deployment (suspended, finished or scaled to 0, so it has no pods now)",
    ]
    assert found.workloads == 1


@pytest.mark.parametrize(
    ("kind", "version", "spec", "pods"),
    [
        ("Job", "batch/v1", {"managedBy": "kueue.x-k8s.io/multikueue", "template": TEMPLATE}, 0),
        ("Job", "batch/v1", {"managedBy": "kubernetes.io/job-controller", "template": TEMPLATE}, 1),
        (
            *("JobSet", "jobset.x-k8s.io/v1alpha2"),
            {
                "managedBy": "kueue.x-k8s.io/multikueue",
                "replicatedJobs": [{"name": "w", "template": {"spec": {"template": TEMPLATE}}}],
            },
            0,
        ),
        (
            *("PyTorchJob", "kubeflow.org/v1"),
            {
                "runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"},
                "pytorchReplicaSpecs": {"Master": {"template": TEMPLATE}},
            },
            0,
        ),
        (
            *("PyTorchJob", "kubeflow.org/v1"),
            {
                "runPolicy": {"managedBy": "kubeflow.org/training-operator"},
                "pytorchReplicaSpecs": {"Master": {"template": TEMPLATE}},
            },
            1,
        ),
    ],
)
def test_a_workload_that_another_controller_manages_has_no_pods(kind, version, spec, pods):
    found = expand([workload(kind, version, spec)])
    said = f"not used: 1 {kind} (managed by kueue.x-k8s.io/multikueue, so the controller of its kind makes no pods)"
    assert len(of_kind(found, "Pod")) == pods
    assert [str(each) for each in found.unused] == ([] if pods else [said])


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (deployment(replicas="2"), "Deployment \"default/w\": spec.replicas: found '2', expected an integer"),
        (
            deployment(replicas=10**9),
            'Deployment "default/w": spec.replicas: found 1000000000, expected a whole number from 0 to 100000',
        ),
        (
            workload("Deployment", "apps/v1", {"replicas": 2}),
            'Deployment "default/w": spec.template: found nothing, expected a pod template',
        ),
        (
            workload("XGBoostJob", "kubeflow.org/v1", {"xgbReplicaSpecs": {"Worker": {"template": TEMPLATE}}}),
            'XGBoostJob "default/w": spec.xgbReplicaSpecs.Master: found nothing, expected a replica spec for this role',
        ),
    ],
)
def test_a_workload_that_cannot_be_expanded_says_why(manifest, message):
    (problem,) = expand([manifest]).problems
    assert (problem.at, problem.message) == (0, message)


def test_a_generated_group_is_as_old_as_its_pods():
    born = "2026-01-31T12:00:00Z"
    job = workload("Job", "batch/v1", {"template": TEMPLATE}, creationTimestamp=born)
    (group,) = of_kind(expand([job]), "PodGroup").values()
    assert group["metadata"]["creationTimestamp"] == born


def test_workloads_of_one_name_get_differently_named_groups():
    job = workload("Job", "batch/v1", {"template": TEMPLATE})
    stateful = workload("StatefulSet", "apps/v1", {"replicas": 1, "template": TEMPLATE})
    found = expand([job, stateful])
    assert len(of_kind(found, "PodGroup")) == 2
    assert len(of_kind(found, "Pod")) == 2


def test_the_priority_classes_are_those_of_an_installation():
    path = Path(__file__).parents[3] / "deploy" / "lasting" / "priority-classes.yaml"
    installed = {each["metadata"]["name"]: each["value"] for each in yaml.safe_load_all(path.read_text())}
    assert {name: installed[name] for name in PRIORITY_CLASSES} == PRIORITY_CLASSES


def test_a_deployment_gets_the_inference_priority_class():
    found = expand([deployment()])
    assert {each["metadata"]["name"]: each["value"] for each in of_kind(found, "PriorityClass").values()} == {
        "inference": 125
    }


CLIQUES = """\
apiVersion: grove.io/v1alpha1
kind: PodCliqueSet
metadata: {name: serve}
spec:
  template:
    topologyConstraint: {topologyName: dc, pack: {required: rack}}
    cliques:
    - name: a
      topologyConstraint: {pack: {preferred: zone}}
      spec: {replicas: 2, podSpec: &pods {schedulerName: kai-scheduler, containers: [{name: a, image: x}]}}
    - {name: b, spec: {replicas: 1, podSpec: *pods}}
    podCliqueScalingGroups:
    - {name: g, cliqueNames: [b], topologyConstraint: {packDomain: rack}}
"""
BINDING = """\
apiVersion: grove.io/v1alpha1
kind: ClusterTopologyBinding
metadata: {name: dc}
spec: {levels: [{domain: zone, key: example.org/zone}, {domain: rack, key: example.org/rack}]}
"""


def test_grove_topology_constraints_reach_group_and_subgroups():
    found = expand([*yaml.safe_load_all(CLIQUES), yaml.safe_load(BINDING)])
    (topology,) = of_kind(found, "Topology").values()
    assert topology["spec"]["levels"] == [{"nodeLabel": "example.org/zone"}, {"nodeLabel": "example.org/rack"}]
    (group,) = of_kind(found, "PodGroup").values()
    required = {"topology": "dc", "requiredTopologyLevel": "example.org/rack"}
    assert group["spec"]["topologyConstraint"] == required
    assert {each["name"]: each.get("topologyConstraint") for each in group["spec"]["subGroups"]} == {
        "serve-0-g-0": required,
        "serve-0-a": {"topology": "dc", "preferredTopologyLevel": "example.org/zone"},
        "serve-0-g-0-b": None,
    }


def test_a_missing_grove_topology_is_reported_and_ignored():
    found = expand(list(yaml.safe_load_all(CLIQUES)))
    (said,) = (problem.message for problem in found.absent)
    assert said.endswith(
        "expected a ClusterTopologyBinding of this name in the input: without it the constraint is left out"
    )
    (group,) = of_kind(found, "PodGroup").values()
    assert "topologyConstraint" not in group["spec"]


def test_each_kinds_model_names_its_source():
    assert all(source_of(*key) for key in {**MODELS, **LOOKING})


def test_an_unexpanded_kind_in_an_app_wrapper_is_reported():
    inner = workload("Training", "acme.io/v1", {"template": TEMPLATE})
    found = expand([workload("AppWrapper", "workload.codeflare.dev/v1beta2", {"components": [{"template": inner}]})])
    (said,) = (str(each) for each in found.unused)
    assert said == f"not used: 1 Training of acme.io ({NOT_EXPANDED}; its pods are grouped in a cluster as {BY_OWNER})"


SPARK = {"type": "Python", "driver": {"memory": "2g"}, "executor": {"memory": "10g", "cores": 4, "coreLimit": "5"}}


@pytest.mark.parametrize(
    ("more", "role", "memory"),
    [
        ({}, "driver", "2867Mi"),
        ({}, "executor", "14336Mi"),
        ({"type": "Scala"}, "driver", "2432Mi"),
        ({"type": "Scala"}, "executor", "11264Mi"),
        ({"memoryOverheadFactor": "0.5"}, "driver", "3072Mi"),
        ({"driver": {"memory": "1024m", "memoryOverhead": "1g"}}, "driver", "2048Mi"),
    ],
)
def test_pods_of_spark_ask_for_memory_beside_their_heap(more, role, memory):
    spec = {**SPARK, **more}
    spec = {**spec, **{each: {**spec[each], "schedulerName": "kai-scheduler"} for each in ("driver", "executor")}}
    found = expand([workload("SparkApplication", "sparkoperator.k8s.io/v1beta2", spec)], Surroundings(with_later=True))
    pods = [*of_kind(found, "Pod").values(), *(pod for each in found.later for pod in each.pods)]
    (asked,) = {
        pod["spec"]["containers"][0]["resources"]["requests"]["memory"]
        for pod in pods
        if pod["metadata"]["labels"]["spark-role"] == role
    }
    assert asked == memory


def test_settings_of_spark_ask_for_gpus_of_executors():
    conf = {"spark.executor.resource.gpu.amount": "2", "spark.executor.resource.gpu.vendor": "nvidia.com"}
    roles = {each: {**SPARK[each], "schedulerName": "kai-scheduler"} for each in ("driver", "executor")}
    asked = workload("SparkApplication", "sparkoperator.k8s.io/v1beta2", {**SPARK, **roles, "sparkConf": conf})
    found = expand([asked], Surroundings(with_later=True))
    (driver,) = of_kind(found, "Pod").values()
    ((executor,),) = (each.pods for each in found.later)
    limits = [each["spec"]["containers"][0]["resources"]["limits"] for each in (driver, executor)]
    assert [each.get("nvidia.com/gpu") for each in limits] == [None, "2"]


def test_an_operator_naming_the_scheduler_needs_none_in_manifests():
    pods = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    cluster = workload("RayCluster", "ray.io/v1", {"headGroupSpec": {"template": pods}})
    assert not of_kind(expand([cluster]), "Pod")
    around = Surroundings(operators=frozenset({"ray.io"}))
    assert of_kind(expand([cluster], around), "Pod")["w-head"]["spec"]["schedulerName"] == "kai-scheduler"
    job = workload("RayJob", "ray.io/v1", {"rayClusterSpec": cluster["spec"]})
    (problem,) = expand([job], around).problems
    assert (
        "spec.submissionMode: found 'K8sJobMode', expected HTTPMode, SidecarMode or InteractiveMode" in problem.message
    )
