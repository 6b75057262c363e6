"""The light roles of kai on a real API server, each with its own account: from a pod to its status.

The scheduler is not here; tests write the bind requests that it would.
"""

import time
from collections.abc import Iterator

import attrs
import pytest
from anyio.from_thread import start_blocking_portal

from kai.cluster.election.lease import LeaseSettings
from tests.integration import controlplane
from tests.integration.client import STRATEGIC, Api, until
from tests.integration.controlplane import ControlPlane
from tests.integration.installation import CRDS
from tests.integration.kubelet import RESERVED, Kubelet
from tests.integration.roles import ROLES, Roles

SPACE = "services"
POD_GROUP = "scheduling.run.ai/v2alpha2"
QUEUE = "scheduling.run.ai/v2"
# One test has a pod whose owner is not there: the garbage collector would take the pod away.
CONTROLLERS = tuple(name for name in controlplane.CONTROLLERS if name != "garbage-collector")


@attrs.define
class World:
    plane: ControlPlane
    api: Api
    kubelet: Kubelet
    roles: Roles

    def queue_status(self, name):
        return self.find(QUEUE, "Queue", name).get("status", {})

    def find(self, version, kind, name, namespace=SPACE):
        return self.api.get({"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}})

    def pod(self, name):
        return self.find("v1", "Pod", name)

    def group_name(self, name):
        return self.pod(name)["metadata"].get("annotations", {}).get("pod-group-name")

    def owned(self, owner):
        """Return the names of the pods that a controller made for an object, once there are some."""

        def found():
            pods = self.api.list("v1", "Pod", SPACE)
            owners = {pod["metadata"]["name"]: pod["metadata"].get("ownerReferences", ()) for pod in pods}
            return sorted(name for name, refs in owners.items() if any(ref["name"] == owner for ref in refs))

        return until(found, f"pods of {owner}")

    def group(self, name):
        """Return the group of a pod, once the pod has one."""
        group = until(lambda: self.group_name(name), f"a group of pod {name}")
        metadata = {"name": group, "namespace": SPACE}
        return until(
            lambda: self.api.find({"apiVersion": POD_GROUP, "kind": "PodGroup", "metadata": metadata}), f"group {group}"
        )

    def resources(self, name):
        return self.group(name).get("status", {}).get("resourcesStatus", {})

    def request(self, name):
        return self.find("scheduling.run.ai/v1alpha2", "BindRequest", name).get("status", {})

    def phase(self, name):
        return self.pod(name)["status"]["phase"]

    def reservations(self):
        return self.api.list("v1", "Pod", RESERVED)

    def order(self, pod, node="n1", **spec):
        """Write the bind request that the scheduler would write."""
        metadata = pod["metadata"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
        self.api.create(
            {
                "apiVersion": "scheduling.run.ai/v1alpha2",
                "kind": "BindRequest",
                "metadata": {"name": metadata["name"], "namespace": SPACE, "ownerReferences": [owner]},
                "spec": {
                    "podName": metadata["name"],
                    "selectedNode": node,
                    "receivedResourceType": "Regular",
                    **spec,
                },
            }
        )

    def order_share(self, pod, group, node="n1", portion="0.50"):
        received = {"count": 1, "portion": portion}
        self.order(
            pod, node, receivedResourceType="Fraction", receivedGPU=received, selectedGPUGroups=[group], backoffLimit=1
        )


@pytest.fixture(scope="module")
def world(control_plane: ControlPlane) -> Iterator[World]:
    api = control_plane.admin
    control_plane.define(CRDS)
    api.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SPACE}})
    for name in ("n1", "n2"):
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        api.ensure(node)
        amounts = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "2"}
        api.patch(node, {"status": {"allocatable": amounts, "capacity": amounts}}, subresource="status")
    kubelet = Kubelet(api, control_plane.account(RESERVED, RESERVED))
    kubelet.start()
    with start_blocking_portal() as portal:
        roles = Roles(control_plane, portal)
        roles.start()
        try:
            yield World(control_plane, api, kubelet, roles)
        finally:
            roles.stop()
            for pod in api.list("v1", "Pod"):
                api.delete(pod, gracePeriodSeconds=0)
            kubelet.stop()


@pytest.fixture(autouse=True)
def nothing_left(world: World) -> Iterator[None]:
    """Take away what a test made, so that the next one finds whole nodes."""
    yield
    world.kubelet.is_paused = False
    owners = (("batch/v1", "Job"), *(("apps/v1", kind) for kind in ("Deployment", "ReplicaSet", "StatefulSet")))
    ours = (("scheduling.run.ai/v1alpha2", "BindRequest"), (POD_GROUP, "PodGroup"))
    for version, kind in (*owners, ("v1", "Pod"), *ours):
        for manifest in world.api.list(version, kind, SPACE):
            world.api.delete(manifest, gracePeriodSeconds=0, propagationPolicy="Background")
    until(lambda: not world.reservations() and not world.api.list("v1", "Pod", "kai-scale-adjust"), "an empty cluster")


@pytest.fixture(autouse=True)
def nothing_forbidden(world: World) -> Iterator[None]:
    """Fail a test in which a role asks for what its rights do not allow, or ends by itself."""
    known = len(world.plane.audited())
    yield
    forbidden = [
        (event["user"]["username"], event["verb"], event["requestURI"])
        for event in world.plane.audited()[known:]
        if event.get("responseStatus", {}).get("code") == 403 and event.get("userAgent", "").startswith("kai/")
    ]
    assert not forbidden
    assert not [name for name, future in world.roles.running.items() if future.done()]


def pod(name, owner=None, annotations=None, labels=None, requests=None):
    metadata = {"name": name, "namespace": SPACE, "annotations": annotations or {}, "labels": labels or {}}
    if owner is not None:
        metadata["ownerReferences"] = [reference(owner)]
    container = {"name": "main", "image": "none", "resources": {"requests": requests or {"cpu": "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "kai-scheduler", "containers": [container]},
    }


def reference(owner):
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }


def sharing_pod(name, fraction="0.5"):
    return pod(name, annotations={"gpu-fraction": fraction, "runai/shared-gpu-configmap": f"{name}-abc1234-shared-gpu"})


def thing(version, kind, name, owner=None, labels=None, **fields):
    metadata = {"name": name, "namespace": SPACE, "labels": labels or {}}
    if owner is not None:
        metadata["ownerReferences"] = [reference(owner)]
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
SELECTOR = {"matchLabels": {"a": "b"}}
OURS = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "schedulerName": "kai-scheduler"}}


# --- One pod -------------------------------------------------------------------------------------------------------


def test_a_pod_is_grouped_bound_as_ordered_and_counted(world):
    first = {"default-queue", "default-parent-queue"}
    until(lambda: {each["metadata"]["name"] for each in world.api.list(QUEUE, "Queue")} == first, "the first queues")
    created = world.api.create(pod("single", labels={"kai.scheduler/queue": "default-queue"}))
    group = world.group("single")
    assert group["metadata"]["name"] == f"pg-single-{created['metadata']['uid']}"
    assert (group["spec"]["minMember"], group["spec"]["queue"]) == (1, "default-queue")
    until(lambda: world.resources("single").get("requested") == {"cpu": "1"}, "what the pod asks for")
    world.order(created)
    until(lambda: world.phase("single") == "Running", "the pod to run")
    assert world.pod("single")["spec"]["nodeName"] == "n1"
    until(lambda: world.request("single").get("phase") == "Succeeded", "the outcome of the bind request")
    until(lambda: world.resources("single").get("allocated") == {"cpu": "1"}, "what the pod holds")
    for queue in ("default-queue", "default-parent-queue"):
        until(
            lambda queue=queue: world.queue_status(queue).get("allocated") == {"cpu": "1"},
            f"what {queue} holds",
        )
    assert world.queue_status("default-parent-queue")["childQueues"] == ["default-queue"]

    def events():
        return world.api.list("v1", "Event", SPACE, fieldSelector="involvedObject.name=single")

    told = until(events, "an event")
    assert [(event["reason"], event["source"]["component"]) for event in told] == [("Bound", "binder")]
    world.api.delete(created)
    until(lambda: "allocated" not in world.queue_status("default-parent-queue"), "the queue to be empty")


def test_a_failed_bind_is_reported_on_request_and_pod(world):
    created = world.api.create(pod("nowhere"))
    world.order(created, "no-such-node")
    until(lambda: world.request("nowhere").get("phase") == "Failed", "the outcome")
    assert "does not exist" in world.request("nowhere")["reason"]

    def reasons():
        return {each["type"]: each["reason"] for each in world.pod("nowhere")["status"].get("conditions", ())}

    assert until(lambda: reasons().get("PodBound"), "the condition") == "BindingError"


def test_a_pod_with_a_missing_owner_gets_one_warning(world):
    ghost = thing("batch/v1", "Job", "ghost")
    ghost["metadata"]["uid"] = "2f4a3a41-6a2a-4a0c-8f5f-3f1f0a0f7c11"
    world.api.create(pod("orphan", ghost))

    def warning():
        events = world.api.list("v1", "Event", SPACE, fieldSelector="involvedObject.name=orphan")
        return [event for event in events if event["reason"] == "PodGrouperWarning"]

    (event, *more) = until(warning, "a warning")
    assert not more
    assert (event["type"], event["source"]["component"]) == ("Warning", "pod-grouper")
    assert "ghost" in event["message"]


# --- Shared GPUs ---------------------------------------------------------------------------------------------------


def test_two_halves_share_a_gpu_and_a_third_fails(world):
    pods = {name: world.api.create(sharing_pod(name)) for name in ("half-a", "half-b", "half-c")}
    for name in pods:
        world.group(name)  # a pod that is grouped while it is being bound is refused, and there is one attempt only
    for name in ("half-a", "half-b"):
        world.order_share(pods[name], "group-1")
    for name in ("half-a", "half-b"):
        until(lambda name=name: world.phase(name) == "Running", f"{name} to run")
    (reservation,) = world.reservations()
    device = reservation["metadata"]["annotations"]["run.ai/reserve_for_gpu_index"]
    for name in ("half-a", "half-b"):
        assert world.pod(name)["metadata"]["labels"]["runai-gpu-group"] == "group-1"
        maps = {each["metadata"]["name"]: each for each in world.api.list("v1", "ConfigMap", SPACE)}
        assert maps[f"{name}-abc1234-shared-gpu-0-evar"]["data"]["NVIDIA_VISIBLE_DEVICES"] == device
        assert maps[f"{name}-abc1234-shared-gpu-0"]["data"]["GPU_PORTION"] == "0.50"
        until(lambda name=name: "nvidia.com/gpu" in world.resources(name).get("allocated", {}), "its share")
        assert world.resources(name)["allocated"]["nvidia.com/gpu"] == "500m"
    world.order_share(pods["half-c"], "group-1")
    until(lambda: world.request("half-c").get("phase") == "Failed", "the third to be refused")
    assert not world.pod("half-c")["spec"].get("nodeName")
    for created in pods.values():
        world.api.delete(created)
    until(lambda: not world.reservations(), "the GPU to be given back")


def test_a_binder_stopped_during_a_bind_is_continued(world):
    created = world.api.create(sharing_pod("middle"))
    world.group("middle")
    world.kubelet.is_paused = True
    try:
        world.order_share(created, "group-2", "n2")
        until(world.reservations, "a reservation")
        world.roles.stop("binder")
    finally:
        world.kubelet.is_paused = False
    world.roles.start("binder")
    until(lambda: world.phase("middle") == "Running", "the pod to run")
    assert len(world.reservations()) == 1
    world.api.delete(created)
    until(lambda: not world.reservations(), "the GPU to be given back")


def test_a_second_binder_binds_once_the_first_stops(world):
    def lease(name):
        return LeaseSettings(
            namespace="kai-scheduler", name="binder", identity=name, duration=6.0, renew_within=4.5, retry=0.5
        )

    world.roles.stop("binder")
    try:
        world.roles.start_as("first", "binder", lease("first"))
        for number, leader in enumerate(("first", "second")):
            if leader == "second":
                world.roles.start_as("second", "binder", lease("second"))
                world.roles.stop("first")
            name = f"led-{number}"
            created = world.api.create(pod(name))
            world.order(created)
            until(lambda name=name: world.phase(name) == "Running", f"the {leader} binder to bind")
            assert world.find("coordination.k8s.io/v1", "Lease", "binder", "kai-scheduler")["spec"][
                "holderIdentity"
            ].startswith(leader)
            world.api.delete(created)
    finally:
        world.roles.stop(*({"first", "second"} & set(world.roles.running)))
        world.roles.start("binder")


# --- Workloads -----------------------------------------------------------------------------------------------------


def test_the_pods_of_a_job_are_one_group(world):
    job = world.api.create(thing("batch/v1", "Job", "job", spec={"template": restart(OURS), "parallelism": 2}))
    until(lambda: len(world.owned("job")) == 2, "both pods")
    groups = [world.group(name) for name in world.owned("job")]
    assert {each["metadata"]["name"] for each in groups} == {f"pg-job-{job['metadata']['uid']}"}
    assert groups[0]["spec"]["minMember"] == 1


def test_each_deployment_pod_has_its_own_group(world):
    world.api.create(thing("apps/v1", "Deployment", "web", spec={"selector": SELECTOR, "template": OURS}))
    (replicas,) = until(lambda: world.api.list("apps/v1", "ReplicaSet", SPACE), "the ReplicaSet of the Deployment")
    (name,) = world.owned(replicas["metadata"]["name"])
    group = world.group(name)
    assert group["metadata"]["name"] == f"pg-{name}-{world.pod(name)['metadata']['uid']}"
    assert group["spec"]["priorityClassName"] == "inference"


def test_a_pytorch_job_is_a_gang_with_role_subgroups(world):
    roles = {"Master": {"replicas": 1, "template": TEMPLATE}, "Worker": {"replicas": 3, "template": TEMPLATE}}
    job = world.api.create(thing("kubeflow.org/v1", "PyTorchJob", "torch", spec={"pytorchReplicaSpecs": roles}))
    world.api.create(pod("torch-master-0", job, labels={"training.kubeflow.org/replica-type": "master"}))
    world.api.create(pod("torch-worker-0", job, labels={"training.kubeflow.org/replica-type": "worker"}))
    group = world.group("torch-worker-0")
    assert group["spec"]["minMember"] == 4
    assert {each["name"]: each["minMember"] for each in group["spec"]["subGroups"]} == {"master": 1, "worker": 3}
    assert world.pod("torch-worker-0")["metadata"]["labels"]["kai.scheduler/subgroup-name"] == "worker"
    assert world.group("torch-master-0")["metadata"]["uid"] == group["metadata"]["uid"]
    # An elastic policy that is set later reaches the group with the next pod.
    world.api.patch(job, {"spec": {"elasticPolicy": {"minReplicas": 2}}})
    world.api.create(pod("torch-worker-1", job, labels={"training.kubeflow.org/replica-type": "worker"}))
    until(lambda: world.group("torch-worker-1")["spec"]["minMember"] == 2, "the new minimum")


def test_a_ray_clusters_gang_has_head_and_workers(world):
    spec = {
        "headGroupSpec": {"template": TEMPLATE},
        "workerGroupSpecs": [{"groupName": "small", "replicas": 2, "minReplicas": 2, "template": TEMPLATE}],
    }
    cluster = world.api.create(thing("ray.io/v1", "RayCluster", "ray", spec=spec))
    world.api.create(pod("ray-head", cluster, labels={"ray.io/group": "headgroup"}))
    group = world.group("ray-head")
    assert group["spec"]["minMember"] == 3
    assert [each["name"] for each in group["spec"]["subGroups"]] == ["headgroup", "small"]


def test_a_job_set_is_a_tree_over_its_jobs(world):
    replicated = {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 3}}}
    job_set = world.api.create(
        thing("jobset.x-k8s.io/v1alpha2", "JobSet", "set", spec={"replicatedJobs": [replicated]})
    )
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "workers", "jobset.sigs.k8s.io/job-index": "1"}
    spec = {"template": restart(labelled(**labels)), "parallelism": 3}
    world.api.create(thing("batch/v1", "Job", "set-workers-1", job_set, spec=spec))
    name = world.owned("set-workers-1")[0]
    group = world.group(name)
    assert group["spec"]["minSubGroup"] == 1
    assert [each["name"] for each in group["spec"]["subGroups"]] == [
        "workers",
        "workers-replica-0",
        "workers-replica-1",
    ]
    assert world.pod(name)["metadata"]["labels"]["kai.scheduler/subgroup-name"] == "workers-replica-1"


def test_each_leader_worker_set_replica_is_a_gang(world):
    spec = {"replicas": 1, "leaderWorkerTemplate": {"size": 3, "workerTemplate": TEMPLATE}}
    owner = world.api.create(thing("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "lws", spec=spec))
    index = "leaderworkerset.sigs.k8s.io/worker-index"
    labels = {"leaderworkerset.sigs.k8s.io/group-index": "0", index: "0"}
    sts = {"selector": SELECTOR, "template": labelled(**labels), "serviceName": "lws"}
    world.api.create(thing("apps/v1", "StatefulSet", "lws", owner, spec=sts))
    group = world.group(*world.owned("lws"))
    working = {**sts, "selector": {"matchLabels": {index: "1"}}, "template": labelled(**{**labels, index: "1"})}
    leader = {"apiVersion": "v1", "kind": "Pod", **world.pod("lws-0")}
    world.api.create(
        thing("apps/v1", "StatefulSet", "lws-0", leader, spec={**working, "replicas": 1, "ordinals": {"start": 1}})
    )
    until(lambda: world.owned("lws-0") == ["lws-0-1"], "the worker")
    assert group["metadata"]["name"] == f"pg-lws-{owner['metadata']['uid']}-group-0"
    assert {each["name"]: each["minMember"] for each in group["spec"]["subGroups"]} == {"leader": 1, "workers": 2}
    assert world.group("lws-0-1")["metadata"]["uid"] == group["metadata"]["uid"]
    assert world.pod("lws-0-1")["metadata"]["labels"]["kai.scheduler/subgroup-name"] == "workers"


def labelled(**labels):
    return {**OURS, "metadata": {"labels": {"a": "b", **labels}}}


def restart(template):
    return {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}


# --- Scaling, and rest ---------------------------------------------------------------------------------------------


def test_an_unplaced_share_has_a_scaling_pod_meanwhile(world):
    created = world.api.create(sharing_pod("squeezed"))
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    world.api.patch(created, {"status": {"conditions": [condition]}}, subresource="status", content_type=STRATEGIC)
    (scaling,) = until(lambda: world.api.list("v1", "Pod", "kai-scale-adjust"), "a scaling pod")
    assert scaling["metadata"]["name"] == f"{SPACE}-squeezed"
    until(
        lambda: any(
            condition["reason"] == "Unschedulable"
            for each in world.api.list("v1", "Pod", "kai-scale-adjust")
            for condition in each["status"].get("conditions", ())
        ),
        "its mark",
    )
    world.api.delete(created, gracePeriodSeconds=0)
    until(lambda: not world.api.list("v1", "Pod", "kai-scale-adjust"), "the scaling pod to go")


def test_a_bare_pod_costs_two_writes_a_member_one(world):
    user = "system:serviceaccount:kai-scheduler:podgrouper"
    spec = {"template": restart(OURS), "parallelism": 8, "completions": 8}
    world.api.create(thing("batch/v1", "Job", "gang", spec=spec))
    world.api.create(pod("lone"))
    until(lambda: len(world.owned("gang")) == 8, "the pods of the job")
    names = ("lone", *world.owned("gang"))
    ours = (*names, *(world.group(name)["metadata"]["name"] for name in names))

    def about_these():
        """Leave out what is still written about pods of the tests before."""
        return [event for event in written(world, user) if event["objectRef"].get("name", "").startswith(ours)]

    until(lambda: len(about_these()) >= 11, "eleven writes")
    at_rest(world, user)
    assert len(about_these()) == 11


def test_nothing_is_written_while_nothing_happens(world):
    world.api.create(pod("quiet"))
    world.group("quiet")
    at_rest(world, *(f"system:serviceaccount:kai-scheduler:{name}" for name in ROLES))


def at_rest(world, *users):
    """Wait until these users have written nothing for three seconds."""
    quiet_since, before = time.monotonic(), len(written(world, *users))

    def is_quiet():
        nonlocal quiet_since, before
        now = len(written(world, *users))
        if now != before:
            quiet_since, before = time.monotonic(), now
        return time.monotonic() - quiet_since > 3.0

    until(is_quiet, "three seconds without a write", every=0.2)


def written(world, *users):
    """Return what users wrote so far; a retry of what failed for good is not what these tests are about."""
    return [
        event
        for event in world.plane.audited()
        if event["user"]["username"] in users and event["verb"] in {"create", "update", "patch", "delete"}
    ]
