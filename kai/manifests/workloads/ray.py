"""Ray clusters, alone or behind a RayJob or RayService: a head, and workers of every group.

Source: KubeRay. The pod that submits a RayJob comes when the cluster is ready, so it is not made here.
"""

from collections.abc import Iterator

from kai.manifests.workloads.making import Identity, Made, child, count, is_set, pods
from kai.podgrouper.groupers.ray import within_bounds
from kai.podgrouper.resource import Fields, Resource

CLUSTER_SPECS = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
"""Kind → the field with the spec of its cluster."""


def cluster_name(workload: Resource) -> str:
    """Return what the cluster of a RayJob or RayService is called here; the operator draws the name."""
    return f"{workload.name}-cluster"


def with_status(workload: Resource) -> Made:
    """Return a RayJob or RayService as the operator keeps it: its status names the cluster."""
    name = {"rayClusterName": cluster_name(workload)}
    status = name if workload.kind.kind == "RayJob" else {"activeServiceStatus": name}
    return {**workload.manifest, "status": status}


def wrapper(workload: Resource) -> Iterator[Made]:
    """Yield the cluster that a RayJob or RayService runs on, unless the job is suspended."""
    fields = workload.fields
    if is_set(fields, "spec", "suspend"):
        return
    name = CLUSTER_SPECS[workload.kind.kind]
    spec = fields.child("spec", name)
    if spec is None:
        raise fields.error(("spec", name), None, "the spec of a RayCluster")
    metadata = {"labels": dict(workload.labels), "annotations": dict(workload.annotations)}
    yield child(workload, workload.kind.api_version, "RayCluster", cluster_name(workload), spec.value, **metadata)


def ray_cluster(workload: Resource) -> Iterator[Made]:
    """Yield the head and the workers that every group wants."""
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
    replicas = within_bounds(count(group, "replicas", default=0), least, most) * count(group, "numOfHosts", default=1)
    own = {**labels, "ray.io/node-type": "worker", "ray.io/group": name}
    identities = (Identity(name=f"{workload.name}-{name}-worker-{each}", labels=own) for each in range(replicas))
    yield from pods(workload, group.child("template"), identities)
