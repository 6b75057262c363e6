"""RunaiJobs: one group for each of the pods' common name stems."""

from typing import ClassVar

import attrs

from kai.errors import InputError
from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.existing import group_exists
from kai.podgrouper.grouper import Request
from kai.podgrouper.rules import standard_draft
from kai.podgrouper.settings import KindPattern


class RunaiJob:
    """A group named after the pod without its last part, which a hyper-parameter search varies."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("run.ai", "v1", "RunaiJob"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group; one that exists under the name of an earlier release keeps its pods."""
        draft = standard_draft(request, request.owner)
        legacy_name = _legacy_name(request)
        if group_exists(request, legacy_name):
            return attrs.evolve(draft, name=legacy_name)
        stem, dash, _ = request.pod.name.rpartition("-")
        return attrs.evolve(draft, name=f"pg-{stem if dash else request.pod.name}-{request.owner.uid}")


def _legacy_name(request: Request) -> str:
    job = request.owner
    try:
        is_parallel = (job.fields.integer("spec", "parallelism") or 0) > 1
    except InputError:
        is_parallel = False  # an unusable figure says no more than none, and only an old name hangs on it
    return f"pg-{request.pod.name if is_parallel else job.name}-{job.uid}"
