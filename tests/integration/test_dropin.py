"""Manifests as users of KAI-Scheduler write them, on a real API server, with all roles of kai in one process.

Every label, annotation and field here is one that such users have in their files. Nothing else runs that knows kai's
kinds, so what starts was started by kai, and what was grouped was grouped by kai.
"""

import json
import sys

import pytest

from tests.integration.client import until
from tests.integration.controlplane import Daemon
from tests.integration.installation import CRDS, install
from tests.integration.kubelet import DEVICE, RESERVED, Kubelet
from tests.integration.together import (
    GPU,
    UNLIMITED,
    add_node,
    add_queues,
    an_object,
    own_environment,
    refused_calls,
    running,
    serving_webhooks,
)
from tests.unit.deploy.rendering import DEPLOY

NAMESPACE = "default"
IMAGE = "registry.example/kai:1"
QUEUE = {"kai.scheduler/queue": "team"}


@pytest.fixture(scope="module")
def plane(bare_control_plane):
    install(bare_control_plane, DEPLOY)
    bare_control_plane.define(CRDS)
    return bare_control_plane


@pytest.fixture(scope="module")
def admin(plane, tmp_path_factory):
    """Return the administrator's view of a cluster with two racks, in which kai runs."""
    admin = plane.admin
    admin.ensure(an_object("v1", "Namespace", NAMESPACE))
    add_queues(admin)
    for number in range(4):
        add_node(admin, f"n{number}", {"example.org/rack": f"r{number // 2}", "example.org/block": "b"})
    # As the GPU operator makes it; admission gives it to pods that share GPUs.
    admin.ensure(an_object("node.k8s.io/v1", "RuntimeClass", "nvidia", handler="nvidia"))
    levels = [{"nodeLabel": "example.org/block"}, {"nodeLabel": "example.org/rack", "alias": "rack"}]
    admin.ensure(an_object("kai.scheduler/v1alpha1", "Topology", "network", spec={"levels": levels}))
    kubelet = Kubelet(admin, plane.account(RESERVED, "kai-resource-reservation"))
    folder = tmp_path_factory.mktemp("kai")
    environment = own_environment(admin, IMAGE)
    with running(plane, folder, environment=environment), serving_webhooks(plane, folder):
        kubelet.start()
        until(lambda: is_asked(admin), "the API server to know of the webhooks")
        yield admin
        kubelet.stop()


def is_asked(admin):
    """Return whether both kinds of webhooks have their say; that takes the API server a moment."""
    made = admin.create(a_pod("asked", annotations={"gpu-fraction": "0.5"}), dryRun="All")
    seen = len(admin.warnings)
    admin.create(greedy(), dryRun="All")
    return "env" in made["spec"]["containers"][0] and len(admin.warnings) > seen


def greedy():
    """Return a group that asks for more sub-groups than it has."""
    groups = [{"name": f"prefill-{number}", "minMember": 8} for number in range(4)]
    spec = {"queue": "team", "minSubGroup": 5, "subGroups": groups}
    return an_object("scheduling.run.ai/v2alpha2", "PodGroup", "greedy", NAMESPACE, spec=spec)


@pytest.fixture(autouse=True)
def tidy(admin):
    """Take away what a test made."""
    yield
    kinds = (("batch/v1", "Job"), ("apps/v1", "Deployment"), ("v1", "Pod"), ("scheduling.run.ai/v2alpha2", "PodGroup"))
    for version, kind in kinds:
        for manifest in admin.list(version, kind, NAMESPACE):
            admin.delete(manifest, gracePeriodSeconds=0, propagationPolicy="Background")
    until(lambda: not admin.list("v1", "Pod", NAMESPACE), "pods to be gone")
    until(lambda: not admin.list("v1", "Pod", RESERVED), "reservations to be gone")


def a_pod(name, *, gpus=0, labels=QUEUE, annotations=None, owner=None, containers=("main",), **spec):
    requests = {"cpu": "100m", **({GPU: str(gpus)} if gpus else {})}
    resources = {"requests": requests, "limits": {GPU: str(gpus)} if gpus else {}}
    made = [{"name": each, "image": "none", "resources": resources if each == "main" else {}} for each in containers]
    metadata = {"labels": dict(labels), "annotations": dict(annotations or {})}
    if owner is not None:
        found = {key: owner["metadata"][key] for key in ("name", "uid")}
        metadata["ownerReferences"] = [
            {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True, **found}
        ]
    body = {"schedulerName": "kai-scheduler", "containers": made, **spec}
    return an_object("v1", "Pod", name, NAMESPACE, metadata=metadata, spec=body)


def a_job(admin, name, *, annotations=None, labels=None, parallelism=1, gpus=0, pod_labels=QUEUE, pod_annotations=None):
    """Make a Job, of which its controller makes pods."""
    pod = a_pod("any", gpus=gpus, labels=pod_labels, annotations=pod_annotations, restartPolicy="Never")
    template = {"metadata": {key: pod["metadata"][key] for key in ("labels", "annotations")}, "spec": pod["spec"]}
    metadata = {"annotations": annotations or {}, "labels": labels or {}}
    spec = {"parallelism": parallelism, "completions": parallelism, "template": template}
    return admin.create(an_object("batch/v1", "Job", name, NAMESPACE, metadata=metadata, spec=spec))


def the_pod(admin, name):
    return admin.get(an_object("v1", "Pod", name, NAMESPACE))


def wait_for_job(admin, job, count):
    """Return the pods of a Job, once there are so many and each has a node."""

    def found():
        pods = admin.list("v1", "Pod", NAMESPACE, labelSelector=f"job-name={job['metadata']['name']}")
        return len(pods) == count and all(pod["spec"].get("nodeName") for pod in pods) and pods

    return until(found, f"{count} pods of {job['metadata']['name']} to get nodes")


def wait_for(admin, *names):
    for name in names:
        until(lambda name=name: the_pod(admin, name)["spec"].get("nodeName"), f"pod {name} to get a node")
    return [the_pod(admin, name) for name in names]


def group_of(admin, pod):
    """Return the group that a pod names; that of a pod without an owner may be written after the pod was bound."""
    name = pod["metadata"]["annotations"]["pod-group-name"]
    group = an_object("scheduling.run.ai/v2alpha2", "PodGroup", name, NAMESPACE)
    return until(lambda: admin.find(group), f"group {name}")


def test_a_bare_pod_with_a_queue_label_starts(admin):
    admin.create(a_pod("alone", gpus=1))
    (pod,) = wait_for(admin, "alone")
    group = group_of(admin, pod)
    assert group["spec"] == {"minMember": 1, "priorityClassName": "train", "queue": "team"}
    assert group["metadata"]["name"] == f"pg-alone-{pod['metadata']['uid']}"


def test_a_jobs_pods_start_with_annotated_minimum_and_class(admin):
    job = a_job(
        admin,
        "batch",
        annotations={"kai.scheduler/batch-min-member": "2"},
        labels={"priorityClassName": "build-preemptible"},
        parallelism=3,
        gpus=1,
    )
    pods = wait_for_job(admin, job, 3)
    group = group_of(admin, pods[0])
    assert group["spec"] == {"minMember": 2, "priorityClassName": "build-preemptible", "queue": "team"}
    assert group["metadata"]["name"] == f"pg-batch-{job['metadata']['uid']}"
    assert {group_of(admin, pod)["metadata"]["uid"] for pod in pods} == {group["metadata"]["uid"]}


def test_annotations_of_an_owner_become_fields_of_the_group(admin):
    job = a_job(
        admin,
        "placed",
        annotations={
            "kai.scheduler/topology": "network",
            "kai.scheduler/topology-required-placement": "rack",
            "kai.scheduler/staleness-grace-period": "30s",
            "kai.scheduler/preemption-delay": "2m0s",
        },
        labels={"kai.scheduler/preemptibility": "non-preemptible"},
        gpus=1,
    )
    (pod,) = wait_for_job(admin, job, 1)
    spec = group_of(admin, pod)["spec"]
    assert spec["topologyConstraint"] == {"topology": "network", "requiredTopologyLevel": "rack"}
    assert (spec["stalenessGracePeriod"], spec["preemptionDelay"]) == ("30s", "2m0s")
    assert spec["preemptibility"] == "non-preemptible"


def test_a_users_group_is_kept_with_subgroups_in_racks(admin):
    rack = {"topology": "network", "requiredTopologyLevel": "example.org/rack"}
    parts = [{"name": name, "minMember": 2, "topologyConstraint": rack} for name in ("prefill", "decode")]
    spec = {"queue": "team", "minSubGroup": 2, "subGroups": parts}
    made = admin.create(an_object("scheduling.run.ai/v2alpha2", "PodGroup", "served", NAMESPACE, spec=spec))
    skipped = {"kai.scheduler/skip-podgrouper": "true"}
    jobs = []
    for part in ("prefill", "decode"):
        labels, of_pods = {"kai.scheduler/subgroup-name": part}, {"pod-group-name": "served", **skipped}
        template = {"gpus": 4, "pod_labels": labels, "pod_annotations": of_pods}
        jobs.append(a_job(admin, part, annotations=skipped, parallelism=2, **template))
    pods = [pod for job in jobs for pod in wait_for_job(admin, job, 2)]
    racks = [int(pod["spec"]["nodeName"][1:]) // 2 for pod in pods]
    assert racks[0] == racks[1] != racks[2] == racks[3]
    now = admin.get(made)
    assert (now["spec"], now["metadata"]["uid"]) == (made["spec"], made["metadata"]["uid"])


def test_training_operators_get_a_sub_group_for_each_role(admin):
    template = {"spec": {"containers": [{"name": "pytorch", "image": "none"}]}}
    roles = {"Master": {"replicas": 1, "template": template}, "Worker": {"replicas": 2, "template": template}}
    job = admin.create(
        an_object(
            "kubeflow.org/v1",
            "PyTorchJob",
            "train",
            NAMESPACE,
            metadata={"labels": QUEUE},
            spec={"pytorchReplicaSpecs": roles},
        )
    )
    for name, role, index in (("train-m", "master", 0), ("train-w0", "worker", 0), ("train-w1", "worker", 1)):
        labels = {
            "training.kubeflow.org/job-name": "train",
            "training.kubeflow.org/replica-type": role,
            "training.kubeflow.org/replica-index": str(index),
        }
        admin.create(a_pod(name, gpus=1, owner=job, labels=labels))
    pods = wait_for(admin, "train-m", "train-w0", "train-w1")
    spec = group_of(admin, pods[0])["spec"]
    assert (spec["minMember"], spec["queue"]) == (3, "team")
    assert [(part["name"], part["minMember"]) for part in spec["subGroups"]] == [("master", 1), ("worker", 2)]
    assert [pod["metadata"]["labels"]["kai.scheduler/subgroup-name"] for pod in pods] == ["master", "worker", "worker"]
    admin.delete(job)


def test_shared_gpus_are_held_by_kais_reservation_pods(admin):
    admin.create(a_pod("half", annotations={"gpu-fraction": "0.5"}))
    admin.create(a_pod("memory", annotations={"gpu-memory": "2000"}))
    beside = {"gpu-fraction": "0.25", "gpu-fraction-container-name": "side"}
    admin.create(a_pod("beside", annotations=beside, containers=("main", "side")))
    pods = wait_for(admin, "half", "memory", "beside")
    assert len({pod["metadata"]["labels"]["runai-gpu-group"] for pod in pods}) == 1  # they fit on one device
    assert {pod["metadata"]["annotations"]["received-resource-type"] for pod in pods} == {"Fraction"}
    (reservation,) = admin.list("v1", "Pod", RESERVED)
    variables = {each["name"] for each in pods[0]["spec"]["containers"][0]["env"]}
    assert "NVIDIA_VISIBLE_DEVICES" in variables  # admission put it there, from the config map that the binder makes
    (container,) = reservation["spec"]["containers"]
    assert (container["image"], container["args"]) == (IMAGE, ["reserve"])
    assert reservation["metadata"]["labels"]["runai-gpu-group"] == pods[0]["metadata"]["labels"]["runai-gpu-group"]


def test_a_reservation_pod_reports_its_gpu_and_ends(plane, admin, tmp_path):
    account = plane.account(RESERVED, "kai-resource-reservation")
    config = plane.kubeconfig(account, "reservation")
    secure = {
        "runAsNonRoot": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    # It has no node: the kubelet of these tests must not be quicker than the program.
    body = {"schedulerName": "nobody", "containers": [{"name": "hold", "image": "none", "securityContext": secure}]}
    pod = an_object("v1", "Pod", "held", RESERVED, spec=body)
    admin.create(pod)
    variables = (f"KUBECONFIG={config}", "POD_NAME=held", f"POD_NAMESPACE={RESERVED}")
    command = ("env", *variables, sys.executable, "-m", "kai", "reserve", "--device=GPU-1234")
    program = Daemon(command, tmp_path / "reserve.log")
    program.start()
    try:
        until(lambda: admin.get(pod)["metadata"].get("annotations", {}).get(DEVICE) == "GPU-1234", "the annotation")
        assert program.pid
    finally:
        program.stop()
        admin.delete(pod, gracePeriodSeconds=0)
    assert "Traceback" not in program.tail(100)


def test_queues_with_the_peers_fields_get_a_status(admin):
    spec = {
        "displayName": "Research",
        "parentQueue": "top",
        "priority": 200,
        "preemptMinRuntime": "10m",
        "reclaimMinRuntime": "5m",
        "resources": {
            "gpu": {"quota": 2, "limit": 4, "overQuotaWeight": 2},
            "cpu": {"quota": 1000, "limit": -1, "overQuotaWeight": 1},
            "memory": UNLIMITED,
        },
    }
    queue = an_object("scheduling.run.ai/v2", "Queue", "research", spec=spec)
    assert admin.create(queue)["spec"] == spec
    admin.create(a_pod("asks", gpus=1, labels={"kai.scheduler/queue": "research"}))
    wait_for(admin, "asks")

    def counted():
        return admin.get(queue).get("status", {}).get("allocated", {}).get(GPU) == "1"

    until(counted, "the queue to count its pod")
    admin.delete(queue)


def test_a_group_exceeding_its_sub_groups_causes_a_warning(admin):
    seen = len(admin.warnings)
    admin.create(greedy())
    (warning,) = admin.warnings[seen:]
    assert "minSubGroup (5) exceeds the number of direct child SubGroups (4)" in warning


def test_kai_made_no_forbidden_call_or_invalid_write(plane, admin):
    assert refused_calls(plane) == []
    assert [event for event in admin.list("v1", "Event", NAMESPACE) if "is invalid" in json.dumps(event)] == []
