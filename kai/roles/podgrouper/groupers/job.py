"""Jobs and CronJobs of ``batch/v1``.

All pods of a Job are in one group, which starts with the first of them unless an annotation sets a minimum.

Each run of a CronJob is a workload of its own.
"""

from typing import ClassVar

import attrs

from kai.api import names
from kai.basics.parsing import is_whole, part_of, signed
from kai.roles.podgrouper.decide import group_exists
from kai.roles.podgrouper.grouper import JOB, GroupDraft, KindPattern, Request
from kai.roles.podgrouper.lookup import Get
from kai.roles.podgrouper.resource import Resource, annotated_integer
from kai.roles.podgrouper.rules import standard_draft


class Job:
    """One group for the Job; an annotation makes it a gang."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("batch", "v1", "Job"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group with the annotated minimum, at most the number of pods that are still to complete.

        Raises: InputError when the annotation is not a valid number of pods.
        Source: the peer's Job grouper. It waits for the whole minimum even when some pods have completed: a pod
            that is lost then is recreated and never starts.
        """
        pod, job = request.pod, request.owner
        draft = standard_draft(request, job)
        # Earlier releases gave every pod of a Job a group of its own. An existing one keeps its pod: an upgrade must
        # not move a running pod to another group.
        legacy_name = f"pg-{pod.name}-{job.uid}"
        if legacy_name != draft.name and group_exists(request, legacy_name):
            return attrs.evolve(draft, name=legacy_name)
        min_member = annotated_integer(job, names.MIN_MEMBER, at_least=0)
        if min_member is None:
            return draft
        left = _left(job)
        # Not below 1: a minimum of 0 means an elastic group.
        return attrs.evolve(draft, min_member=min_member if left is None else min(min_member, max(left, 1)))


def _left(job: Resource) -> int | None:
    """Return how many pods of a Job are still to complete; None if it has no number of completions."""
    completions, succeeded = part_of(job.manifest, "spec", "completions"), part_of(job.manifest, "status", "succeeded")
    if not is_whole(completions) or not is_whole(succeeded or 0):
        return None
    # An indexed Job makes no further pod for an index that has used up its own back-off limit.
    return completions - (succeeded or 0) - _count(part_of(job.manifest, "status", "failedIndexes"))


def _count(indexes: object) -> int:
    """Return the number of indexes in a text such as ``1,3-5``, the form in which Jobs list failed indexes."""
    total = 0
    for part in indexes.split(",") if isinstance(indexes, str) else ():
        first, _, last = part.partition("-")
        start, end = signed(first), signed(last or first)
        if start is not None and end is not None:
            total += max(0, end - start + 1)
    return total


class CronJob:
    """One group for each Job that the CronJob starts."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("batch", "v1", "CronJob"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group of the pod's Job; the Job's minimum annotation is ignored.

        Raises: InputError when the pod has no Job among its owners, or the Job does not exist.
        """
        pod = request.pod
        job = next((owner for owner in pod.owner_references if owner.kind.kind == JOB.kind), None)
        if job is None:
            listed = ", ".join(str(owner) for owner in pod.owner_references) or None
            raise pod.error("metadata.ownerReferences", listed, "a Job among the owners of a CronJob's pod")
        return standard_draft(request, request.reader.need(Get(JOB, pod.namespace, job.name)))
