"""The table of models: the function that makes the pods of each kind. A new kind is a line here and a function.

A Karta in the input describes kinds as well: the number of pods of each component comes from its queries. A pod gets
the label by which the Karta recognises its component, as its controller would set it. Pods that are described in
fragments (``fragmentedPodSpecDefinition``) are not made.

Source: Karta (``run.ai/v1alpha1``).
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from kai.api.kinds import KINDS
from kai.basics.errors import InputError
from kai.basics.parsing import is_whole, mapping_of, mappings_of, text_of
from kai.manifests.findings import Path
from kai.manifests.grouping import Index
from kai.manifests.unused import PATCHES, templates
from kai.manifests.workloads import apps, argo, grove, operators, ray, serving, sets, trainer
from kai.manifests.workloads.making import MOST_PODS, Identity, Made, pods
from kai.roles.podgrouper.grouper import KARTA
from kai.roles.podgrouper.karta.definition import described_kind, read_definition
from kai.roles.podgrouper.karta.evaluate import evaluate
from kai.roles.podgrouper.lookup import Absent, Many
from kai.roles.podgrouper.resource import Fields, Kind, Resource

_LABEL: Final = re.compile(r"\.metadata\.labels(?:\.([\w-]+)|\[\"([^\"]+)\"\])")
Model = Callable[[Resource], Iterator[Made]]
"""Yield the objects that a controller would create for its workload: pods, or objects that create pods themselves.

Raises: InputError for a workload that lacks a required value.
"""

LookingModel = Callable[[Resource, Index], Iterator[Made]]
"""The same for a controller that reads other objects: nodes, or a template in another object."""

MODELS: Final[dict[tuple[str, str], Model]] = {
    ("apps", "Deployment"): apps.deployment,
    ("apps", "ReplicaSet"): apps.replica_set,
    ("apps", "StatefulSet"): apps.stateful_set,
    ("apps.nvidia.com", "NIMService"): operators.nim_service,
    ("batch", "CronJob"): apps.cron_job,
    ("batch", "Job"): apps.job,
    ("batch.volcano.sh", "Job"): operators.volcano_job,
    ("disaggregatedset.x-k8s.io", "DisaggregatedSet"): operators.disaggregated_set,
    ("flux-framework.org", "MiniCluster"): operators.mini_cluster,
    ("jobset.x-k8s.io", "JobSet"): sets.job_set,
    ("kubeflow.org", "Experiment"): operators.experiment,
    ("kubeflow.org", "Notebook"): apps.notebook,
    ("kubernetes.dask.org", "DaskCluster"): operators.dask_cluster,
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): sets.leader_worker_set,
    ("ray.io", "RayCluster"): ray.ray_cluster,
    ("serving.knative.dev", "Service"): apps.service,
    ("serving.kserve.io", "InferenceService"): operators.inference_service,
    ("serving.kserve.io", "LLMInferenceService"): operators.llm_inference_service,
    ("sparkoperator.k8s.io", "SparkApplication"): operators.spark_application,
    ("sparkoperator.k8s.io", "SparkConnect"): operators.spark_connect,
    ("workload.codeflare.dev", "AppWrapper"): operators.app_wrapper,
    ("workloads.x-k8s.io", "RoleBasedGroup"): serving.role_based_group,
    ("workloads.x-k8s.io", "RoleInstance"): serving.role_instance,
    ("workloads.x-k8s.io", "RoleInstanceSet"): serving.role_instance_set,
    **{("kubeflow.org", kind): trainer.training_job for kind in trainer.REPLICA_SPECS},
}
"""The models by API group and kind, for all versions."""


LOOKING: Final[dict[tuple[str, str], LookingModel]] = {
    ("apps", "DaemonSet"): apps.daemon_set,
    (argo.GROUP, "CronWorkflow"): argo.cron_workflow,
    (argo.GROUP, "Workflow"): argo.workflow,
    ("grove.io", "PodCliqueSet"): grove.clique_set,
    ("grove.io", "PodGangSet"): grove.clique_set,
    ("nvidia.com", "DynamoGraphDeployment"): serving.dynamo_graph,
    ("ray.io", "RayCronJob"): ray.cron_job,
    ("ray.io", "RayJob"): ray.wrapper,
    ("ray.io", "RayService"): ray.wrapper,
    (trainer.GROUP, "TrainJob"): trainer.train_job,
}
"""The models that read other objects, or whose children do."""
TEMPLATES: Final = frozenset(
    (
        *((argo.GROUP, kind) for kind in argo.TEMPLATES),
        *((trainer.GROUP, kind) for kind in trainer.RUNTIMES),
        (KARTA.group, KARTA.kind),
    )
)
"""Kinds that only hold templates for workloads, or describe kinds."""
CLUSTER_WIDE: Final = frozenset(
    {
        (grove.BINDING.group, grove.BINDING.kind),
        (argo.GROUP, argo.TEMPLATES[1]),
        (trainer.GROUP, trainer.RUNTIMES[0]),
        (KARTA.group, KARTA.kind),
    }
)
"""The cluster-scoped kinds among them."""


_OWN_GROUPS: Final = frozenset({"", "apps", "batch"})
_OWN_FORMS: Final = frozenset({("kubernetes.dask.org", "DaskCluster")})
"""Kinds with their own fields beside the spec of their pods."""
_OF_TEMPLATES: Final = frozenset({*MODELS, *LOOKING, *TEMPLATES}) - _OWN_FORMS


def described_kinds(manifests: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, str]]:
    """Return group and kind of the kinds that the Kartas among manifests describe."""
    found = set()
    for manifest in manifests:
        if (manifest.get("kind"), str(manifest.get("apiVersion")).rpartition("/")[0]) == (KARTA.kind, KARTA.group):
            kind = _kind_of(manifest)
            if kind is not None:
                found.add((kind.group, kind.kind))
    return frozenset(found)


def described(workload: Resource, index: Index) -> Iterator[Made]:
    """Yield the pods of a workload whose kind a Karta in the index describes; nothing without a Karta.

    Raises: InputError if a query of the Karta, or its result, is invalid.
    """
    karta = karta_of(workload.kind, index)
    if karta is None:
        return
    structure = mapping_of(karta.manifest, "spec", "structureDefinition")
    for component in (mapping_of(structure, "rootComponent"), *mappings_of(structure, "childComponents")):
        yield from _pods_of(workload, karta, component)


def karta_of(kind: Kind, index: Index) -> Resource | None:
    """Return the only valid Karta in the index that describes a kind."""
    listed = index.many(Many(KARTA, ""))
    found = [] if isinstance(listed, Absent) else [each for each in listed if _kind_of(each) == kind]
    valid = [Resource.of(each) for each in found if _holds(each)]
    return valid[0] if len(valid) == 1 else None


def _kind_of(manifest: Mapping[str, Any]) -> Kind | None:
    try:
        return described_kind(Resource.of(manifest))
    except InputError:
        return None  # pod grouping treats an invalid Karta the same way


def _holds(manifest: Mapping[str, Any]) -> bool:
    try:
        read_definition(Resource.of(manifest))
    except InputError:
        return False
    return True


def _pods_of(workload: Resource, karta: Resource, component: Mapping[str, Any]) -> Iterator[Made]:
    name, definition = text_of(component, "name"), mapping_of(component, "specDefinition")
    whole, bare = text_of(definition, "podTemplateSpecPath"), text_of(definition, "podSpecPath")
    if not whole and not bare:
        return
    templates = [each for each in evaluate(whole or bare, workload.manifest) if isinstance(each, Mapping)]
    replicas = text_of(component, "scaleDefinition", "replicasPath")
    counts = list(evaluate(replicas, workload.manifest)) if replicas else []
    instances = text_of(component, "instanceIdPath")
    names = [str(each) for each in evaluate(instances, workload.manifest)] if instances else []
    selector = mapping_of(component, "podSelector")
    for at, template in enumerate(templates):
        many = counts[at] if at < len(counts) else 1
        if not is_whole(many) or not 0 <= many <= MOST_PODS:
            wanted = f"a whole number from 0 to {MOST_PODS}"
            raise InputError.about(str(karta), f'replicas of component "{name}"', found=many, wanted=wanted)
        instance = names[at] if at < len(names) else ""
        labels = {
            **_labelled(selector, "componentTypeSelector", "value", ""),
            **_labelled(selector, "componentInstanceSelector", "idPath", instance),
        }
        middle = f"{name}-{instance}" if instance else name
        identities = (Identity(name=f"{workload.name}-{middle}-{number}", labels=labels) for number in range(int(many)))
        held = template if whole else {"spec": template}
        yield from pods(workload, Fields(held, str(workload), f"the template of {name}"), identities)


def _labelled(selector: Mapping[str, Any], part: str, key: str, instance: str) -> dict[str, str]:
    """Return the label that a selector matches on: for a type with its value, for an instance with its name."""
    path = text_of(selector, part, "keyPath" if key == "value" else key)
    value = text_of(selector, part, "value") if key == "value" else instance
    match = _LABEL.fullmatch(path.strip())
    return {match[1] or match[2]: value} if match is not None and value else {}


def pod_templates(manifest: Mapping[str, Any]) -> list[tuple[Path, Mapping[str, Any]]]:
    """Return the templates of an object with their paths, if its pods are made from them as they are.

    A field ``containers`` below a ``spec`` is not proof enough: unknown kinds have fields of their own there. For these
    only a value under a key that is known for templates counts.
    """
    group, kind = str(manifest.get("apiVersion")).rpartition("/")[0], str(manifest.get("kind"))
    is_known = group in _OWN_GROUPS or (group, kind) in _OF_TEMPLATES
    return [
        (path, template)
        for path, template in templates(manifest)
        if path
        and "kind" not in template  # a whole object embedded in another
        and PATCHES.isdisjoint(path)
        and (is_known or str(path[-1]).lower().endswith("template"))
    ]


def has_model(kind: Kind) -> bool:
    """Return whether there is a model of the controller of a kind."""
    return (kind.group, kind.kind) in MODELS or looks_around(kind)


NEEDED: Final[Mapping[tuple[str, str], tuple[tuple[str, str, str], ...]]] = {
    (argo.GROUP, "CronWorkflow"): argo.LISTED,
    (argo.GROUP, "Workflow"): argo.LISTED,
    ("grove.io", "PodCliqueSet"): grove.LISTED,
    ("nvidia.com", "DynamoGraphDeployment"): grove.LISTED,
    ("ray.io", "RayJob"): ray.LISTED,
    (trainer.GROUP, "TrainJob"): trainer.LISTED,
}
"""Kinds in a cluster that may describe the pods of a kind: API version, kind, and plural."""


SOURCES: Final[Mapping[str, str]] = {
    "apps": "Kubernetes 1.36",
    "apps.nvidia.com": "NVIDIA NIM operator at f63f74d7",
    "argoproj.io": "Argo Workflows 4.1.0-rc2",
    "batch": "Kubernetes 1.36",
    "batch.volcano.sh": "Volcano 1.16.0-alpha.1",
    "disaggregatedset.x-k8s.io": "LeaderWorkerSet 0.10.0",
    "flux-framework.org": "Flux operator 0.2.1",
    "grove.io": "Grove 0.1.0-alpha.12",
    "jobset.x-k8s.io": "JobSet 0.13.0-devel",
    "kubeflow.org": "Kubeflow training operator 1.9.3",
    "kubeflow.org/Experiment": "Katib 0.19.0",
    "kubeflow.org/Notebook": "Kubeflow notebook controller at 0017ad9a",
    "kubernetes.dask.org": "dask-kubernetes 2025.4.3",
    "leaderworkerset.x-k8s.io": "LeaderWorkerSet 0.10.0",
    "nvidia.com": "NVIDIA Dynamo at 003d1ee5",
    "ray.io": "KubeRay 1.7.0",
    "serving.knative.dev": "Knative Serving 0.48.1",
    "serving.kserve.io": "KServe 0.20.0-rc0",
    "sparkoperator.k8s.io": "Kubeflow Spark operator 2.5.0-rc.0",
    "sparkoperator.k8s.io/SparkConnect": "Kubeflow Spark operator 2.5.0",
    "trainer.kubeflow.org": "Kubeflow Trainer 2.3.0",
    "workload.codeflare.dev": "AppWrapper 1.2.1",
    "workloads.x-k8s.io": "RoleBasedGroup 0.8.0-alpha.5",
}
"""The program and version that the models of an API group, or of a kind in it, follow."""


def source_of(group: str, kind: str) -> str:
    """Return the program and version that the model of a kind follows; "" without a model."""
    if (group, kind) not in {*MODELS, *LOOKING}:
        return ""
    return SOURCES.get(f"{group}/{kind}") or SOURCES[group]


def needed_by(manifests: Iterable[Mapping[str, Any]]) -> tuple[tuple[str, str, str], ...]:
    """Return API version, kind and plural of objects that may exist only in the cluster and describe these pods."""
    keys = {(str(each.get("apiVersion")).rpartition("/")[0], str(each.get("kind"))) for each in manifests}
    return tuple(sorted({each for key in keys for each in NEEDED.get(key, ())}))


def describes_pods(manifest: Mapping[str, Any]) -> bool:
    """Return whether an object of an input may describe the pods of workloads that are added to it later."""
    group, kind = str(manifest.get("apiVersion")).rpartition("/")[0], str(manifest.get("kind"))
    return (group, kind) == (KARTA.group, KARTA.kind) or any(
        kind == known and group == version.rpartition("/")[0] for each in NEEDED.values() for version, known, _ in each
    )


def is_ambiguous(group: str, kind: str) -> bool:
    """Return whether kai reads, or has a model of, a kind of the same name in another API group."""
    read = {(version.rpartition("/")[0], known.kind) for known in KINDS for version in known.api_versions}
    others = {*read, *MODELS, *LOOKING, *TEMPLATES} - {(group, kind)}
    is_plain = group in _OWN_GROUPS or (group, kind) in read
    return not is_plain and any(each == kind for _, each in others)


def looks_around(kind: Kind) -> bool:
    """Return whether the controller of a kind reads other objects."""
    return (kind.group, kind.kind) in LOOKING


def made_of(workload: Resource, index: Index) -> Iterator[Made]:
    """Yield the objects that the controller of a workload creates; nothing for a kind without model and Karta.

    Raises: InputError for a workload that lacks a required value.
    """
    key = (workload.kind.group, workload.kind.kind)
    if key in LOOKING:
        yield from LOOKING[key](workload, index)
    elif key in MODELS:
        yield from MODELS[key](workload)
    else:
        yield from described(workload, index)


def as_kept(workload: Resource) -> Resource:
    """Return a workload with the status that its operator would write, if pod grouping reads it."""
    if (workload.kind.group, workload.kind.kind) in {("ray.io", "RayJob"), ("ray.io", "RayService")}:
        status = workload.manifest.get("status")
        return workload if status else Resource.of(ray.with_status(workload))
    return workload
