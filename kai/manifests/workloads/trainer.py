"""TrainJobs of Kubeflow Trainer: the JobSet that their runtime describes, as large as the TrainJob wants it.

Source: Kubeflow Trainer: the runtime's template becomes a JobSet of the TrainJob's name; number of nodes, image and
resources of the TrainJob replace those of the job that is marked as the trainer.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kai.lenient import mapping_of, part_of
from kai.manifests.index import Index
from kai.manifests.workloads.making import Made, child, count, is_set
from kai.podgrouper.lookup import Absent, Get
from kai.podgrouper.resource import Kind, Resource

GROUP: Final = "trainer.kubeflow.org"
RUNTIMES: Final = ("ClusterTrainingRuntime", "TrainingRuntime")
_STEP: Final = f"{GROUP}/trainjob-ancestor-step"
_NODE: Final = "node"


def train_job(workload: Resource, index: Index) -> Iterator[Made]:
    """Yield the JobSet of a TrainJob, unless it is suspended.

    Raises: InputError where its runtime is not in the input, or has no jobs.
    """
    fields = workload.fields
    if is_set(fields, "spec", "suspend"):
        return
    runtime = _runtime(workload, index)
    template = mapping_of(runtime, "spec", "template")
    spec = mapping_of(template, "spec")
    jobs = spec.get("replicatedJobs")
    if not isinstance(jobs, list) or not jobs:
        raise Resource.of(dict(runtime)).error("spec.template.spec.replicatedJobs", None, "at least 1 replicated job")
    trainer = mapping_of(workload.manifest, "spec", "trainer")
    default = count(Resource.of(dict(runtime)).fields, "spec", "mlPolicy", "numNodes", default=1)
    nodes = count(fields, "spec", "trainer", "numNodes", default=default)
    changed = [_sized(job, trainer, nodes) if _is_trainer(job) else job for job in jobs]
    metadata = mapping_of(template, "metadata")
    own = mapping_of(workload.manifest, "spec")
    more = {key: {**mapping_of(metadata, key), **mapping_of(own, key)} for key in ("labels", "annotations")}
    yield child(
        workload, "jobset.x-k8s.io/v1alpha2", "JobSet", workload.name, {**spec, "replicatedJobs": changed}, **more
    )


def _runtime(workload: Resource, index: Index) -> Mapping[str, Any]:
    reference = workload.fields.child("spec", "runtimeRef")
    name = reference.text("name") if reference is not None else None
    if reference is None or not name:
        raise workload.error("spec.runtimeRef.name", name, "the name of a runtime")
    kind = reference.text("kind") or RUNTIMES[0]
    place = workload.namespace if kind == RUNTIMES[1] else ""
    found = index.get(Get(Kind(GROUP, workload.kind.version, kind), place, name))
    if isinstance(found, Absent):
        raise reference.error(("name",), name, f"a {kind} of this name in the input: it has the pods of the job")
    return found


def _is_trainer(job: object) -> bool:
    found = mapping_of(job)
    labels = mapping_of(found, "template", "metadata", "labels")
    return labels.get(_STEP) == "trainer" or found.get("name") == _NODE


def _sized(job: Mapping[str, Any], trainer: Mapping[str, Any], nodes: int) -> dict[str, Any]:
    """Return the job that trains with as many pods as nodes, and what the TrainJob says about their container."""
    template = mapping_of(job, "template")
    spec = mapping_of(template, "spec")
    inner = mapping_of(spec, "template")
    pod = mapping_of(inner, "spec")
    containers = [
        _replaced(mapping_of(each), trainer) if part_of(each, "name") == _NODE else each
        for each in pod.get("containers") or ()
    ]
    sized = {**spec, "parallelism": nodes, "completions": nodes}
    sized["template"] = {**inner, "spec": {**pod, "containers": containers}}
    return {**job, "template": {**template, "spec": sized}}


def _replaced(container: Mapping[str, Any], trainer: Mapping[str, Any]) -> dict[str, Any]:
    own = {"image": trainer.get("image"), "resources": trainer.get("resourcesPerNode")}
    return {**container, **{key: value for key, value in own.items() if value}}
