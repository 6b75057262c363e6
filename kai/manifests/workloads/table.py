"""Which model makes the pods of which kind. A new kind is a line here and a function beside the others."""

from collections.abc import Callable, Iterator
from typing import Final

from kai.manifests.index import Index
from kai.manifests.workloads import apps, argo, batch, everywhere, grove, knative, kubeflow, ray, sets, trainer
from kai.manifests.workloads.making import Made
from kai.podgrouper.resource import Kind, Resource

Model = Callable[[Resource], Iterator[Made]]
"""Return what a controller would make of its workload: pods, or objects that make pods themselves.

Raises: InputError for a workload that does not say what it must.
"""

LookingModel = Callable[[Resource, Index], Iterator[Made]]
"""The same for a controller that looks at other objects: nodes, or a template that stands elsewhere."""

MODELS: Final[dict[tuple[str, str], Model]] = {
    ("apps", "Deployment"): apps.deployment,
    ("apps", "ReplicaSet"): apps.replica_set,
    ("apps", "StatefulSet"): apps.stateful_set,
    ("argoproj.io", "Workflow"): argo.workflow,
    ("batch", "CronJob"): batch.cron_job,
    ("batch", "Job"): batch.job,
    ("grove.io", "PodCliqueSet"): grove.clique_set,
    ("grove.io", "PodGangSet"): grove.clique_set,
    ("jobset.x-k8s.io", "JobSet"): sets.job_set,
    ("kubeflow.org", "Notebook"): apps.notebook,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): sets.leader_worker_set,
    ("ray.io", "RayCluster"): ray.ray_cluster,
    ("ray.io", "RayJob"): ray.wrapper,
    ("ray.io", "RayService"): ray.wrapper,
    ("serving.knative.dev", "Service"): knative.service,
    **{("kubeflow.org", kind): kubeflow.training_job for kind in kubeflow.REPLICA_SPECS},
}
"""The models by API group and kind, whatever the version."""


LOOKING: Final[dict[tuple[str, str], LookingModel]] = {
    ("apps", "DaemonSet"): everywhere.daemon_set,
    (trainer.GROUP, "TrainJob"): trainer.train_job,
}
"""The models that look at other objects."""
TEMPLATES: Final = frozenset((trainer.GROUP, kind) for kind in trainer.RUNTIMES)
"""Kinds that only hold templates for workloads."""
CLUSTER_WIDE: Final = frozenset({(trainer.GROUP, trainer.RUNTIMES[0])})
"""Those of them that are in no namespace."""


def has_model(kind: Kind) -> bool:
    """Return whether a model knows the controller of a kind."""
    return (kind.group, kind.kind) in MODELS or looks_around(kind)


def looks_around(kind: Kind) -> bool:
    """Return whether the controller of a kind looks at other objects."""
    return (kind.group, kind.kind) in LOOKING


def made_of(workload: Resource, index: Index) -> Iterator[Made]:
    """Yield what the controller of a workload makes; nothing for a kind that no model knows.

    Raises: InputError for a workload that does not say what it must.
    """
    key = (workload.kind.group, workload.kind.kind)
    if key in LOOKING:
        yield from LOOKING[key](workload, index)
    elif key in MODELS:
        yield from MODELS[key](workload)


def as_kept(workload: Resource) -> Resource:
    """Return a workload as its operator keeps it, where pod grouping reads what the operator writes."""
    if (workload.kind.group, workload.kind.kind) in {("ray.io", "RayJob"), ("ray.io", "RayService")}:
        status = workload.manifest.get("status")
        return workload if status else Resource.of(ray.with_status(workload))
    return workload
