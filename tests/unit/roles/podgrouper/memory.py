"""The pod grouper at work on a cluster in memory, and what is looked at there."""

from contextlib import asynccontextmanager

import anyio

from kai.api.kubernetes.pod import Pod
from kai.roles.podgrouper import Settings, load_groupers
from kai.roles.podgrouper.service import PodGrouper

GROUPERS = load_groupers()

JOB = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {"name": "train", "namespace": "ns", "uid": "uid-job", "labels": {"kai.scheduler/queue": "q"}},
    "spec": {"parallelism": 3},
}


def pod(name="p", owner=None, namespace="ns", scheduler="kai-scheduler", annotations=None, **metadata):
    if owner is not None:
        reference = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
        metadata["ownerReferences"] = [
            {**reference, "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]},
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "annotations": annotations or {},
            **metadata,
        },
        "spec": {"schedulerName": scheduler, "containers": [{"name": "main"}]},
        "status": {"phase": "Pending"},
    }


@asynccontextmanager
async def grouping(cluster, settings=None):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(PodGrouper(cluster.port, settings or Settings(), GROUPERS).run)
        await cluster.pass_time()
        yield
        tasks.cancel_scope.cancel()


def group_of(cluster, name="p"):
    return cluster.server.get("Pod", name, "ns")["metadata"]["annotations"].get("pod-group-name")


def requests(cluster, *kinds):
    return [request for request in cluster.server.requests if isinstance(request, kinds)]


LATE = Settings(link_delay_seconds=10.0)


def shown_group(cluster, name="p"):
    return cluster.store.get(Pod, name, "ns").metadata.annotations.get("pod-group-name")


def bind(cluster, name):
    link = {"annotations": {"pod-group-name": f"pg-{name}-uid-{name}"}}
    cluster.server.change("Pod", name, "ns", {"metadata": link, "spec": {"nodeName": "n"}})
