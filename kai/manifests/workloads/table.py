"""Which model makes the pods of which kind. A new kind is a line here and a function beside the others."""

from collections.abc import Callable, Iterator
from typing import Final

from kai.manifests.workloads import apps, batch, kubeflow, ray, sets
from kai.manifests.workloads.making import Made
from kai.podgrouper.resource import Kind, Resource

Model = Callable[[Resource], Iterator[Made]]
"""Return what a controller would make of its workload: pods, or objects that make pods themselves.

Raises: InputError for a workload that does not say what it must.
"""

MODELS: Final[dict[tuple[str, str], Model]] = {
    ("apps", "Deployment"): apps.deployment,
    ("apps", "ReplicaSet"): apps.replica_set,
    ("apps", "StatefulSet"): apps.stateful_set,
    ("batch", "CronJob"): batch.cron_job,
    ("batch", "Job"): batch.job,
    ("jobset.x-k8s.io", "JobSet"): sets.job_set,
    ("kubeflow.org", "Notebook"): apps.notebook,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): sets.leader_worker_set,
    ("ray.io", "RayCluster"): ray.ray_cluster,
    ("ray.io", "RayJob"): ray.wrapper,
    ("ray.io", "RayService"): ray.wrapper,
    **{("kubeflow.org", kind): kubeflow.training_job for kind in kubeflow.REPLICA_SPECS},
}
"""The models by API group and kind, whatever the version."""


def model_of(kind: Kind) -> Model | None:
    """Return the model of a kind; nothing for one that no model knows."""
    return MODELS.get((kind.group, kind.kind))


def as_kept(workload: Resource) -> Resource:
    """Return a workload as its operator keeps it, where pod grouping reads what the operator writes."""
    if (workload.kind.group, workload.kind.kind) in {("ray.io", "RayJob"), ("ray.io", "RayService")}:
        status = workload.manifest.get("status")
        return workload if status else Resource.of(ray.with_status(workload))
    return workload
