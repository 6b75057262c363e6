"""Azure ML jobs."""

from typing import ClassVar

import attrs

from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.grouper import Request
from kai.podgrouper.rules import standard_draft
from kai.podgrouper.settings import KindPattern

NODE_COUNT = ("spec", "job", "options", "envs", "AZUREML_NODE_COUNT")


class AmlJob:
    """A gang of as many pods as the job has nodes."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("amlarc.azureml.com", "v1alpha1", "AmlJob"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group with the node count as its minimum.

        Raises: InputError when the job does not state it.
        """
        fields = request.owner.fields
        count = fields.integer(*NODE_COUNT)
        if count is None:
            raise fields.error(NODE_COUNT, None, "the number of nodes")
        return attrs.evolve(standard_draft(request, request.owner), min_member=count)
