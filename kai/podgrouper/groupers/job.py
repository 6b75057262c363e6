"""Jobs of ``batch/v1``: all pods of a Job in one group, which starts with the first of them unless told otherwise."""

from typing import ClassVar

import attrs

from kai.api import names
from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.existing import group_exists
from kai.podgrouper.grouper import Request
from kai.podgrouper.resource import annotated_integer
from kai.podgrouper.rules import standard_draft
from kai.podgrouper.settings import KindPattern


class Job:
    """One group for the Job; an annotation makes it a gang."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("batch", "v1", "Job"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group with the annotated minimum.

        Raises: InputError when the annotation is no number of pods.
        """
        pod, job = request.pod, request.owner
        draft = standard_draft(request, job)
        # Earlier releases gave every pod of a Job a group of its own. One that exists keeps its pod: a running pod is
        # not moved to another group by an upgrade.
        legacy_name = f"pg-{pod.name}-{job.uid}"
        if legacy_name != draft.name and group_exists(request, legacy_name):
            return attrs.evolve(draft, name=legacy_name)
        min_member = annotated_integer(job, names.MIN_MEMBER, at_least=0)
        return draft if min_member is None else attrs.evolve(draft, min_member=min_member)
