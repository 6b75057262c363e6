"""Owners of each kind that the pod grouper may read: it reads them with its own account, and their pods get a group.

Of a chain of Kubernetes' own kinds only the farthest is created: the controllers make the others, and the pod.
"""

import datetime as dt

import pytest

from tests.integration.client import until
from tests.integration.rights import shipped
from tests.integration.stage import an_object, node, scene, staged

ROLE = "podgrouper"
USER = "system:serviceaccount:kai-scheduler:podgrouper"
DEFAULTS = "defaults-by-kind"
QUEUE = {"kai.scheduler/queue": "team"}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
OURS = {
    "metadata": {"labels": {"a": "b", **QUEUE}},
    "spec": {**TEMPLATE["spec"], "schedulerName": "kai-scheduler"},
}
SELECTED = {"selector": {"matchLabels": {"a": "b"}}, "template": OURS}
JOB = {"template": {**OURS, "spec": {**OURS["spec"], "restartPolicy": "Never"}}}
ONE = {"replicas": 1, "template": TEMPLATE}
WORKERS = {"Worker": ONE}
HEAD = {"headGroupSpec": {"template": TEMPLATE}}
NODES = {"envs": {"AZUREML_NODE_COUNT": 1}}
LEADERS = {"replicas": 1, "leaderWorkerTemplate": {"size": 1, "workerTemplate": TEMPLATE}}
REPLICATED = [{"name": "a", "replicas": 1, "template": {"spec": {**JOB, "parallelism": 1, "completions": 1}}}]
GANG = {"podgroups": [{"name": "a", "minReplicas": 1, "podReferences": [{"namespace": "SPACE", "name": "pod"}]}]}

# Owners from the nearest to the farthest: version, kind, its name in paths, and what it says.
CHAINS = {
    "Deployment": [
        ("apps/v1", "ReplicaSet", "replicasets", {"spec": SELECTED}),
        ("apps/v1", "Deployment", "deployments", {"spec": SELECTED}),
    ],
    "DaemonSet": [("apps/v1", "DaemonSet", "daemonsets", {"spec": SELECTED})],
    "StatefulSet": [("apps/v1", "StatefulSet", "statefulsets", {"spec": {**SELECTED, "serviceName": "a"}})],
    "CronJob": [
        ("batch/v1", "Job", "jobs", {"spec": JOB}),
        ("batch/v1", "CronJob", "cronjobs", {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": JOB}}}),
    ],
    "AmlJob": [("amlarc.azureml.com/v1alpha1", "AmlJob", "amljobs", {"spec": {"job": {"options": NODES}}})],
    "Workflow": [("argoproj.io/v1alpha1", "Workflow", "workflows", {})],
    "SPOTRequest": [("egx.nvidia.io/v1", "SPOTRequest", "spotrequests", {})],
    "PodCliqueSet": [
        ("grove.io/v1alpha1", "PodClique", "podcliques", {}),
        ("grove.io/v1alpha1", "PodCliqueScalingGroup", "podcliquescalinggroups", {}),
        ("grove.io/v1alpha1", "PodCliqueSet", "podcliquesets", {}),
        ("nvidia.com/v1alpha1", "DynamoGraphDeployment", "dynamographdeployments", {}),
    ],
    "PodGangSet": [("grove.io/v1alpha1", "PodGangSet", "podgangsets", {})],
    "JobSet": [("jobset.x-k8s.io/v1alpha2", "JobSet", "jobsets", {"spec": {"replicatedJobs": REPLICATED}})],
    "JAXJob": [("kubeflow.org/v1", "JAXJob", "jaxjobs", {"spec": {"jaxReplicaSpecs": WORKERS}})],
    "MPIJob": [("kubeflow.org/v1", "MPIJob", "mpijobs", {"spec": {"mpiReplicaSpecs": {"Launcher": ONE, **WORKERS}}})],
    "PyTorchJob": [("kubeflow.org/v1", "PyTorchJob", "pytorchjobs", {"spec": {"pytorchReplicaSpecs": WORKERS}})],
    "TFJob": [("kubeflow.org/v1", "TFJob", "tfjobs", {"spec": {"tfReplicaSpecs": WORKERS}})],
    "XGBoostJob": [
        ("kubeflow.org/v1", "XGBoostJob", "xgboostjobs", {"spec": {"xgbReplicaSpecs": {"Master": ONE, **WORKERS}}})
    ],
    "Notebook": [("kubeflow.org/v1beta1", "Notebook", "notebooks", {})],
    "ScheduledWorkflow": [("kubeflow.org/v1alpha1", "ScheduledWorkflow", "scheduledworkflows", {})],
    "VirtualMachine": [
        ("kubevirt.io/v1", "VirtualMachineInstance", "virtualmachineinstances", {}),
        ("kubevirt.io/v1", "VirtualMachine", "virtualmachines", {}),
    ],
    "LeaderWorkerSet": [("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets", {"spec": LEADERS})],
    "SeldonDeployment": [("machinelearning.seldon.io/v1", "SeldonDeployment", "seldondeployments", {})],
    "RayJob": [
        ("ray.io/v1", "RayCluster", "rayclusters", {"spec": HEAD}),
        ("ray.io/v1", "RayJob", "rayjobs", {"status": {"rayClusterName": "a"}}),
    ],
    "RayService": [
        ("ray.io/v1", "RayCluster", "rayclusters", {"spec": HEAD}),
        ("ray.io/v1", "RayService", "rayservices", {"status": {"activeServiceStatus": {"rayClusterName": "a"}}}),
    ],
    **{
        kind: [("run.ai/v2alpha1", kind, f"{kind.lower()}s", {})]
        for kind in (
            *("DistributedInferenceWorkload", "DistributedWorkload", "InferenceWorkload", "InteractiveWorkload"),
            "TrainingWorkload",
        )
    },
    "RunaiJob": [("run.ai/v1", "RunaiJob", "runaijobs", {})],
    "Service": [
        ("serving.knative.dev/v1", "Revision", "revisions", {}),
        ("serving.knative.dev/v1", "Configuration", "configurations", {}),
        ("serving.knative.dev/v1", "Service", "services", {}),
    ],
    "PipelineRun": [
        ("tekton.dev/v1", "TaskRun", "taskruns", {}),
        ("tekton.dev/v1", "PipelineRun", "pipelineruns", {}),
    ],
    "TrainJob": [("trainer.kubeflow.org/v1alpha1", "TrainJob", "trainjobs", {})],
    "AppWrapper": [("workload.codeflare.dev/v1beta2", "AppWrapper", "appwrappers", {})],
    "CronWorkflow": [
        ("argoproj.io/v1alpha1", "Workflow", "workflows", {}),
        ("argoproj.io/v1alpha1", "CronWorkflow", "cronworkflows", {}),
    ],
    "DaskCluster": [
        ("kubernetes.dask.org/v1", "DaskWorkerGroup", "daskworkergroups", {}),
        ("kubernetes.dask.org/v1", "DaskCluster", "daskclusters", {}),
    ],
    "DisaggregatedSet": [
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "leaderworkersets", {"spec": LEADERS}),
        ("disaggregatedset.x-k8s.io/v1", "DisaggregatedSet", "disaggregatedsets", {}),
    ],
    "Experiment": [
        ("kubeflow.org/v1", "PyTorchJob", "pytorchjobs", {"spec": {"pytorchReplicaSpecs": WORKERS}}),
        ("kubeflow.org/v1beta1", "Trial", "trials", {}),
        ("kubeflow.org/v1beta1", "Experiment", "experiments", {}),
    ],
    "InferenceService": [("serving.kserve.io/v1beta1", "InferenceService", "inferenceservices", {})],
    "LLMInferenceService": [("serving.kserve.io/v1alpha2", "LLMInferenceService", "llminferenceservices", {})],
    "MiniCluster": [("flux-framework.org/v1alpha2", "MiniCluster", "miniclusters", {})],
    "NIMService": [("apps.nvidia.com/v1alpha1", "NIMService", "nimservices", {})],
    "RayCronJob": [
        ("ray.io/v1", "RayCluster", "rayclusters", {"spec": HEAD}),
        ("ray.io/v1", "RayJob", "rayjobs", {"status": {"rayClusterName": "a"}}),
        ("ray.io/v1", "RayCronJob", "raycronjobs", {}),
    ],
    "RoleBasedGroup": [
        ("workloads.x-k8s.io/v1alpha2", "RoleInstance", "roleinstances", {}),
        ("workloads.x-k8s.io/v1alpha2", "RoleInstanceSet", "roleinstancesets", {}),
        ("workloads.x-k8s.io/v1alpha2", "RoleBasedGroup", "rolebasedgroups", {}),
    ],
    "SparkApplication": [("sparkoperator.k8s.io/v1beta2", "SparkApplication", "sparkapplications", {})],
    "SparkConnect": [("sparkoperator.k8s.io/v1alpha1", "SparkConnect", "sparkconnects", {})],
    "VolcanoJob": [("batch.volcano.sh/v1alpha1", "Job", "jobs", {"spec": {"minAvailable": 1}})],
    "DevWorkspace": [("workspace.devfile.io/v1alpha2", "DevWorkspace", "devworkspaces", {})],
}
READ_BESIDE = ("scheduler.grove.io/v1alpha1", "PodGang", "podgangs", {"spec": GANG})
LABELS = {"Service": {"serving.knative.dev/revision": "a"}, "PodCliqueSet": {"grove.io/podgang": "a"}}
LABELS["PodGangSet"] = LABELS["PodCliqueSet"]
LABELS["JobSet"] = {"jobset.sigs.k8s.io/replicatedjob-name": "a", "jobset.sigs.k8s.io/job-index": "0"}
KINDS = {each[:3] for chain in CHAINS.values() for each in chain} | {READ_BESIDE[:3]}
BUILT_IN = {"apps", "batch"}


def definitions():
    """Yield the least of a definition for each kind: enough to be owners of pods."""
    by_plural = {}
    for version, kind, plural in KINDS:
        group, _, short = version.partition("/")
        if group not in BUILT_IN:
            by_plural.setdefault((group, plural), (kind, set()))[1].add(short)
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    for (group, plural), (kind, (short,)) in sorted(by_plural.items()):
        names = {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"}
        versions = [{"name": short, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}]
        spec = {"group": group, "scope": "Namespaced", "names": names, "versions": versions}
        metadata = {"annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}}
        version = "apiextensions.k8s.io/v1"
        yield an_object(version, "CustomResourceDefinition", f"{plural}.{group}", metadata=metadata, spec=spec)


@pytest.fixture(scope="module")
def theatre(control_plane, tmp_path_factory):
    control_plane.define_all(definitions())
    defaults = an_object("v1", "ConfigMap", DEFAULTS, metadata={"namespace": "kai-scheduler"}, data={"types": "[]"})
    control_plane.admin.apply(defaults)
    defaults_of = "--default-priorities-configmap"
    flags = (f"{defaults_of}-namespace=kai-scheduler", f"{defaults_of}-name={DEFAULTS}")
    with staged(control_plane, tmp_path_factory.mktemp("kai")) as stage:
        stage.start(ROLE, ROLE, account=ROLE, flags=flags)
        yield stage


@pytest.fixture
def stage(theatre):
    with scene(theatre) as stage:
        yield stage


def read_by_kai(stage):
    """Return what the pod grouper looked at in this test's namespace: group and kind."""
    return {
        (ref.get("apiGroup", ""), ref["resource"])
        for event in stage.plane.audited(USER)
        if event["verb"] == "get" and (ref := event.get("objectRef")) and ref.get("namespace") == stage.space
    }


@pytest.mark.parametrize("name", CHAINS)
def test_owners_are_read_and_their_pods_grouped(stage, name):
    owner = None
    wanted = set()
    if "grove.io/podgang" in LABELS.get(name, {}):
        version, kind, plural, body = READ_BESIDE
        part = {**GANG["podgroups"][0], "podReferences": [{"namespace": stage.space, "name": "pod"}]}
        stage.create(an_object(version, kind, "a", metadata={"labels": QUEUE}, spec={"podgroups": [part]}))
        wanted.add((version.partition("/")[0], plural))
    for version, kind, plural, body in reversed(CHAINS[name]):
        wanted.add((version.partition("/")[0], plural))
        if owner is None or version.partition("/")[0] not in BUILT_IN:
            owner = stage.create(an_object(version, kind, "a", metadata={"labels": QUEUE, **owned(owner)}, **body))
    if version.partition("/")[0] in BUILT_IN:
        pod = made_of(stage, owner)
    else:
        pod, metadata = "pod", {"labels": {**QUEUE, **LABELS.get(name, {})}, **owned(owner)}
        stage.create(an_object("v1", "Pod", pod, metadata=metadata, spec=OURS["spec"]))
    group = stage.group_of(pod)
    assert group["spec"]["queue"] == "team"
    until(lambda: wanted <= read_by_kai(stage), f"{wanted} to be in the audit log")


def made_of(stage, owner):
    """Return the name of the pod that the controllers of Kubernetes make for an owner."""
    if owner["kind"] == "DaemonSet":
        stage.create(node("n1"))
    if owner["kind"] == "CronJob":  # a run that was missed is made up for at once
        last = (dt.datetime.now(dt.UTC) - dt.timedelta(minutes=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
        stage.api.patch(owner, {"status": {"lastScheduleTime": last}}, subresource="status")
    return until(stage.pods, f"the pod of {owner['kind']}")[0]["metadata"]["name"]


def owned(owner):
    """Return the metadata of what an object owns."""
    if owner is None:
        return {}
    found = {key: owner["metadata"][key] for key in ("name", "uid")}
    return {
        "ownerReferences": [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True, **found}]
    }


def test_every_kind_that_may_be_read_is_here():
    rights = [right for right, _ in shipped() if right[0] == f"kai:{ROLE}" and right[4] == "get"]
    may_be_read = {(group, plural) for _, _, group, plural, _ in rights if group not in {"", "scheduling.run.ai"}}
    assert may_be_read == {(version.partition("/")[0], plural) for version, _, plural in KINDS}


def test_defaults_by_kind_are_read(stage):
    metadata = {"labels": QUEUE}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "none"}]}
    stage.create(an_object("v1", "Pod", "pod", metadata=metadata, spec=spec))
    stage.group_of("pod")
    looks = [each["objectRef"] for each in stage.plane.audited(USER) if each["verb"] == "get" and "objectRef" in each]
    assert ("configmaps", DEFAULTS) in {(each["resource"], each.get("name")) for each in looks}
