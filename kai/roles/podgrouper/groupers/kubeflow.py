"""Jobs of the Kubeflow training operator: plain gangs, PyTorchJobs with master and workers, MPIJobs with a launcher.

The number of pods of a job comes from its map of replica specs.

TFJob, XGBoostJob and JAXJob are plain gangs.

The launcher of an MPIJob may be created only when the workers are ready.

A PyTorchJob is a gang of master and workers, each in a sub-group; workers may form segments.
"""

from collections.abc import Iterable
from typing import ClassVar

import attrs

from kai.api import names
from kai.basics.errors import InputError
from kai.roles.podgrouper.grouper import (
    POD,
    GroupDraft,
    KindPattern,
    Request,
    SubGroup,
    check_segment_count,
    segment_topology,
    template_annotation,
)
from kai.roles.podgrouper.lookup import Absent, Many
from kai.roles.podgrouper.resource import Fields, Resource, checked_integer
from kai.roles.podgrouper.rules import standard_draft

MIN_AVAILABLE = ("spec", "runPolicy", "schedulingPolicy", "minAvailable")


def distributed_draft(request: Request, replica_specs: str, mandatory: Iterable[str] = ()) -> GroupDraft:
    """Return the standard group as a gang of all replicas, or of the run policy's minimum.

    ``replica_specs`` is the field of ``spec`` that maps roles to replica specs, ``mandatory`` the roles it must have.
    Raises: InputError when the run policy has no minimum and a role is missing, or no role has replicas.
    Source: the peer's Kubeflow groupers, which refuse roles without ``replicas``, or with 0 of them, and require
        workers in each XGBoostJob and MPIJob; the operators create the pods of such jobs.
    """
    draft = standard_draft(request, request.owner)
    fields = request.owner.fields
    min_available = fields.integer(*MIN_AVAILABLE)
    if min_available is None:
        min_available = _count_replicas(fields, replica_specs, mandatory)
    return attrs.evolve(draft, min_member=min_available)


def _count_replicas(fields: Fields, replica_specs: str, mandatory: Iterable[str]) -> int:
    roles = fields.child("spec", replica_specs)
    if roles is None:
        raise fields.error(("spec", replica_specs), None, "the replica specs of the job")
    for role in mandatory:
        if role not in roles.value:
            raise roles.error((role,), None, "a replica spec for this role")
    total = sum(replicas_of(roles, role) for role in roles.value)
    if total <= 0:
        raise fields.error(("spec", replica_specs), total, "at least 1 replica in all")
    return total


def replicas_of(roles: Fields, role: str) -> int:
    """Return the number of replicas of a role, even if the role is absent: 1 by default.

    Raises: InputError when the number is invalid.
    """
    if role not in roles.value:
        return 0
    replicas = roles.integer(role, "replicas")
    if replicas is not None and replicas < 0:
        raise roles.error((role, "replicas"), replicas, "at least 0 replicas")
    return 1 if replicas is None else replicas


ROLES = {
    "JAXJob": ("jaxReplicaSpecs", ("Worker",)),
    "TFJob": ("tfReplicaSpecs", ()),
    "XGBoostJob": ("xgbReplicaSpecs", ("Master",)),
}
"""The field with the replica specs, and the mandatory roles, by kind."""


class Kubeflow:
    """One gang of all replicas."""

    kinds: ClassVar[tuple[KindPattern, ...]] = tuple(KindPattern("kubeflow.org", "v1", kind) for kind in ROLES)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group with all replicas, or the run policy's minimum, as its minimum.

        Raises: InputError when replicas are missing.
        """
        kind = request.owner.kind.kind
        if kind not in ROLES:
            raise request.owner.error("kind", kind, f"one of {', '.join(ROLES)}")
        replica_specs, mandatory = ROLES[kind]
        return distributed_draft(request, replica_specs, mandatory)


LAUNCHER = "Launcher"
MPI_REPLICA_SPECS = "mpiReplicaSpecs"
DELAYED_LAUNCHER = "WaitForWorkersReady"
JOB_NAME = "training.kubeflow.org/job-name"
JOB_ROLE = "training.kubeflow.org/job-role"


class MpiJob:
    """One gang of launcher and workers; without the launcher for as long as it waits for the workers."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (
        KindPattern("kubeflow.org", "v1", "MPIJob"),
        KindPattern("kubeflow.org", "v2beta1", "MPIJob"),
    )

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group with the number of replicas that can exist now as its minimum.

        Raises: InputError when replicas are missing.
        """
        draft = distributed_draft(request, MPI_REPLICA_SPECS, (LAUNCHER,))
        fields = request.owner.fields
        if fields.text("spec", "launcherCreationPolicy") != DELAYED_LAUNCHER or _has_launcher(request):
            return draft
        roles = fields.child("spec", MPI_REPLICA_SPECS)
        # The operator makes the launcher when the workers are ready. A gang that counted it before would never start
        # them.
        launchers = 0 if roles is None else replicas_of(roles, LAUNCHER)
        return attrs.evolve(draft, min_member=draft.min_member - launchers)


def _has_launcher(request: Request) -> bool:
    """Return whether a launcher pod exists that is not being deleted."""
    job = request.owner
    read = Many(POD, job.namespace, ((JOB_NAME, job.name), (JOB_ROLE, "launcher")))
    pods = request.reader.many(read)
    if isinstance(pods, Absent):
        raise InputError(f"{read}: {pods}")
    return any(not pod.is_terminating for pod in pods)


PYTORCH_REPLICA_SPECS = "pytorchReplicaSpecs"
MASTER, WORKER = "Master", "Worker"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"


@attrs.frozen
class _Part:
    """Sub-groups, and the sub-group of the pod."""

    subgroups: tuple[SubGroup, ...] = ()
    of_pod: str | None = None


class PyTorchJob:
    """One gang; its minimum is the run policy's, else the elastic policy's, else all replicas."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("kubeflow.org", "v1", "PyTorchJob"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group with sub-groups ``master`` and ``worker``.

        Raises: InputError when replicas, a segment size or the pod's index are missing or invalid.
        Source: the peer's PyTorchJob grouper.
        """
        job, pod = request.owner, request.pod
        draft = distributed_draft(request, PYTORCH_REPLICA_SPECS)
        fields = job.fields
        if fields.integer(*MIN_AVAILABLE) is None:
            elastic = fields.integer("spec", "elasticPolicy", "minReplicas")
            draft = draft if elastic is None else attrs.evolve(draft, min_member=elastic)
        roles = fields.child("spec", PYTORCH_REPLICA_SPECS)
        if roles is None:
            raise fields.error(("spec", PYTORCH_REPLICA_SPECS), None, "the replica specs of the job")
        masters = replicas_of(roles, MASTER)
        master = _master_part(pod, masters)
        worker = _worker_part(roles, pod, job, max(0, draft.min_member - masters))
        return attrs.evolve(
            draft, subgroups=master.subgroups + worker.subgroups, pod_subgroup=master.of_pod or worker.of_pod
        )


def _master_part(pod: Resource, masters: int) -> _Part:
    if not masters:
        return _Part()
    name = MASTER.lower()
    return _Part((SubGroup(name=name, min_member=masters),), name if _is(pod, MASTER) else None)


def _worker_part(roles: Fields, pod: Resource, job: Resource, min_workers: int) -> _Part:
    if WORKER not in roles.value:
        return _Part()
    workers = replicas_of(roles, WORKER)
    template = roles.child(WORKER, "template")
    size = _segment_size(pod, template, job)
    if size is None or not workers:
        name = WORKER.lower()
        return _Part((SubGroup(name=name, min_member=min_workers),), name if _is(pod, WORKER) else None)
    return _segmented(pod, workers, min_workers, size, job, template)


def _segmented(
    pod: Resource, workers: int, min_workers: int, size: int, job: Resource, template: Fields | None
) -> _Part:
    """Return ``worker`` as the parent of one leaf for each run of ``size`` workers.

    Runs entirely beyond ``min_workers`` need no pod: they are elastic.
    """
    count = -(-workers // size)
    check_segment_count(count, job)
    mandatory = -(-min_workers // size)
    topology = segment_topology(pod, template, job)
    parent = WORKER.lower()
    leaves = tuple(
        SubGroup(
            name=f"{parent}-{segment}",
            parent=parent,
            min_member=min(size, workers - segment * size) if segment < mandatory else 0,
            topology=topology,
        )
        for segment in range(count)
    )
    segment = _segment_of(pod, size)
    of_pod = f"{parent}-{segment}" if segment is not None and segment < count else None
    return _Part((SubGroup(name=parent, min_subgroup=count), *leaves), of_pod)


def _segment_of(pod: Resource, size: int) -> int | None:
    if not _is(pod, WORKER):
        return None
    field = f'metadata.labels["{REPLICA_INDEX}"]'
    if REPLICA_INDEX not in pod.labels:
        raise pod.error(field, None, "the index of the worker")
    return checked_integer(pod.labels[REPLICA_INDEX], pod, field, at_least=0) // size


def _segment_size(pod: Resource, template: Fields | None, job: Resource) -> int | None:
    if pod.annotations.get(names.SEGMENT_SIZE):
        field = f'metadata.annotations["{names.SEGMENT_SIZE}"]'
        return checked_integer(pod.annotations[names.SEGMENT_SIZE], pod, field, at_least=1)
    text = template_annotation(template, names.SEGMENT_SIZE)
    if not text:
        return None
    field = f'spec.{PYTORCH_REPLICA_SPECS}.{WORKER}.template.metadata.annotations["{names.SEGMENT_SIZE}"]'
    return checked_integer(text, job, field, at_least=1)


def _is(pod: Resource, role: str) -> bool:
    return pod.labels.get(REPLICA_TYPE) == role.lower()
