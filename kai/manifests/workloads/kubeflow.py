"""Jobs of the Kubeflow training operator and of the MPI operator: one pod for each replica of each role.

Source: the operators: names, labels, and a launcher that may have to wait for its workers.
"""

from collections.abc import Iterator

from kai.manifests.workloads.making import Condition, Identity, Made, Stage, child, count, is_set, later, part, pods
from kai.roles.podgrouper.resource import Fields, Resource

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
