"""JobSets: a tree with a parent for every replicated job and a leaf for every replica of it."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import attrs

from kai.api import names
from kai.errors import InputError
from kai.podgrouper import kinds
from kai.podgrouper.draft import GroupDraft, SubGroup, Topology
from kai.podgrouper.existing import has_subgroups
from kai.podgrouper.grouper import Request
from kai.podgrouper.lookup import Absent, Many
from kai.podgrouper.resource import Fields, Resource, annotated_integer, checked_integer
from kai.podgrouper.rules import group_name, standard_draft
from kai.podgrouper.segments import template_annotation
from kai.podgrouper.settings import KindPattern

REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX = "jobset.sigs.k8s.io/job-index"
IN_ORDER = "InOrder"
DEPENDS_ON = "dependsOn"
COMPLETIONS = "completions"
EXCLUSIVE = ("alpha.jobset.sigs.k8s.io/exclusive-topology", "alpha.jobset.sigs.k8s.io/node-selector")
"""Gives a Job a zone for itself, and by labels of nodes, which need no webhook."""
MOST_LEAVES = 10_000
"""More replicas than this in one set are refused: the group would not fit into one API object."""


class JobSet:
    """One gang for the set. Jobs that start one after another need only one of them at first."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("jobset.x-k8s.io", "v1alpha2", "JobSet"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group with the tree of replicated jobs.

        Raises: InputError when the set has no jobs, or one of them, an annotation or a label is not what it must be.
        Source: the peer's JobSet grouper, which does not look at ``dependsOn`` and ``completions``, nor at zones that a
            Job has for itself, and so waits for pods that do not come. A set that has a group without sub-groups, as
            earlier releases made them, keeps that shape.
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
        subgroups = tuple(subgroup for job in jobs for subgroup in _subgroups(job, job_set))
        of_pod = f"{_label(pod, REPLICATED_JOB)}-replica-{_label(pod, JOB_INDEX)}"
        if all(subgroup.name != of_pod for subgroup in subgroups):
            raise pod.error("metadata.labels", of_pod, f"a replica of {job_set}")
        return attrs.evolve(draft, min_subgroup=min_subgroup, subgroups=subgroups, pod_subgroup=of_pod)


def _min_subgroup(job_set: Resource, jobs: Sequence[Fields]) -> int:
    """Return how many replicated jobs must be able to start together."""
    annotated = annotated_integer(job_set, names.MIN_MEMBER, at_least=1)
    if annotated is not None:
        return min(annotated, len(jobs))
    return 1 if _is_in_order(job_set) or any(map(depends, jobs)) else len(jobs)


def _is_in_order(job_set: Resource) -> bool:
    return job_set.fields.text("spec", "startupPolicy", "startupPolicyOrder") == IN_ORDER


def depends(job: Fields) -> bool:
    """Return whether a replicated job is made only when others are ready or complete.

    Raises: InputError when it says so in another form than a list.
    """
    return job.value.get(DEPENDS_ON) is not None and bool(job.children(DEPENDS_ON))


def _subgroups(job: Fields, job_set: Resource) -> Iterator[SubGroup]:
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
    """Return how many pods of one replica must be able to start together: all that its Job makes unless annotated."""
    parallelism = job.integer("template", "spec", "parallelism")
    text = template_annotation(job.child("template"), names.MIN_MEMBER)
    if text:
        field = f'{job.path}.template.metadata.annotations["{names.MIN_MEMBER}"]'
        return checked_integer(text, job_set, field, at_least=1)
    parallelism = 1 if parallelism is None else parallelism
    if _follow_the_first(job, job_set):
        return min(parallelism, 1)
    spec = job.child("template", "spec")
    completions = None if spec is None or spec.value.get(COMPLETIONS) is None else spec.integer(COMPLETIONS)
    return parallelism if completions is None else min(parallelism, completions)


def _follow_the_first(job: Fields, job_set: Resource) -> bool:
    """Return whether a webhook of JobSet makes the pods of a Job but the first wait until that has a node."""
    said = [template_annotation(job.child("template"), key) or job_set.annotations.get(key) for key in EXCLUSIVE]
    return said[0] is not None and said[1] is None


def _leaf_topology(job: Fields) -> Topology | None:
    """Return the constraint of each replica, or nothing unless a topology and a level of it are named."""
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
    read = Many(kinds.POD_GROUP, request.owner.namespace)
    groups = request.reader.many(read)
    if isinstance(groups, Absent):
        raise InputError(f"{read}: {groups}")
    return any(
        (group.name == name or group.name.startswith(f"{name}-")) and not has_subgroups(group) for group in groups
    )


def _flat_draft(draft: GroupDraft, job_set: Resource, pod: Resource) -> GroupDraft:
    """Return the group that earlier releases made: one for each job that starts in order, else one for the set."""
    job = _label(pod, REPLICATED_JOB)
    annotated = annotated_integer(job_set, names.MIN_MEMBER, at_least=0)
    return attrs.evolve(
        draft,
        name=f"{draft.name}-{job}" if _is_in_order(job_set) else draft.name,
        min_member=1 if annotated is None else annotated,
    )
