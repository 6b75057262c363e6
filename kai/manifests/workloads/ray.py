"""Ray clusters, alone or behind a RayJob or RayService: a head, and workers of every group.

Source: KubeRay 1.7.0. The pod that submits a RayJob comes when the cluster is ready.
"""

from collections.abc import Iterator
from typing import Final

from kai.basics.parsing import mapping_of, text_of
from kai.manifests.grouping import Index
from kai.manifests.workloads.making import (
    Condition,
    Identity,
    Made,
    Stage,
    child,
    count,
    is_set,
    later,
    named_elsewhere,
    part,
    pods,
)
from kai.roles.podgrouper.groupers.ray import ORIGIN_LABEL, within_bounds
from kai.roles.podgrouper.resource import Fields, Kind, Resource

LISTED: Final = (("ray.io/v1", "RayCluster", "rayclusters"),)
_SELECTOR: Final = "ray.io/cluster"
_BY_JOB: Final = "K8sJobMode"
_OF_SUBMITTER: Final = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "200Mi"}}
CLUSTER_SPECS: Final = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
"""The field with the spec of the cluster, by kind."""


def cluster_name(workload: Resource) -> str:
    """Return the name that the cluster of a RayJob or RayService gets here; the operator's name has a random part."""
    return f"{workload.name}-cluster"


def with_status(workload: Resource) -> Made:
    """Return a RayJob or RayService with the status that the operator writes, which names the cluster."""
    name = {"rayClusterName": _selected(workload) or cluster_name(workload)}
    # A RayService can have a second cluster during an upgrade, so its status names the active one.
    status = name if workload.kind.kind == "RayJob" else {"activeServiceStatus": name}
    return {**workload.manifest, "status": status}


def _selected(workload: Resource) -> str:
    """Return the name of the existing cluster that a RayJob runs on; "" if it has a cluster of its own."""
    return str(mapping_of(workload.manifest, "spec", "clusterSelector").get(_SELECTOR) or "")


def cron_job(workload: Resource, _: Index) -> Iterator[Made]:
    """Yield the RayJob of one run, as if it were due now; none if the RayCronJob is suspended."""
    fields = workload.fields
    if is_set(fields, "spec", "suspend"):
        return
    template = fields.child("spec", "jobTemplate")
    if template is None:
        raise fields.error(("spec", "jobTemplate"), None, "the spec of the RayJobs")
    labels = {"ray.io/cronjob-name": workload.name}
    yield child(workload, workload.kind.api_version, "RayJob", f"{workload.name}-now", template.value, labels=labels)


def wrapper(workload: Resource, index: Index) -> Iterator[Made]:
    """Yield the cluster that a RayJob or RayService runs on, unless the job is suspended.

    A RayJob that selects an existing cluster creates none: its only pod is the one that submits the job.

    Raises: AbsentError if the cluster that it selects is not in the input.
    """
    fields = workload.fields
    if is_set(fields, "spec", "suspend"):
        return
    selector = part(fields.child("spec"), "clusterSelector") if _selected(workload) else None
    if selector is not None:
        kind = Kind("ray.io", workload.kind.version, "RayCluster")
        # Only for its error: nothing of the cluster is needed here.
        named_elsewhere(selector, _SELECTOR, kind, workload.namespace, index)
        yield from _submitter(workload)
        return
    name = CLUSTER_SPECS[workload.kind.kind]
    spec = fields.child("spec", name)
    if spec is None:
        raise fields.error(("spec", name), None, "the spec of a RayCluster")
    metadata = {"labels": dict(workload.labels), "annotations": dict(workload.annotations)}
    name = cluster_name(workload)
    yield child(workload, workload.kind.api_version, "RayCluster", name, spec.value, **metadata)
    if workload.kind.kind == "RayJob":
        ready = Condition(stage=Stage.READY, labels={_SELECTOR: name}, subject="the cluster")
        for made in _submitter(workload):
            yield later(made, ready)


def check_submission(workload: Resource) -> None:
    """Refuse a RayJob that KubeRay does not start while kai is its batch scheduler.

    Raises: InputError for a RayJob that a Job submits, which is the default.
    """
    mode = text_of(workload.manifest, "spec", "submissionMode") or _BY_JOB
    if workload.kind.kind == "RayJob" and mode == _BY_JOB:
        wanted = (
            "HTTPMode, SidecarMode or InteractiveMode: KubeRay refuses the default where kai is its batch scheduler"
        )
        raise workload.error("spec.submissionMode", mode, wanted)


def _submitter(workload: Resource) -> Iterator[Made]:
    """Yield the Job whose pod submits a RayJob; in other modes KubeRay submits it itself, or the head does."""
    if (workload.fields.text("spec", "submissionMode") or _BY_JOB) != _BY_JOB:
        return
    own = part(workload.fields.child("spec"), "submitterPodTemplate")
    container = {"name": "ray-job-submitter", "resources": _OF_SUBMITTER}
    template = own.value if own is not None else {"spec": {"containers": [container], "restartPolicy": "Never"}}
    labels = {"ray.io/originated-from-cr-name": workload.name, ORIGIN_LABEL: "RayJob"}
    metadata = mapping_of(template, "metadata")
    template = {**template, "metadata": {**metadata, "labels": {**mapping_of(metadata, "labels"), **labels}}}
    spec = {"parallelism": 1, "completions": 1, "template": template}
    yield child(workload, "batch/v1", "Job", workload.name, spec)


def ray_cluster(workload: Resource) -> Iterator[Made]:
    """Yield the head and the wanted workers of every group."""
    fields = workload.fields
    if is_set(fields, "spec", "suspend"):
        return
    head = fields.child("spec", "headGroupSpec")
    if head is None:
        raise fields.error(("spec", "headGroupSpec"), None, "the head of the cluster")
    labels = {"ray.io/cluster": workload.name, "ray.io/is-ray-node": "yes"}
    of_head = {**labels, "ray.io/node-type": "head", "ray.io/group": "headgroup"}
    yield from pods(workload, head.child("template"), [Identity(name=f"{workload.name}-head", labels=of_head)])
    for index, group in enumerate(fields.children("spec", "workerGroupSpecs") or ()):
        yield from _workers(workload, group, index, labels)


def _workers(workload: Resource, group: Fields, index: int, labels: dict[str, str]) -> Iterator[Made]:
    if is_set(group, "suspend"):
        return
    name = group.text("groupName") or f"worker-group-{index}"
    least = count(group, "minReplicas", default=0)
    most = None if group.value.get("maxReplicas") is None else group.integer("maxReplicas")
    # One replica of a group is numOfHosts pods, such as the hosts of a TPU slice.
    replicas = within_bounds(count(group, "replicas", default=0), least, most) * count(group, "numOfHosts", default=1)
    own = {**labels, "ray.io/node-type": "worker", "ray.io/group": name}
    identities = (Identity(name=f"{workload.name}-{name}-worker-{each}", labels=own) for each in range(replicas))
    yield from pods(workload, group.child("template"), identities)
