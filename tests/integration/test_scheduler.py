"""The scheduler as a program against a real API server, under its own account and the rights that are shipped."""

import itertools
import json

import attrs
import pytest

from tests.integration import processes
from tests.integration.client import Api, until
from tests.integration.controlplane import ControlPlane
from tests.integration.processes import fetch

USER = "system:serviceaccount:kai-scheduler:scheduler"
NUMBERS = itertools.count(1)
SHARES = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
NODE = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "4"}


def an_object(version, kind, name, **body):
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **body.pop("metadata", {})}, **body}


def queue(name, parent=""):
    resources = dict.fromkeys(("cpu", "memory", "gpu"), SHARES)
    return an_object("scheduling.run.ai/v2", "Queue", name, spec={"parentQueue": parent, "resources": resources})


def group(name, **spec):
    body = {"queue": "team", "minMember": 1, **spec}
    return an_object("scheduling.run.ai/v2alpha2", "PodGroup", name, spec=body)


def pod(name, group_name, gpus=1):
    limits = {"limits": {"nvidia.com/gpu": str(gpus)}, "requests": {"nvidia.com/gpu": str(gpus)}}
    container = {"name": "main", "image": "none", "resources": limits}
    spec = {"schedulerName": "kai-scheduler", "containers": [container]}
    return an_object("v1", "Pod", name, metadata={"annotations": {"pod-group-name": group_name}}, spec=spec)


def running(plane, tmp_path, *flags, name="scheduler"):
    """Run the scheduler; what it wrote to its log is shown when a test fails."""
    account = plane.account("kai-scheduler", "scheduler")
    return processes.running(plane, account, tmp_path, name, "scheduler", flags=flags)


@attrs.frozen
class Cluster:
    """The administrator's view of a namespace that no other test knows, in a cluster with two nodes and a queue."""

    plane: ControlPlane
    admin: Api
    space: str
    audited_before: int

    def placed(self, manifest):
        """Return the manifest, in our namespace if its kind has any."""
        if manifest["kind"] in {"Queue", "Node", "Namespace", "Lease"}:
            return manifest
        return {**manifest, "metadata": {**manifest["metadata"], "namespace": self.space}}

    def create(self, manifest):
        return self.admin.create(self.placed(manifest))

    def get(self, manifest):
        return self.admin.get(self.placed(manifest))

    def delete(self, manifest):
        self.admin.delete(self.placed(manifest), gracePeriodSeconds=0)

    def bind(self, made, node):
        binding = an_object("v1", "Binding", made["metadata"]["name"], target={"kind": "Node", "name": node})
        self.admin.request("POST", self.admin.path(made, "binding"), self.placed(binding))

    def set_status(self, manifest, **status):
        self.admin.patch(self.placed(manifest), {"status": status}, subresource="status")

    def pods(self):
        return self.admin.list("v1", "Pod", self.space)

    def requests(self):
        found = self.admin.list("scheduling.run.ai/v1alpha2", "BindRequest", self.space)
        return {each["metadata"]["name"]: each for each in found}

    def events(self, name, reason):
        found = self.admin.list("v1", "Event", self.space)
        return [each for each in found if each["involvedObject"]["name"] == name and each["reason"] == reason]

    def condition(self, name):
        conditions = self.get(an_object("v1", "Pod", name))["status"].get("conditions", [])
        return next((each for each in conditions if each["type"] == "PodScheduled"), None)

    def forbidden(self):
        """Return what the scheduler asked for in this test without having the right."""
        return [
            (event["verb"], event["requestURI"])
            for event in self.plane.audited(USER)[self.audited_before :]
            if event["responseStatus"]["code"] == 403 and "secrets" not in event["requestURI"]
        ]

    def writes(self):
        """Return what the scheduler has written so far, in all tests."""
        verbs = {"create", "update", "patch", "delete"}
        return [
            (each["verb"], each["requestURI"])
            for each in self.plane.audited(USER)
            if each["verb"] in verbs and "/leases/" not in each["requestURI"]
        ]


@pytest.fixture
def cluster(control_plane):
    """Give a test a namespace of its own; whatever it made that others could see is taken away."""
    admin = control_plane.admin
    space = f"scheduling-{next(NUMBERS)}"
    admin.create(an_object("v1", "Namespace", space))
    for manifest in (queue("top"), queue("team", "top")):
        admin.apply(manifest)
    for name in ("n1", "n2"):
        node = an_object("v1", "Node", name)
        admin.ensure(node)
        admin.patch(node, {"status": {"allocatable": NODE, "capacity": NODE}}, subresource="status")
    yield Cluster(control_plane, admin, space, len(control_plane.audited(USER)))
    for version, kind in (
        ("v1", "Pod"),
        ("scheduling.run.ai/v2alpha2", "PodGroup"),
        ("scheduling.run.ai/v1alpha2", "BindRequest"),
        ("scheduling.run.ai/v2", "Queue"),
    ):
        for manifest in admin.list(version, kind):
            admin.delete(manifest, gracePeriodSeconds=0)


def test_pods_are_bound_explained_and_gangs_wait_whole(control_plane, cluster, tmp_path):
    with running(control_plane, tmp_path) as scheduler:
        cluster.create(group("lone"))
        cluster.create(pod("lone-0", "lone"))
        request = until(lambda: cluster.requests().get("lone-0"), "a bind request")
        made = cluster.get(an_object("v1", "Pod", "lone-0"))
        assert request["spec"] == {
            "podName": "lone-0",
            "selectedNode": request["spec"]["selectedNode"],
            "receivedResourceType": "Regular",
            "receivedGPU": {"count": 1, "portion": "1.00"},
        }
        assert request["metadata"]["labels"] == {"selected-node": request["spec"]["selectedNode"]}
        assert [owner["uid"] for owner in request["metadata"]["ownerReferences"]] == [made["metadata"]["uid"]]
        assert not cluster.events("lone-0", "Scheduled")
        cluster.bind(made, request["spec"]["selectedNode"])
        until(lambda: cluster.events("lone-0", "Scheduled"), "the event")
        until(
            lambda: (
                "kai.scheduler/last-start-timestamp" in cluster.get(group("lone"))["metadata"].get("annotations", {})
            ),
            "the time of the start",
        )

        # A gang of which one pod is missing waits and says so; it starts as a whole.
        for number in range(2):
            cluster.create(pod(f"gang-{number}", "gang", gpus=2))
        cluster.create(group("gang", minMember=3))
        text = "Job is not ready for scheduling. Waiting for 3 pods, currently 2 exist, 0 are gated"
        until(lambda: text in {each["message"] for each in cluster.events("gang", "NotReady")}, "the event NotReady")
        assert not [name for name in cluster.requests() if name.startswith("gang")]
        cluster.create(pod("gang-2", "gang", gpus=2))
        until(lambda: len([name for name in cluster.requests() if name.startswith("gang")]) == 3, "the whole gang")

        # What fits nowhere is told why: on the pod, on the group, by events.
        cluster.create(group("large"))
        cluster.create(pod("large-0", "large", gpus=3))
        condition = until(lambda: cluster.condition("large-0"), "the condition")
        assert (condition["status"], condition["reason"]) == ("False", "Unschedulable")
        why = "no nodes with enough resources were found: 2 node(s) didn't have enough resources: GPUs."
        assert condition["message"] == why
        (event,) = until(lambda: cluster.events("large-0", "Unschedulable"), "the event on the pod")
        assert (event["type"], event["message"]) == ("Warning", why)
        until(lambda: cluster.events("large", "Unschedulable"), "the event on the group")
        written = until(
            lambda: cluster.get(group("large")).get("status", {}).get("schedulingConditions"), "the condition"
        )
        assert [(each["type"], each["nodePool"], each["transitionID"]) for each in written] == [
            ("UnschedulableOnNodePool", "default", "1")
        ]
        until(lambda: fair_share(cluster, "team").get("nvidia.com/gpu") == "8", "the fair share")

        for line in (
            'kai_binds_total{result="ordered"} 4.0',
            'kai_podgroups_scheduled_by_action{action="allocate"} 2.0',
        ):
            until(lambda line=line: line in fetch(scheduler.metrics_port, "/metrics").decode(), line)
        assert fetch(scheduler.probes_port, "/livez") == b"ok"

        archive = tmp_path / "snapshot.zip"
        archive.write_bytes(fetch(scheduler.plugins_port, "/get-snapshot"))
        order = json.loads(fetch(scheduler.plugins_port, "/get-job-order"))
    assert [job["id"] for job in order["global_order"]] == ["large"]
    assert cluster.forbidden() == []
    assert {"gang-0", "lone-0", "large-0"} <= replayed(archive)


def fair_share(cluster, name):
    return cluster.get(queue(name)).get("status", {}).get("fairShare", {})


def replayed(archive):
    """Return the names of the pods in a snapshot, as our own simulation reads it."""
    from kai.lab.sources.archive import read_archive

    return {each.metadata.name for each in read_archive(archive, "snapshot").objects.pods}


def test_a_failed_bind_is_taken_back_and_tried_again(control_plane, cluster, tmp_path):
    with running(control_plane, tmp_path):
        cluster.create(group("retry"))
        cluster.create(pod("retry-0", "retry"))
        first = until(lambda: cluster.requests().get("retry-0"), "a bind request")
        cluster.set_status(first, phase="Failed", reason="no luck", failedAttempts=1)
        uid = first["metadata"]["uid"]

        def another():
            found = cluster.requests().get("retry-0")
            return found if found is not None and found["metadata"]["uid"] != uid else None

        until(another, "another bind request")


def test_a_pod_refused_for_room_goes_to_another_node(control_plane, cluster, tmp_path):
    with running(control_plane, tmp_path):
        cluster.create(group("turned-away"))
        cluster.create(pod("turned-away-0", "turned-away"))
        tried = []
        for _ in range(2):
            order = until(
                lambda: (
                    (found := cluster.requests().get("turned-away-0"))
                    and found["spec"]["selectedNode"] not in tried
                    and found
                ),
                "a bind request for a node that has not refused the pod",
            )
            node = order["spec"]["selectedNode"]
            tried.append(node)
            why = f"node {node} has 0 of nvidia.com/gpu left, the pod needs 1"
            cluster.set_status(order, phase="Failed", reason=why, failedAttempts=1)
        message = until(lambda: unschedulable(cluster, "turned-away-0"), "a pod that is told why it waits")
        assert all(f"refused it: node {node} has 0 of nvidia.com/gpu left" in message for node in tried)


def unschedulable(cluster, name):
    """Return the message of the condition of a pod that no node takes; "" if there is none."""
    (found,) = [each for each in cluster.pods() if each["metadata"]["name"] == name]
    conditions = found.get("status", {}).get("conditions", [])
    return next((each["message"] for each in conditions if each.get("reason") == "Unschedulable"), "")


def test_a_small_cluster_is_scheduled_without_compiled_kernels(control_plane, cluster, tmp_path):
    account, kernels = control_plane.account("kai-scheduler", "scheduler"), tmp_path / "kernels"
    nowhere = {"NUMBA_CACHE_DIR": str(kernels)}
    program = processes.start(control_plane, account, tmp_path, "fresh", "scheduler", environment=nowhere)
    with processes.shown(program.daemon):
        processes.wait(program)
        cluster.create(group("first"))
        cluster.create(pod("first-0", "first"))
        until(lambda: cluster.requests().get("first-0"), "a bind request")
        assert not list(kernels.rglob("*"))
        assert b"compiling" not in fetch(program.probes_port, "/readyz")


def test_an_idle_or_restarted_scheduler_writes_nothing(control_plane, cluster, tmp_path):
    cluster.create(group("large"))
    cluster.create(pod("large-0", "large", gpus=5))
    with running(control_plane, tmp_path, name="first") as scheduler:
        until(lambda: cluster.events("large", "Unschedulable"), "an explanation")
        until(lambda: b"kai_cycle_duration_seconds_count" in fetch(scheduler.metrics_port, "/metrics"), "metrics")
        before = settled(cluster, scheduler)
        settle(scheduler)
        assert cluster.writes() == before
    with running(control_plane, tmp_path, name="second") as scheduler:
        settle(scheduler)
        assert cluster.writes() == before


def settled(cluster, scheduler):
    """Return what is written once two cycles in a row wrote nothing more."""
    before = None
    for _ in range(10):
        settle(scheduler)
        now = cluster.writes()
        if now == before:
            return now
        before = now
    raise AssertionError(f"it does not come to rest; last written: {before[-5:]}")


def settle(scheduler):
    """Wait until one more cycle is over; one at rest comes every ten seconds."""
    start = scheduler.cycles()
    until(lambda: scheduler.cycles() > start, "one more cycle")


def test_the_second_replica_leads_once_the_first_stops(control_plane, cluster, tmp_path):
    flags = ("--leader-elect", "--leader-elect-lease-duration=60s")  # a busy machine must not lose it for us
    lease = an_object("coordination.k8s.io/v1", "Lease", "kai-scheduler", metadata={"namespace": "kai-scheduler"})
    with running(control_plane, tmp_path, *flags, name="one") as first:
        cluster.create(group("early"))
        cluster.create(pod("early-0", "early"))
        early = until(lambda: cluster.requests().get("early-0"), "a bind request")
        leader = cluster.get(lease)["spec"]["holderIdentity"]
        epoch = int(early["metadata"]["annotations"]["kai.scheduler/epoch"])
        with running(control_plane, tmp_path, *flags, name="two"):
            assert cluster.get(lease)["spec"]["holderIdentity"] == leader
            first.daemon.stop()
            cluster.create(group("late"))
            cluster.create(pod("late-0", "late"))
            late = until(lambda: cluster.requests().get("late-0"), "a bind request of the next leader")
            assert int(late["metadata"]["annotations"]["kai.scheduler/epoch"]) > epoch


def test_a_queue_takes_back_what_is_its_own(control_plane, cluster, tmp_path):
    for name in ("lender", "owner"):
        made = queue(name, "top")
        made["spec"]["resources"]["gpu"] = {"quota": 4, "limit": -1, "overQuotaWeight": 1}
        cluster.create(made)
    for at in range(8):
        cluster.create(group(f"held-{at}", queue="lender"))
        running_pod = pod(f"held-{at}-0", f"held-{at}")
        running_pod["spec"]["nodeName"] = "n1" if at < 4 else "n2"
        cluster.create(running_pod)
        cluster.set_status(running_pod, phase="Running")
    cluster.create(group("claims", queue="owner"))
    cluster.create(pod("claims-0", "claims", gpus=2))
    with running(control_plane, tmp_path):

        def leaving():
            pods = cluster.pods()
            return [each["metadata"]["name"] for each in pods if "deletionTimestamp" in each["metadata"]]

        victims = until(lambda: len(leaving()) >= 2 and leaving(), "two pods to be evicted")
        victim = victims[0].removesuffix("-0")
        (event,) = until(lambda: cluster.events(victim, "Evict"), "the event on the victim's group")
        text = f"Pod {cluster.space}/{victim}-0 was preempted by workload {cluster.space}/claims."
        assert event["message"].startswith(text)
        assert event["metadata"]["annotations"] == {
            "num-evicted-pods": "1",
            "evictor-action-type": "reclaim",
            "evictor-pod-group-name": "claims",
            "evictor-pod-group-namespace": cluster.space,
        }
        until(lambda: cluster.events("claims-0", "Pipelined"), "the promise")
        until(
            lambda: (
                "kai.scheduler/last-eviction-timestamp" in cluster.get(group(victim))["metadata"].get("annotations", {})
            ),
            "the time of the eviction",
        )
        for name in leaving():
            cluster.delete(pod(name, ""))
        until(lambda: cluster.requests().get("claims-0"), "the bind request")
        assert len(victims) == 2
    assert cluster.forbidden() == []
