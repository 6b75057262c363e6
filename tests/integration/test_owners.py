"""Jobs of every kind on a real API server with all of kai: grouped rightly, and started.

Those of Kubernetes itself get their pods from its controllers; operators are played.
"""

import datetime as dt

import pytest

from tests.integration.client import until
from tests.integration.installation import CRDS, install
from tests.integration.stage import JOB, POD_GROUP, an_object, node, queue, scene, staged, when
from tests.unit.deploy.rendering import DEPLOY

GPU = "nvidia.com/gpu"
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
ONCE = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
"""What operators copy from, who are not here; nothing is made of it."""
SELECTOR = {"matchLabels": {"a": "b"}}
WORKERS = {"replicas": 2, "template": TEMPLATE}


@pytest.fixture(scope="module")
def theatre(bare_control_plane, tmp_path_factory):
    install(bare_control_plane, DEPLOY / "base")
    bare_control_plane.define(CRDS)
    with staged(bare_control_plane, tmp_path_factory.mktemp("kai")) as stage:
        stage.start("kai")
        yield stage


@pytest.fixture
def stage(theatre):
    """Give a test a node of four GPUs and a queue."""
    with scene(theatre) as stage:
        for manifest in (node("n1", gpu=4), queue("top", gpu={"quota": -1}), queue("team", "top", gpu={"quota": -1})):
            stage.create(manifest)
        yield stage


def owned(owner):
    """Return the metadata of what an object owns."""
    found = {key: owner["metadata"][key] for key in ("name", "uid")}
    return [{"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True, **found}]


def make(stage, version, kind, name, owner=None, **body):
    """Play a user, or the operator of the owner, who makes something of its own."""
    metadata = {"labels": {"kai.scheduler/queue": "team"}} if owner is None else {"ownerReferences": owned(owner)}
    return stage.create(an_object(version, kind, name, metadata=metadata, **body))


def pods(stage, owner, *names, gpus=1, job="job", **labels):
    """Play the operator that makes the pods of an owner."""
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "none", "resources": resources}]}
    for name in names:
        found = {
            JOB: job,
            "kai.scheduler/queue": "team",
            **{key.replace("__", "/"): each for key, each in labels.items()},
        }
        metadata = {"labels": found, **({"ownerReferences": owned(owner)} if owner else {})}
        stage.create(an_object("v1", "Pod", name, metadata=metadata, spec=spec))


def runs(stage, count, job="job"):
    when(lambda: len(stage.running(job)) == count, f"{count} pods of {job} to run")


def waits(stage, count, job="job"):
    """Hold that pods have been looked at, and none of them has started."""

    def are_seen():
        is_told = stage.events(reason="NotReady") or stage.events(reason="Unschedulable")
        return len(stage.waiting(job)) == count and is_told

    when(are_seen, f"{count} pods of {job} to wait")
    stage.settle()
    assert len(stage.waiting(job)) == count


def minima(group):
    return {each["name"]: each.get("minMember") for each in group["spec"]["subGroups"]}


# --- Kubernetes' own, whose pods their controllers make ------------------------------------------------------------


def template(gpus=1, **labels):
    """Return what the controller of an owner makes its pods of."""
    resources = {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}}
    container = {"name": "main", "image": "none", "resources": resources}
    spec = {"schedulerName": "kai-scheduler", "containers": [container], "terminationGracePeriodSeconds": 0}
    own = {key.replace("__", "/"): each for key, each in labels.items()}
    return {"metadata": {"labels": {"a": "b", JOB: "job", "kai.scheduler/queue": "team", **own}}, "spec": spec}


def once(gpus=1, **labels):
    """Return a template of pods that end."""
    made = template(gpus, **labels)
    return {**made, "spec": {**made["spec"], "restartPolicy": "Never"}}


def groups(stage):
    """Return the groups of all pods that run, by the names of the pods."""
    return {name: stage.group_of(name) for name in (each["metadata"]["name"] for each in stage.running("job"))}


def test_a_jobs_pods_share_a_group_and_start_singly(stage):
    job = make(stage, "batch/v1", "Job", "job", spec={"template": once(gpus=2), "parallelism": 3})
    runs(stage, 2)
    (group,) = stage.api.list(POD_GROUP, "PodGroup", stage.space)
    assert group["metadata"]["name"] == f"pg-job-{job['metadata']['uid']}"
    assert group["spec"]["minMember"] == 1
    assert group["spec"]["queue"] == "team"


def test_a_job_with_a_minimum_starts_together(stage):
    metadata = {"annotations": {"kai.scheduler/batch-min-member": "3"}, "labels": {"kai.scheduler/queue": "team"}}
    job = an_object("batch/v1", "Job", "job", metadata=metadata, spec={"template": once(), "parallelism": 2})
    stage.create(job)
    waits(stage, 2)
    stage.change({**job, "metadata": {"name": "job"}, "spec": {"parallelism": 3}})
    runs(stage, 3)


def test_a_cron_jobs_pods_belong_to_its_job(stage):
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": once()}}, "concurrencyPolicy": "Forbid"}
    cron = make(stage, "batch/v1", "CronJob", "cron", spec=spec)
    # A run that was missed is made up for at once, and nobody waits for the next minute.
    last = (dt.datetime.now(dt.UTC) - dt.timedelta(minutes=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    stage.api.patch(cron, {"status": {"lastScheduleTime": last}}, subresource="status")
    runs(stage, 1)
    (job,) = stage.api.list("batch/v1", "Job", stage.space)
    assert job["metadata"]["ownerReferences"][0]["uid"] == cron["metadata"]["uid"]
    (group,) = groups(stage).values()
    assert group["metadata"]["name"] == f"pg-{job['metadata']['name']}-{job['metadata']['uid']}"


def test_deployment_pods_start_singly_and_are_not_preemptible(stage):
    spec = {"selector": SELECTOR, "template": template(gpus=2), "replicas": 2}
    make(stage, "apps/v1", "Deployment", "web", spec=spec)
    runs(stage, 2)
    found = groups(stage).values()
    assert len({each["metadata"]["name"] for each in found}) == 2
    assert {each["spec"]["priorityClassName"] for each in found} == {"inference"}
    when(lambda: stage.queue_status("team")["allocatedNonPreemptible"][GPU] == "4", "the queue to count them")


def test_the_pods_of_a_replica_set_start_by_themselves(stage):
    spec = {"selector": SELECTOR, "template": template(gpus=2), "replicas": 2}
    make(stage, "apps/v1", "ReplicaSet", "web", spec=spec)
    runs(stage, 2)
    assert {each["spec"]["minMember"] for each in groups(stage).values()} == {1}


def test_stateful_set_pods_start_one_by_one(stage):
    spec = {"selector": SELECTOR, "template": template(), "serviceName": "db", "replicas": 2}
    make(stage, "apps/v1", "StatefulSet", "db", spec=spec)
    runs(stage, 2)
    assert {name: each["spec"]["minMember"] for name, each in groups(stage).items()} == {"db-0": 1, "db-1": 1}


def test_daemon_set_pods_start_on_their_nodes(stage):
    stage.create(node("n2", gpu=4))
    make(stage, "apps/v1", "DaemonSet", "agent", spec={"selector": SELECTOR, "template": template()})
    runs(stage, 2)
    assert {each["spec"]["nodeName"] for each in stage.running("job")} == {"n1", "n2"}


def test_a_group_is_deleted_with_its_job(stage):
    job = make(stage, "batch/v1", "Job", "job", spec={"template": once(), "parallelism": 2})
    runs(stage, 2)
    stage.api.delete(job, propagationPolicy="Background")
    until(lambda: not stage.api.list("v1", "Pod", stage.space), "the pods to be collected")
    until(lambda: not stage.api.list(POD_GROUP, "PodGroup", stage.space), "the group to be collected")
    when(lambda: stage.queue_status("team").get("allocated", {}).get(GPU, "0") == "0", "the queue to have nothing")


# --- Operators -----------------------------------------------------------------------------------------------------


def test_a_pytorch_job_starts_whole(stage):
    roles = {"Master": {"replicas": 1, "template": TEMPLATE}, "Worker": WORKERS}
    job = make(stage, "kubeflow.org/v1", "PyTorchJob", "torch", spec={"pytorchReplicaSpecs": roles})
    pods(stage, job, "torch-master-0", **{"training.kubeflow.org__replica-type": "master"})
    pods(stage, job, "torch-worker-0", **{"training.kubeflow.org__replica-type": "worker"})
    waits(stage, 2)
    pods(stage, job, "torch-worker-1", **{"training.kubeflow.org__replica-type": "worker"})
    runs(stage, 3)
    assert minima(stage.group_of("torch-worker-1")) == {"master": 1, "worker": 2}


def test_an_elastic_pytorch_job_starts_with_its_minimum(stage):
    roles = {"Master": {"replicas": 1, "template": TEMPLATE}, "Worker": {"replicas": 5, "template": TEMPLATE}}
    spec = {"pytorchReplicaSpecs": roles, "elasticPolicy": {"minReplicas": 2}}
    job = make(stage, "kubeflow.org/v1", "PyTorchJob", "torch", spec=spec)
    pods(stage, job, "torch-master-0", **{"training.kubeflow.org__replica-type": "master"})
    workers = [f"torch-worker-{number}" for number in range(5)]
    pods(stage, job, *workers, **{"training.kubeflow.org__replica-type": "worker"})
    runs(stage, 4)
    assert "torch-master-0" in {each["metadata"]["name"] for each in stage.running()}


def test_a_ray_cluster_starts_with_head_and_minimum_workers(stage):
    spec = {
        "headGroupSpec": {"template": TEMPLATE},
        "workerGroupSpecs": [{"groupName": "small", "replicas": 2, "minReplicas": 2, "template": TEMPLATE}],
    }
    cluster = make(stage, "ray.io/v1", "RayCluster", "ray", spec=spec)
    pods(stage, cluster, "ray-head", **{"ray.io__group": "headgroup"})
    waits(stage, 1)
    pods(stage, cluster, "ray-small-0", "ray-small-1", **{"ray.io__group": "small"})
    runs(stage, 3)
    assert minima(stage.group_of("ray-head")) == {"headgroup": 1, "small": 2}


def test_a_ray_cluster_that_does_not_fit_waits(stage):
    spec = {
        "headGroupSpec": {"template": TEMPLATE},
        "workerGroupSpecs": [{"groupName": "small", "replicas": 2, "minReplicas": 2, "template": TEMPLATE}],
    }
    cluster = make(stage, "ray.io/v1", "RayCluster", "ray", spec=spec)
    pods(stage, cluster, "ray-head", **{"ray.io__group": "headgroup"})
    pods(stage, cluster, "ray-small-0", "ray-small-1", gpus=2, **{"ray.io__group": "small"})
    waits(stage, 3)


def test_a_job_set_starts_with_its_required_jobs(stage):
    template = {"spec": {"parallelism": 2, "completions": 2, "template": ONCE}}
    replicated = {"name": "workers", "replicas": 1, "template": template}
    job_set = make(stage, "jobset.x-k8s.io/v1alpha2", "JobSet", "set", spec={"replicatedJobs": [replicated]})
    labels = {"jobset.sigs.k8s.io__replicatedjob-name": "workers", "jobset.sigs.k8s.io__job-index": "0"}
    spec = {"template": once(**labels), "parallelism": 1}
    job = make(stage, "batch/v1", "Job", "set-workers-0", job_set, spec=spec)
    waits(stage, 1)
    stage.api.patch(job, {"spec": {"parallelism": 2}})
    runs(stage, 2)


def test_each_replica_of_a_leader_worker_set_starts_whole(stage):
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE}}
    owner = make(stage, "leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", spec=spec)
    labels = {"leaderworkerset.sigs.k8s.io__group-index": "0", "leaderworkerset.sigs.k8s.io__name": "lws"}
    leading = template(**labels, **{"leaderworkerset.sigs.k8s.io__worker-index": "0"})
    sts = {"selector": SELECTOR, "serviceName": "lws", "replicas": 1, "template": leading}
    make(stage, "apps/v1", "StatefulSet", "lws", owner, spec=sts)
    waits(stage, 1)
    working = template(a="c", **labels, **{"leaderworkerset.sigs.k8s.io__worker-index": "1"})
    rest = {"selector": {"matchLabels": {"a": "c"}}, "ordinals": {"start": 1}, "podManagementPolicy": "Parallel"}
    made = {**sts, **rest, "replicas": 2, "template": working}
    make(stage, "apps/v1", "StatefulSet", "lws-0", {"apiVersion": "v1", "kind": "Pod", **stage.pod("lws-0")}, spec=made)
    runs(stage, 3)
    assert minima(stage.group_of("lws-0")) == {"leader": 1, "workers": 2}


@pytest.mark.parametrize(
    ("version", "kind", "field", "roles"),
    [
        ("kubeflow.org/v1", "TFJob", "tfReplicaSpecs", ("PS", "Worker")),
        ("kubeflow.org/v1", "XGBoostJob", "xgbReplicaSpecs", ("Master", "Worker")),
        ("kubeflow.org/v1", "JAXJob", "jaxReplicaSpecs", ("Worker",)),
        ("kubeflow.org/v1", "MPIJob", "mpiReplicaSpecs", ("Launcher", "Worker")),
        ("kubeflow.org/v2beta1", "MPIJob", "mpiReplicaSpecs", ("Launcher", "Worker")),
    ],
)
def test_a_job_of_the_training_operator_starts_whole(stage, version, kind, field, roles):
    replicas = {role: {"replicas": 2 if role == "Worker" else 1, "template": TEMPLATE} for role in roles}
    job = make(stage, version, kind, "train", spec={field: replicas})
    names = [f"train-{role.lower()}-{number}" for role in roles for number in range(replicas[role]["replicas"])]
    pods(stage, job, *names[:-1])
    waits(stage, len(names) - 1)
    pods(stage, job, names[-1])
    runs(stage, len(names))
    assert stage.group_of(names[0])["spec"]["minMember"] == len(names)


def test_mpi_workers_start_before_their_waiting_launcher(stage):
    replicas = {"Launcher": {"replicas": 1, "template": TEMPLATE}, "Worker": WORKERS}
    spec = {"launcherCreationPolicy": "WaitForWorkersReady", "mpiReplicaSpecs": replicas}
    job = make(stage, "kubeflow.org/v2beta1", "MPIJob", "train", spec=spec)
    pods(stage, job, "train-worker-0", "train-worker-1")
    runs(stage, 2)
    pods(stage, job, "train-launcher")
    runs(stage, 3)


def test_the_pods_of_a_knative_revision_start_together(stage):
    service, revision = knative(stage, "2")
    pods(stage, service, "web-a", **{"serving.knative.dev__revision": "web-1"})
    waits(stage, 1)
    pods(stage, service, "web-b", **{"serving.knative.dev__revision": "web-1"})
    runs(stage, 2)
    assert stage.group_of("web-a")["metadata"]["name"] == f"pg-web-1-{revision['metadata']['uid']}"


def test_a_knative_revision_without_minimum_scale_starts_singly(stage):
    service, _ = knative(stage)
    pods(stage, service, "web-a", **{"serving.knative.dev__revision": "web-1"})
    runs(stage, 1)


def knative(stage, scale=""):
    annotations = {"annotations": {"autoscaling.knative.dev/min-scale": scale}} if scale else {}
    service = make(stage, "serving.knative.dev/v1", "Service", "web")
    metadata = {"labels": {"kai.scheduler/queue": "team"}, "ownerReferences": owned(service), **annotations}
    revision = stage.create(an_object("serving.knative.dev/v1", "Revision", "web-1", metadata=metadata))
    return service, revision


def test_spark_executors_join_their_drivers_group(stage):
    spark = {"spark-app-name": "app", "spark-app-selector": "spark-1"}
    pods(stage, None, "driver", **spark)
    runs(stage, 1)
    pods(stage, None, "executor-1", "executor-2", **spark)
    runs(stage, 3)
    assert {stage.group_of(name)["metadata"]["name"] for name in ("driver", "executor-1", "executor-2")} == {"spark-1"}


def test_a_kind_with_a_karta_starts_as_described(stage):
    may_read(stage, "example.com", "flows")
    stage.create(karta())
    try:
        flow = make(
            stage, "example.com/v1", "Flow", "flow", spec={"master": {"replicas": 1}, "worker": {"replicas": 2}}
        )
        pods(stage, flow, "flow-master", role="master")
        pods(stage, flow, "flow-worker-0", role="worker")
        waits(stage, 2)
        pods(stage, flow, "flow-worker-1", role="worker")
        runs(stage, 3)
        group = stage.group_of("flow-master")
        assert group["metadata"]["name"] == f"pg-{flow['metadata']['uid']}-flow"
        assert minima(group) == {"master": 1, "worker": 2}
    finally:
        stage.delete("run.ai/v1alpha1", "Karta", "flow")


def karta():
    """Return what describes flows: a gang of a master and of workers, told apart by a label."""

    def child(name):
        return {
            "name": name,
            "ownerRef": "flow",
            "specDefinition": {"podTemplateSpecPath": f".spec.{name}.template"},
            "scaleDefinition": {"replicasPath": f".spec.{name}.replicas"},
            "podSelector": {"componentTypeSelector": {"keyPath": ".metadata.labels.role", "value": name}},
        }

    kind = {"group": "example.com", "version": "v1", "kind": "Flow"}
    gang = {"name": "flow", "subGroups": [{"componentName": name} for name in ("master", "worker")]}
    spec = {
        "structureDefinition": {
            "rootComponent": {"name": "flow", "kind": kind, "statusDefinition": {}},
            "childComponents": [child("master"), child("worker")],
        },
        "optimizationInstructions": {"gangScheduling": {"podGroup": gang}},
    }
    labels = {f"run.ai/karta-{part}": value for part, value in kind.items()}
    return an_object("run.ai/v1alpha1", "Karta", "flow", metadata={"labels": labels}, spec=spec)


def may_read(stage, group, plural):
    """Let kai read a kind that its own roles do not name, as whoever brings the kind has to."""
    rules = [{"apiGroups": [group], "resources": [plural], "verbs": ["get", "list", "watch"]}]
    subjects = [{"kind": "ServiceAccount", "name": "kai", "namespace": "kai-scheduler"}]
    rights = "rbac.authorization.k8s.io"
    role = {"apiGroup": rights, "kind": "ClusterRole", "name": "reads-flows"}
    stage.api.ensure(an_object(f"{rights}/v1", "ClusterRole", "reads-flows", rules=rules))
    stage.api.ensure(an_object(f"{rights}/v1", "ClusterRoleBinding", "reads-flows", roleRef=role, subjects=subjects))
    asked = {"group": group, "resource": plural, "verb": "list"}
    spec = {"user": "system:serviceaccount:kai-scheduler:kai", "resourceAttributes": asked}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {}, "spec": spec}
    until(lambda: stage.api.create(review)["status"]["allowed"], "the right to be known")


def test_a_pod_of_an_unknown_owner_kind_starts_alone(stage):
    unknown = make(stage, "v1", "ConfigMap", "thing")
    pods(stage, {"apiVersion": "v1", "kind": "ConfigMap", **unknown}, "thing-a")
    runs(stage, 1)
    assert stage.group_of("thing-a")["spec"]["minMember"] == 1
