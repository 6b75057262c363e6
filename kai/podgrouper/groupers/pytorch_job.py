"""PyTorchJobs: a gang of master and workers, each in a sub-group, workers possibly in segments."""

from typing import ClassVar

import attrs

from kai.api import names
from kai.podgrouper.draft import GroupDraft, SubGroup
from kai.podgrouper.grouper import Request
from kai.podgrouper.replicas import MIN_AVAILABLE, distributed_draft, replicas_of
from kai.podgrouper.resource import Fields, Resource, checked_integer
from kai.podgrouper.segments import check_segment_count, segment_topology, template_annotation
from kai.podgrouper.settings import KindPattern

REPLICA_SPECS = "pytorchReplicaSpecs"
MASTER, WORKER = "Master", "Worker"
REPLICA_TYPE = "training.kubeflow.org/replica-type"
REPLICA_INDEX = "training.kubeflow.org/replica-index"


@attrs.frozen
class _Part:
    """Sub-groups, and the one of them that the pod belongs to."""

    subgroups: tuple[SubGroup, ...] = ()
    of_pod: str | None = None


class PyTorchJob:
    """One gang; its minimum is the run policy's, else the elastic policy's, else all replicas."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("kubeflow.org", "v1", "PyTorchJob"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group with sub-groups ``master`` and ``worker``.

        Raises: InputError when replicas, a segment size or the pod's index are not what they must be.
        Source: the peer's PyTorchJob grouper.
        """
        job, pod = request.owner, request.pod
        draft = distributed_draft(request, REPLICA_SPECS)
        fields = job.fields
        if fields.integer(*MIN_AVAILABLE) is None:
            elastic = fields.integer("spec", "elasticPolicy", "minReplicas")
            draft = draft if elastic is None else attrs.evolve(draft, min_member=elastic)
        roles = fields.child("spec", REPLICA_SPECS)
        if roles is None:
            raise fields.error(("spec", REPLICA_SPECS), None, "the replica specs of the job")
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

    Runs that lie wholly beyond ``min_workers`` need no pod: they are elastic.
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
    field = f'spec.{REPLICA_SPECS}.{WORKER}.template.metadata.annotations["{names.SEGMENT_SIZE}"]'
    return checked_integer(text, job, field, at_least=1)


def _is(pod: Resource, role: str) -> bool:
    return pod.labels.get(REPLICA_TYPE) == role.lower()
