"""Which model makes the pods of which kind. A new kind is a line here and a function beside the others."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kai.api.kinds import KINDS
from kai.manifests.index import Index
from kai.manifests.positions import Path
from kai.manifests.unused import templates
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
    ("batch", "CronJob"): batch.cron_job,
    ("batch", "Job"): batch.job,
    ("grove.io", "PodCliqueSet"): grove.clique_set,
    ("grove.io", "PodGangSet"): grove.clique_set,
    ("jobset.x-k8s.io", "JobSet"): sets.job_set,
    ("kubeflow.org", "Notebook"): apps.notebook,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): sets.leader_worker_set,
    ("ray.io", "RayCluster"): ray.ray_cluster,
    ("serving.knative.dev", "Service"): knative.service,
    **{("kubeflow.org", kind): kubeflow.training_job for kind in kubeflow.REPLICA_SPECS},
}
"""The models by API group and kind, whatever the version."""


LOOKING: Final[dict[tuple[str, str], LookingModel]] = {
    ("apps", "DaemonSet"): everywhere.daemon_set,
    (argo.GROUP, "CronWorkflow"): argo.cron_workflow,
    (argo.GROUP, "Workflow"): argo.workflow,
    ("ray.io", "RayCronJob"): ray.cron_job,
    ("ray.io", "RayJob"): ray.wrapper,
    ("ray.io", "RayService"): ray.wrapper,
    (trainer.GROUP, "TrainJob"): trainer.train_job,
}
"""The models that look at other objects, or whose children do."""
TEMPLATES: Final = frozenset(
    (
        *((argo.GROUP, kind) for kind in argo.TEMPLATES),
        *((trainer.GROUP, kind) for kind in trainer.RUNTIMES),
    )
)
"""Kinds that only hold templates for workloads."""
CLUSTER_WIDE: Final = frozenset({(argo.GROUP, argo.TEMPLATES[1]), (trainer.GROUP, trainer.RUNTIMES[0])})
"""Those of them that are in no namespace."""


_OWN_GROUPS: Final = frozenset({"", "apps", "batch"})
PATCHES: Final = frozenset({"runtimePatches", "podTemplateOverrides", "podSpecPatch"})
"""Fields whose value changes a template that stands elsewhere: what is missing in it comes from there."""


def pod_templates(manifest: Mapping[str, Any]) -> list[tuple[Path, Mapping[str, Any]]]:
    """Return the templates of an object with their paths, as far as its pods are made of them as they are written.

    A field ``containers`` below a ``spec`` does not tell alone: kinds that kai does not know have fields of their own
    there. Of these only what stands at a key that says that it is a template counts.
    """
    group, kind = str(manifest.get("apiVersion")).rpartition("/")[0], str(manifest.get("kind"))
    is_known = group in _OWN_GROUPS or (group, kind) in {*MODELS, *LOOKING, *TEMPLATES}
    return [
        (path, template)
        for path, template in templates(manifest)
        if path
        and not PATCHES.intersection(map(str, path))
        and (is_known or str(path[-1]).lower().endswith("template"))
    ]


def has_model(kind: Kind) -> bool:
    """Return whether a model knows the controller of a kind."""
    return (kind.group, kind.kind) in MODELS or looks_around(kind)


NEEDED: Final[Mapping[tuple[str, str], tuple[tuple[str, str, str], ...]]] = {
    (argo.GROUP, "CronWorkflow"): argo.LISTED,
    (argo.GROUP, "Workflow"): argo.LISTED,
    ("ray.io", "RayJob"): ray.LISTED,
    (trainer.GROUP, "TrainJob"): trainer.LISTED,
}
"""What in a cluster may describe the pods of a kind: API version, kind, and what the API calls many of them."""


def needed_by(manifests: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, str, str], ...]:
    """Return API version, kind and plural of what describes the pods of workloads and may be in the cluster alone."""
    keys = {(str(each.get("apiVersion")).rpartition("/")[0], str(each.get("kind"))) for each in manifests}
    return tuple(sorted({each for key in keys for each in NEEDED.get(key, ())}))


def describes_pods(manifest: Mapping[str, Any]) -> bool:
    """Return whether an object of an input may describe the pods of workloads that are added to it later."""
    group, kind = str(manifest.get("apiVersion")).rpartition("/")[0], str(manifest.get("kind"))
    return any(
        kind == known and group == version.rpartition("/")[0] for each in NEEDED.values() for version, known, _ in each
    )


def is_ambiguous(group: str, kind: str) -> bool:
    """Return whether kai reads, or has a model of, a kind that is called so in another API group than this."""
    read = {(version.rpartition("/")[0], known.kind) for known in KINDS for version in known.api_versions}
    known = {*read, *MODELS, *LOOKING, *TEMPLATES}
    return (group, kind) not in known and any(each == kind for _, each in known)


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
