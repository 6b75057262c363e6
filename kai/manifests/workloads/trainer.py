"""TrainJobs of Kubeflow Trainer: the JobSet that their runtime describes, in the size that the TrainJob sets.

Source: Kubeflow Trainer 2.3.0. The runtime's template, patched by the TrainJob, becomes a JobSet of the TrainJob's
name. Number of nodes, image and resources of the TrainJob replace those of the job that is marked as the
trainer. With the MPI policy, nodes are counted differently.

Jobs of the older Kubeflow training operator 1.9.3 and of the MPI operator have a pod for each replica of each role, and
a launcher that may have to wait for its workers.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kai.basics.parsing import mapping_of, mappings_of, part_of
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
from kai.roles.podgrouper.resource import Fields, Kind, Resource

GROUP: Final = "trainer.kubeflow.org"
PATCHES: Final = "runtimePatches"
FORMER_PATCHES: Final = "podTemplateOverrides"
"""What releases before 2.2.0 call them; later ones do not know the field."""
RUNTIMES: Final = ("ClusterTrainingRuntime", "TrainingRuntime")
LISTED: Final = (
    (f"{GROUP}/v1alpha1", RUNTIMES[0], "clustertrainingruntimes"),
    (f"{GROUP}/v1alpha1", RUNTIMES[1], "trainingruntimes"),
)
_STEP: Final = f"{GROUP}/trainjob-ancestor-step"
_NODE: Final = "node"


def train_job(workload: Resource, index: Index) -> Iterator[Made]:
    """Yield the JobSet of a TrainJob, unless it is suspended.

    Raises: InputError if its runtime has no jobs, AbsentError if the runtime is not in the input.
    """
    fields = workload.fields
    if is_set(fields, "spec", "suspend"):
        return
    runtime = _runtime(workload, index)
    template = mapping_of(runtime, "spec", "template")
    policy = mapping_of(runtime, "spec", "mlPolicy")
    patches = [mapping_of(each, "trainingRuntimeSpec", "template") for each in _patches(workload)]
    spec: Mapping[str, Any] = mapping_of(template, "spec")
    for patch in patches:
        spec = merged(spec, mapping_of(patch, "spec"))
    jobs = spec.get("replicatedJobs")
    if not isinstance(jobs, list) or not jobs:
        raise Resource.of(dict(runtime)).error("spec.template.spec.replicatedJobs", None, "at least 1 replicated job")
    trainer = mapping_of(workload.manifest, "spec", "trainer")
    default = count(Resource.of(dict(runtime)).fields, "spec", "mlPolicy", "numNodes", default=1)
    asked = None if trainer.get("numNodes") is None else count(fields, "spec", "trainer", "numNodes", default=default)
    changed = [_sized(mapping_of(job), trainer, policy, default, asked) for job in jobs]
    own = mapping_of(workload.manifest, "spec")
    held = [mapping_of(each, "metadata") for each in (template, *patches)]
    more = {
        key: {name: text for each in (*held, own) for name, text in mapping_of(each, key).items()}
        for key in ("labels", "annotations")
    }
    yield child(
        workload, "jobset.x-k8s.io/v1alpha2", "JobSet", workload.name, {**spec, "replicatedJobs": changed}, **more
    )


def _patches(workload: Resource) -> list[Mapping[str, Any]]:
    """Return the patches of a TrainJob; the enclosing field names the jobs of each."""
    found = mappings_of(workload.manifest, "spec", PATCHES)
    for each in mappings_of(workload.manifest, "spec", FORMER_PATCHES):
        pod = {"metadata": mapping_of(each, "metadata"), "spec": mapping_of(each, "spec")}
        jobs = [
            {"name": target.get("name"), "template": {"spec": {"template": pod}}}
            for target in mappings_of(each, "targetJobs")
        ]
        found.append({"trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}})
    return found


def merged(held: object, patch: object) -> Any:  # noqa: ANN401 - JSON from outside
    """Return a value merged with a patch: maps key by key, lists of named entries entry by entry; null removes."""
    if isinstance(held, Mapping) and isinstance(patch, Mapping):
        kept = {key: value for key, value in held.items() if key not in patch or patch[key] is not None}
        return {
            **kept,
            **{key: merged(held.get(key), value) for key, value in patch.items() if value is not None},
        }
    # A list whose entries have no names, such as tolerations, is replaced as a whole.
    if not (isinstance(held, list) and isinstance(patch, list) and _are_named([*held, *patch])):
        return patch
    own, known = {each["name"]: each for each in patch}, {each["name"] for each in held}
    over = [merged(each, own.get(each["name"], {})) for each in held]
    return [*over, *(each for name, each in own.items() if name not in known)]


def _are_named(entries: Sequence[object]) -> bool:
    return all(isinstance(each, Mapping) and each.get("name") for each in entries)


def _runtime(workload: Resource, index: Index) -> Mapping[str, Any]:
    reference = workload.fields.child("spec", "runtimeRef")
    if reference is None:
        raise workload.error("spec.runtimeRef.name", None, "the name of a runtime")
    kind = reference.text("kind") or RUNTIMES[0]
    place = workload.namespace if kind == RUNTIMES[1] else ""
    return named_elsewhere(reference, "name", Kind(GROUP, workload.kind.version, kind), place, index).manifest


def _sized(
    job: Mapping[str, Any], trainer: Mapping[str, Any], policy: Mapping[str, Any], default: int, asked: int | None
) -> Mapping[str, Any]:
    """Return a job with the number of pods by its policy, and the TrainJob's settings for their container.

    With MPI the job *node* has the nodes, and a launcher that runs as a node counts among them. ``default`` is
    the runtime's number of nodes, ``asked`` the TrainJob's.
    """
    labels = mapping_of(job, "template", "metadata", "labels")
    is_trainer, is_node = labels.get(_STEP) == "trainer", job.get("name") == _NODE
    mpi = policy.get("mpi")
    is_mpi = isinstance(mpi, Mapping)
    launches = part_of(mpi, "runLauncherAsNode") is True
    pods: int | None = default if is_trainer else None
    if is_mpi and is_node and asked is not None:
        pods = max(asked - 1, 1) if launches else asked
    elif is_trainer and not is_mpi and asked is not None:
        pods = asked
    takes_resources = is_trainer or (is_node and launches)
    if pods is None and not takes_resources:
        return job
    template = mapping_of(job, "template")
    spec = mapping_of(template, "spec")
    inner = mapping_of(spec, "template")
    pod = mapping_of(inner, "spec")
    containers = [
        _replaced(mapping_of(each), trainer) if part_of(each, "name") == _NODE else each
        for each in pod.get("containers") or ()
    ]
    sized = {**spec, **({} if pods is None else {"parallelism": pods, "completions": pods})}
    sized["template"] = {**inner, "spec": {**pod, "containers": containers if takes_resources else pod["containers"]}}
    return {**job, "template": {**template, "spec": sized}}


def _replaced(container: Mapping[str, Any], trainer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the container of a node with the TrainJob's image, and its amounts over those of the runtime."""
    own = {**container, **({"image": trainer["image"]} if trainer.get("image") else {})}
    asked, held = mapping_of(trainer, "resourcesPerNode"), mapping_of(container, "resources")
    if asked:
        amounts = {part: {**mapping_of(held, part), **mapping_of(asked, part)} for part in ("limits", "requests")}
        own["resources"] = {**held, **{part: found for part, found in amounts.items() if found}}
    return own


REPLICA_SPECS = {
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "MXJob": "mxReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
}
"""The field with the replica specs, by kind."""

_PREFIX = "training.kubeflow.org/"


def training_job(workload: Resource) -> Iterator[Made]:
    """Yield the pods of all roles, unless the job is suspended."""
    fields = workload.fields
    name = REPLICA_SPECS[workload.kind.kind]
    roles = fields.child("spec", name)
    if roles is None:
        raise fields.error(("spec", name), None, "the replica specs of the job")
    if is_set(fields, "spec", "runPolicy", "suspend"):
        return
    for role in roles.value:
        waits = role == "Launcher" and fields.text("spec", "launcherCreationPolicy") == "WaitForWorkersReady"
        for made in _role(workload, roles, role):
            yield later(made, *([_workers_ready(workload)] if waits else []))


def _workers_ready(workload: Resource) -> Condition:
    labels = {f"{_PREFIX}job-name": workload.name, f"{_PREFIX}replica-type": "worker"}
    return Condition(stage=Stage.READY, labels=labels, subject="every worker")


def _role(workload: Resource, roles: Fields, role: str) -> Iterator[Made]:
    holder = roles.child(role)
    if holder is None:
        raise roles.error((role,), None, "a replica spec")
    replicas = count(holder, "replicas", default=1)
    labels = {
        f"{_PREFIX}job-name": workload.name,
        f"{_PREFIX}operator-name": f"{workload.kind.kind.lower()}-controller",
        f"{_PREFIX}replica-type": role.lower(),
    }
    if role in {"Master", "Launcher"}:
        labels[f"{_PREFIX}job-role"] = role.lower()
    if role == "Launcher" and workload.kind.version == "v2beta1":
        # The newer operator creates the launcher by a Job.
        template = holder.child("template")
        inner = {"parallelism": replicas, "completions": replicas, "template": _labelled(template, labels)}
        yield child(workload, "batch/v1", "Job", f"{workload.name}-launcher", inner, labels=labels)
        return
    identities = (
        Identity(
            name=f"{workload.name}-{role.lower()}-{index}", labels={**labels, f"{_PREFIX}replica-index": str(index)}
        )
        for index in range(replicas)
    )
    yield from pods(workload, holder.child("template"), identities)


def _labelled(template: Fields | None, labels: dict[str, str]) -> Made | None:
    """Return a template with additional labels."""
    if template is None:
        return None
    metadata = part(template, "metadata")
    own = part(metadata, "labels")
    written = metadata.value if metadata is not None else {}
    return {**template.value, "metadata": {**written, "labels": {**(own.value if own else {}), **labels}}}
