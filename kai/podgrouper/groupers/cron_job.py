"""CronJobs: each run is a workload of its own."""

from typing import ClassVar

from kai.podgrouper import kinds
from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.grouper import Request
from kai.podgrouper.lookup import Get
from kai.podgrouper.rules import standard_draft
from kai.podgrouper.settings import KindPattern


class CronJob:
    """One group for each Job that the CronJob starts."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("batch", "v1", "CronJob"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group of the pod's Job; the Job's minimum is not looked at.

        Raises: InputError when the pod has no Job among its owners, or the Job does not exist.
        """
        pod = request.pod
        job = next((owner for owner in pod.owner_references if owner.kind.kind == kinds.JOB.kind), None)
        if job is None:
            listed = ", ".join(str(owner) for owner in pod.owner_references) or None
            raise pod.error("metadata.ownerReferences", listed, "a Job among the owners of a CronJob's pod")
        return standard_draft(request, request.reader.need(Get(kinds.JOB, pod.namespace, job.name)))
