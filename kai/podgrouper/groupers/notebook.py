"""Kubeflow notebooks."""

from typing import ClassVar

from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.grouper import Request
from kai.podgrouper.rules import BUILD, standard_draft
from kai.podgrouper.settings import KindPattern


class Notebook:
    """One group for the notebook, of build priority unless it says otherwise: a person sits in front of it."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("kubeflow.org", "v1beta1", "Notebook"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group."""
        return standard_draft(request, request.owner, fallback=BUILD)
