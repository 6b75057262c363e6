"""All light roles together, against a server that fails, loses answers and lags, and outlives them.

When that ends, the cluster is as if it had never happened, and then nothing is written any more.
"""

import random

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kai.api.plans import Reason, Refusal
from kai.roles.binder.service import BinderService
from kai.roles.controllers.node_scale import ScaleSettings
from kai.roles.controllers.node_scale_service import NodeScaleAdjuster
from kai.roles.controllers.podgroup_service import PodGroupController
from kai.roles.controllers.queue_service import QueueController
from kai.roles.podgrouper import Settings, load_groupers
from kai.roles.podgrouper.service import PodGrouper
from tests.doubles.cluster import MemoryCluster
from tests.unit.roles.binder.clusters import BINDER, RESERVED, bind_request, node, pod, sharing_pod, sharing_request
from tests.unit.roles.podgrouper.memory import JOB

GROUPERS = load_groupers()
DEVICE = "run.ai/reserve_for_gpu_index"


def owned(name):
    manifest = pod(name)
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "uid-job"}
    manifest["metadata"]["ownerReferences"] = [reference]
    return manifest


def world():
    pods = [pod("lone"), owned("a"), owned("b"), sharing_pod("half-1"), sharing_pod("half-2")]
    return MemoryCluster(node("n1"), node("n2"), JOB, *pods)


async def kubelet(cluster):
    """Run what is bound and give reservation pods their GPU; what somebody else does is never lost."""
    while True:
        await cluster.clock.sleep(0.3)
        for kind, namespace, name in list(cluster.server.objects):
            manifest = cluster.server.objects[kind, namespace, name]
            if kind != "Pod" or not manifest["spec"].get("nodeName") or manifest["status"].get("phase") == "Running":
                continue
            patch = {"status": {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}}
            if namespace == RESERVED:
                group = manifest["metadata"]["labels"]["runai-gpu-group"]
                patch["metadata"] = {"annotations": {DEVICE: f"GPU-{group}"}}
            cluster.server.change("Pod", name, namespace, patch)


async def live(cluster, seconds):
    """Let one process with all light roles live for so long, and end it wherever it is."""
    async with anyio.create_task_group() as tasks:
        port = cluster.port
        tasks.start_soon(kubelet, cluster)
        tasks.start_soon(PodGrouper(port, Settings(), GROUPERS).run)
        tasks.start_soon(BinderService(port, BINDER).run)
        tasks.start_soon(PodGroupController(port).run)
        tasks.start_soon(QueueController(port).run)
        tasks.start_soon(NodeScaleAdjuster(port, ScaleSettings(image="scale:1")).run)
        await cluster.pass_time(seconds)
        tasks.cancel_scope.cancel()


def order_all(cluster):
    """Order all binds, as a scheduler does; again, as it does, where one was given up."""
    wanted = [bind_request("lone", "n2"), bind_request("a"), bind_request("b", "n2")]
    wanted += [sharing_request("half-1", limit=100), sharing_request("half-2", limit=100)]
    for request in wanted:
        name = request["metadata"]["name"]
        known = cluster.server.get("BindRequest", name, "ns")
        if known is not None and known["status"].get("phase") == "Failed":
            cluster.server.remove("BindRequest", name, "ns")
            known = None
        if known is None:
            cluster.server.add(request)


async def course(seed):
    """Return the cluster after a disturbed time, drawn by a seed, and an undisturbed one; without a seed, only that."""
    cluster = world()
    if seed is not None:
        draw = random.Random(seed)
        rates = {fault: draw.choice([0.0, 0.1, 0.3]) for fault in ("refused", "lost", "conflict")}
        cluster.api.latency = draw.choice([0.0, 0.05, 1.0])

        def fault(_):
            if draw.random() < rates["refused"]:
                return Refusal(reason=Reason.UNAVAILABLE, retry_after=draw.choice([None, 2.0]))
            if draw.random() < rates["conflict"]:
                return Refusal(reason=Reason.CONFLICT)
            return None

        order_all(cluster)
        for _ in range(draw.randrange(1, 5)):
            latency = cluster.api.latency
            cluster.server.fault = fault
            cluster.server.lost = lambda _: draw.random() < rates["lost"]
            cluster.lagging = draw.random() < 0.3
            await live(cluster, draw.choice([0.2, 1.0, 3.0, 20.0]))
            cluster.lagging = False
            cluster.restart()
            cluster.api.latency = latency
        cluster.server.fault = lambda _: None
        cluster.server.lost = lambda _: False
        cluster.restart()
    order_all(cluster)
    await live(cluster, 400.0)
    order_all(cluster)
    cluster.restart()
    await live(cluster, 400.0)
    return cluster


def facts(cluster):
    """Return what has to be the same in the end, whatever happened on the way."""
    server = cluster.server
    found = {}
    for (kind, namespace, name), manifest in sorted(server.objects.items()):
        place = f"{kind} {namespace}/{name}"
        if kind == "Pod":
            metadata = manifest["metadata"]
            found[place] = (
                manifest["spec"].get("nodeName"),
                metadata.get("annotations", {}).get("pod-group-name"),
                metadata.get("labels", {}).get("runai-gpu-group"),
            )
        elif kind == "BindRequest":
            found[place] = manifest["status"].get("phase")
        elif kind in {"PodGroup", "Queue"}:
            found[place] = (manifest["spec"], timeless(manifest.get("status") or {}))
        else:
            found[place] = manifest.get("data")
    return found


def timeless(status):
    """Return a status without when it became so, and what is no longer so."""
    conditions = [
        {key: value for key, value in condition.items() if key != "lastTransitionTime"}
        for condition in status.get("conditions", ())
        if condition["status"] == "True"
    ]
    return {**status, "conditions": sorted(conditions, key=str)}


@pytest.fixture(scope="module")
def undisturbed():
    return facts(anyio.run(course, None))


def test_the_undisturbed_course_is_what_it_is_taken_for(undisturbed):
    assert undisturbed["Pod ns/lone"] == ("n2", "pg-lone-uid-ns-lone", None)
    assert undisturbed["Pod ns/a"][:2] == ("n1", "pg-train-uid-job")
    assert undisturbed["Pod ns/half-1"][2] == undisturbed["Pod ns/half-2"][2] == "g1"
    assert undisturbed["PodGroup ns/pg-train-uid-job"][1]["resourcesStatus"]["allocated"] == {"cpu": "2"}
    assert undisturbed["Queue /default-queue"][1]["allocated"]["cpu"] == "3"
    assert len([place for place in undisturbed if place.startswith(f"Pod {RESERVED}/")]) == 1
    assert {phase for place, phase in undisturbed.items() if place.startswith("BindRequest")} == {"Succeeded"}


@settings(max_examples=15)
@example(seed=162)
@example(seed=773)  # a bind that failed is tried again while another one sweeps its GPU
@example(seed=41379)  # the store still shows a reservation pod that is gone
@given(seed=st.integers(0, 2**32))
def test_after_any_disturbance_the_cluster_is_as_without_it(undisturbed, seed):
    assert facts(anyio.run(course, seed)) == undisturbed


@settings(max_examples=3)
@given(seed=st.integers(0, 2**32))
def test_when_all_is_done_nothing_is_written_any_more(seed):
    async def rest():
        cluster = await course(seed)
        written = len(cluster.server.writes) + len(cluster.server.events)
        cluster.restart()
        await live(cluster, 600.0)
        return len(cluster.server.writes) + len(cluster.server.events) - written

    assert anyio.run(rest) == 0
