"""JobSets and LeaderWorkerSets: trees of sub-groups, one part for each replica.

A JobSet is a tree with a parent for every replicated job and a leaf for every replica of it.

Every replica of a LeaderWorkerSet is a gang of one leader and its workers, possibly in segments.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import attrs

from kai.api import names
from kai.basics.errors import InputError
from kai.basics.parsing import has_condition, part_of, signed
from kai.roles.podgrouper.decide import find_group, has_subgroups
from kai.roles.podgrouper.grouper import (
    POD_GROUP,
    GroupDraft,
    KindPattern,
    Request,
    SubGroup,
    Topology,
    check_segment_count,
    segment_topology,
    template_annotation,
)
from kai.roles.podgrouper.lookup import Absent, Many
from kai.roles.podgrouper.resource import Fields, Resource, annotated_integer, checked_integer, spec_text
from kai.roles.podgrouper.rules import group_name, standard_draft

REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
IN_ORDER = "InOrder"
DEPENDS_ON = "dependsOn"
COMPLETIONS = "completions"
EXCLUSIVE = ("alpha.jobset.sigs.k8s.io/exclusive-topology", "alpha.jobset.sigs.k8s.io/node-selector")
"""Annotations that give a Job a zone for itself; with the second, by labels of nodes, no webhook is needed."""
MOST_LEAVES = 10_000
"""The most replicas in one set: with more, the group would not fit into one API object."""


class JobSet:
    """One gang for the set. Jobs that start one after another need only one of them at first."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("jobset.x-k8s.io", "v1alpha2", "JobSet"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group with the tree of replicated jobs.

        Raises: InputError when the set has no jobs, or a job, annotation or label is invalid.
        Source: the peer's JobSet grouper. It ignores ``dependsOn`` and ``completions``, and exclusive zones of Jobs,
            and so waits for pods that do not come. A set that has a group without sub-groups, as earlier releases made
            them, keeps that shape.
        """
        job_set, pod = request.owner, request.pod
        if not job_set.name or not job_set.uid:
            raise job_set.error("metadata", f'name "{job_set.name}", uid "{job_set.uid}"', "a name and a uid")
        jobs = job_set.fields.children("spec", "replicatedJobs")
        if not jobs:
            raise job_set.error("spec.replicatedJobs", None, "at least 1 replicated job")
        draft = standard_draft(request, job_set)
        if _has_flat_group(request):
            return _flat_draft(draft, job_set, pod)
        min_subgroup = _min_subgroup(job_set, jobs)
        subgroups = tuple(subgroup for job in jobs for subgroup in _job_set_subgroups(job, job_set))
        of_pod = f"{_label(pod, REPLICATED_JOB)}-replica-{_label(pod, JOB_INDEX)}"
        if all(subgroup.name != of_pod for subgroup in subgroups):
            raise pod.error("metadata.labels", of_pod, f"a replica of {job_set}")
        return attrs.evolve(draft, min_subgroup=min_subgroup, subgroups=subgroups, pod_subgroup=of_pod)


def _min_subgroup(job_set: Resource, jobs: Sequence[Fields]) -> int:
    """Return how many replicated jobs must be able to start together."""
    annotated = annotated_integer(job_set, names.MIN_MEMBER, at_least=1)
    if annotated is not None:
        # A minimum above the number of jobs would never be met.
        return min(annotated, len(jobs))
    return 1 if _is_in_order(job_set) or any(map(depends, jobs)) else len(jobs)


def _is_in_order(job_set: Resource) -> bool:
    return job_set.fields.text("spec", "startupPolicy", "startupPolicyOrder") == IN_ORDER


def depends(job: Fields) -> bool:
    """Return whether a replicated job is created only when others are ready or complete.

    Raises: InputError when ``dependsOn`` is not a list.
    """
    return job.value.get(DEPENDS_ON) is not None and bool(job.children(DEPENDS_ON))


def _job_set_subgroups(job: Fields, job_set: Resource) -> Iterator[SubGroup]:
    """Yield the parent of one replicated job and a leaf for each of its replicas."""
    name = job.text("name")
    if not name:
        raise job.error(("name",), name, "the name of the replicated job")
    replicas = job.integer("replicas")
    replicas = 1 if replicas is None else replicas
    if not 0 <= replicas <= MOST_LEAVES:
        raise job.error(("replicas",), replicas, f"a number in 0...{MOST_LEAVES}")
    min_member = _leaf_minimum(job, job_set)
    topology = _leaf_topology(job)
    yield SubGroup(name=name, min_subgroup=replicas)
    for index in range(replicas):
        yield SubGroup(name=f"{name}-replica-{index}", parent=name, min_member=min_member, topology=topology)


def _leaf_minimum(job: Fields, job_set: Resource) -> int:
    """Return how many pods of one replica must be able to start together: all pods of its Job unless annotated."""
    parallelism = job.integer("template", "spec", "parallelism")
    text = template_annotation(job.child("template"), names.MIN_MEMBER)
    if text:
        field = f'{job.path}.template.metadata.annotations["{names.MIN_MEMBER}"]'
        return checked_integer(text, job_set, field, at_least=1)
    parallelism = 1 if parallelism is None else parallelism
    if _follow_the_first(job, job_set):
        # Not 1: a Job that is suspended by a parallelism of 0 creates no pod.
        return min(parallelism, 1)
    spec = job.child("template", "spec")
    completions = None if spec is None or spec.value.get(COMPLETIONS) is None else spec.integer(COMPLETIONS)
    # A Job runs no more pods at once than it has completions left, however high its parallelism is.
    return parallelism if completions is None else min(parallelism, completions)


def _follow_the_first(job: Fields, job_set: Resource) -> bool:
    """Return whether JobSet's webhook holds back the pods of a Job until the first pod has a node."""
    said = [template_annotation(job.child("template"), key) or job_set.annotations.get(key) for key in EXCLUSIVE]
    return said[0] is not None and said[1] is None


def _leaf_topology(job: Fields) -> Topology | None:
    """Return the constraint of each replica, None unless a topology and a level of it are named."""
    template = job.child("template")
    name, required, preferred = (
        template_annotation(template, key) or ""
        for key in (names.TOPOLOGY, names.TOPOLOGY_REQUIRED, names.TOPOLOGY_PREFERRED)
    )
    return Topology(name, required, preferred) if name and (required or preferred) else None


def _label(pod: Resource, key: str) -> str:
    value = pod.labels.get(key)
    if not value:
        raise pod.error(f'metadata.labels["{key}"]', value, "the label that the JobSet controller sets")
    return value


def _has_flat_group(request: Request) -> bool:
    """Return whether this set has a group without sub-groups."""
    name = group_name(request.owner)
    read = Many(POD_GROUP, request.owner.namespace)
    groups = request.reader.many(read)
    if isinstance(groups, Absent):
        raise InputError(f"{read}: {groups}")
    return any(
        (group.name == name or group.name.startswith(f"{name}-")) and not has_subgroups(group) for group in groups
    )


def _flat_draft(draft: GroupDraft, job_set: Resource, pod: Resource) -> GroupDraft:
    """Return the group of earlier releases: one for each job that starts in order, else one for the set."""
    job = _label(pod, REPLICATED_JOB)
    annotated = annotated_integer(job_set, names.MIN_MEMBER, at_least=0)
    return attrs.evolve(
        draft,
        name=f"{draft.name}-{job}" if _is_in_order(job_set) else draft.name,
        min_member=1 if annotated is None else annotated,
    )


SIZE_ANNOTATION = "leaderworkerset.sigs.k8s.io/size"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
LEADER_WORKER_SET_EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"
"""With this annotation, workers are created when their leader has a node."""
TEMPLATE = ("spec", "leaderWorkerTemplate")
LEADER, WORKERS = "leader", "workers"
LEADER_CREATED, LEADER_READY = "LeaderCreated", "LeaderReady"
LEADER_WORKER, LEADER_EXCLUDED = "LeaderWorker", "LeaderExcluded"


@attrs.frozen
class _Replica:
    """One replica as its group counts it: ``size`` pods; the given pod has ``index`` (if it has one).

    ``is_starting`` while only the leader counts, because the workers are created when it is ready.
    """

    size: int
    index: int | None
    is_starting: bool = False

    @property
    def is_leader(self) -> bool:
        return self.index == 0


@attrs.frozen
class _Segmentation:
    """Segments of ``size`` workers; if the workers divide evenly, the first segment has the leader as an extra pod."""

    size: int
    policy: str
    replica_size: int

    @property
    def is_even(self) -> bool:
        return (self.replica_size - 1) % self.size == 0

    @property
    def count(self) -> int:
        return self.segment_of(self.replica_size - 1) + 1

    def segment_of(self, index: int) -> int:
        """Return the segment of the pod at ``index``; the leader is 0."""
        return 0 if index == 0 else (index - 1 if self.is_even else index) // self.size

    def workers_of(self, segment: int) -> int:
        """Return the number of workers in the segment."""
        first = segment * self.size
        if self.is_even:
            return self.size
        return min(first + self.size, self.replica_size) - max(first, 1)


class LeaderWorkerSet:
    """One gang for each replica, with the leader and the workers in sub-groups."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group for the replica that the pod belongs to.

        Raises: InputError when sizes, the start-up policy or the pod's index are missing or invalid.
        Source: the peer's LeaderWorkerSet grouper, without four of its faults. Where all workers are one segment, the
        peer counts one worker that does not exist. A leader that must start alone cannot when there are segments.
        Workers that wait for their leader count once it has a node, so that it is evicted as stale while it gets ready.
        Where a replica has a zone for itself, the leader waits for workers that are created when it has a node.
        """
        lws, pod = request.owner, request.pod
        draft = standard_draft(request, lws)
        group_index = signed(pod.labels.get(GROUP_INDEX, ""))
        name = draft.name if group_index is None else f"{draft.name}-group-{group_index}"
        replica = _replica(lws, pod, lambda: _has_workers(find_group(request.reader, draft.namespace, name)))
        subgroups, of_pod = _subgroups(lws, pod, replica)
        return attrs.evolve(
            draft,
            name=name,
            min_member=replica.size,
            subgroups=subgroups,
            pod_subgroup=of_pod,
        )


def _replica(lws: Resource, pod: Resource, has_workers: Callable[[], bool]) -> _Replica:
    """Return the replica of a pod; ``has_workers`` returns whether its group already counts workers."""
    fields = lws.fields
    size = fields.integer(*TEMPLATE, "size")
    if size is None or size <= 0:
        raise fields.error((*TEMPLATE, "size"), size, "at least 1 pod")
    policy = fields.text("spec", "startupPolicy")
    if policy not in {None, LEADER_CREATED, LEADER_READY}:
        raise fields.error(("spec", "startupPolicy"), policy, f"{LEADER_CREATED} or {LEADER_READY}")
    index = None
    if WORKER_INDEX in pod.labels:
        index = checked_integer(pod.labels[WORKER_INDEX], pod, f'metadata.labels["{WORKER_INDEX}"]', at_least=0)
    if policy == LEADER_READY or LEADER_WORKER_SET_EXCLUSIVE in lws.annotations:
        is_far = has_condition(pod.manifest, "Ready") or policy != LEADER_READY
        # Until then the workers do not exist. A gang that counted them would wait for pods that wait for its leader.
        if index == 0 and (not spec_text(pod, "nodeName") or not (is_far or has_workers())):
            return _Replica(1, index, is_starting=True)
        stated = signed(pod.annotations.get(SIZE_ANNOTATION, ""))
        size = size if stated is None else stated
    return _Replica(size, index)


def _has_workers(group: Resource | None) -> bool:
    """Return whether a group was written to count workers: as its last pods, they exist by then."""
    minimum = part_of(group.manifest, "spec", "minMember") if group is not None else None
    return isinstance(minimum, int) and minimum > 1


def _subgroups(lws: Resource, pod: Resource, replica: _Replica) -> tuple[tuple[SubGroup, ...], str | None]:
    """Return the sub-groups of the replica, and the sub-group of the pod."""
    segmentation = _segmentation(lws, replica)
    if segmentation is None:
        return _unsegmented(replica)
    check_segment_count(segmentation.count, lws)
    if replica.index is None or segmentation.segment_of(replica.index) >= segmentation.count:
        field = f'metadata.labels["{WORKER_INDEX}"]'
        raise pod.error(field, pod.labels.get(WORKER_INDEX), f"an index below the {replica.size} pods of the replica")
    template = lws.fields.child(*TEMPLATE, "workerTemplate")
    topology = None if template is None else segment_topology(pod, template, lws)
    if segmentation.policy == LEADER_EXCLUDED:
        return _with_leader_outside(lws, replica.index, segmentation, topology)
    return _with_leader_inside(replica.index, segmentation, topology)


def _unsegmented(replica: _Replica) -> tuple[tuple[SubGroup, ...], str | None]:
    subgroups = [SubGroup(name=LEADER, min_member=1)]
    if replica.size > 1:
        subgroups.append(SubGroup(name=WORKERS, min_member=replica.size - 1))
    if replica.is_leader:
        return tuple(subgroups), LEADER
    return tuple(subgroups), WORKERS if replica.size > 1 else None


def _with_leader_outside(
    lws: Resource, index: int, segmentation: _Segmentation, topology: Topology | None
) -> tuple[tuple[SubGroup, ...], str]:
    """Return the leader alone and segments of workers only, which must divide evenly."""
    if not segmentation.is_even:
        found = f"{segmentation.replica_size - 1} workers in segments of {segmentation.size}"
        raise InputError.about(
            str(lws), "segment size", found=found, wanted=f"segments of equal size for {LEADER_EXCLUDED}"
        )
    segments = tuple(
        SubGroup(name=_segment_name(each), min_member=segmentation.size, topology=topology)
        for each in range(segmentation.count)
    )
    of_pod = LEADER if index == 0 else _segment_name(segmentation.segment_of(index))
    return (SubGroup(name=LEADER, min_member=1), *segments), of_pod


def _with_leader_inside(
    index: int, segmentation: _Segmentation, topology: Topology | None
) -> tuple[tuple[SubGroup, ...], str]:
    """Return segments; the first one is the parent of the leader and of the workers beside it."""
    first = _segment_name(0)
    rest = tuple(
        SubGroup(name=_segment_name(each), min_member=segmentation.workers_of(each), topology=topology)
        for each in range(1, segmentation.count)
    )
    subgroups = (
        SubGroup(name=first, min_subgroup=2, topology=topology),
        *rest,
        SubGroup(name=LEADER, min_member=1, parent=first),
        SubGroup(name=WORKERS, min_member=segmentation.workers_of(0), parent=first),
    )
    segment = segmentation.segment_of(index)
    return subgroups, LEADER if index == 0 else WORKERS if segment == 0 else _segment_name(segment)


def _segment_name(segment: int) -> str:
    return f"segment-{segment}"


def _segmentation(lws: Resource, replica: _Replica) -> _Segmentation | None:
    """Return the segmentation of the set; None if it has none, or only the leader counts.

    Raises: InputError when the segment size is not in 2...size of the replica, or the policy is unknown.
    """
    size = _segment_size(lws.fields, lws)
    if size is None or replica.is_starting:
        return None
    if not 1 < size <= replica.size:
        raise InputError.about(
            str(lws), "segment size", found=size, wanted=f"2...{replica.size}, the size of a replica"
        )
    path = (*TEMPLATE, "subGroupPolicy", "subGroupPolicyType")
    policy = lws.fields.text(*path) or LEADER_WORKER
    if policy not in {LEADER_WORKER, LEADER_EXCLUDED}:
        raise lws.fields.error(path, policy, f"{LEADER_WORKER} or {LEADER_EXCLUDED}")
    return _Segmentation(size, policy, replica.size)


def _segment_size(fields: Fields, lws: Resource) -> int | None:
    size = fields.integer(*TEMPLATE, "subGroupPolicy", "subGroupSize")
    if size is not None:
        return size
    key = names.SEGMENT_SIZE
    if key in lws.annotations:
        return checked_integer(lws.annotations[key], lws, f'metadata.annotations["{key}"]', at_least=2)
    text = template_annotation(fields.child(*TEMPLATE, "workerTemplate"), key)
    if text is None:
        return None
    where = ".".join((*TEMPLATE, "workerTemplate", f'metadata.annotations["{key}"]'))
    return checked_integer(text, lws, where, at_least=2)
