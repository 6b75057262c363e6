"""SPOTRequests."""

from typing import ClassVar

from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.grouper import Request
from kai.podgrouper.rules import INFERENCE, standard_draft
from kai.podgrouper.settings import KindPattern


class SpotRequest:
    """One group for the request, of inference priority unless it says otherwise."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("egx.nvidia.io", "v1", "SPOTRequest"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group."""
        return standard_draft(request, request.owner, fallback=INFERENCE)
