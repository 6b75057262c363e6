"""Deployments and other services: kinds whose pods come one by one, or run for other reasons than a batch of work."""

from typing import ClassVar

import attrs

from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.grouper import Request
from kai.podgrouper.rules import INFERENCE, group_name, standard_draft
from kai.podgrouper.settings import KindPattern


class Deployment:
    """A group for each pod: replicas of a service do not wait for one another."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("apps", "v1", "Deployment"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return a group that belongs to the pod and is labelled as the Deployment is."""
        draft = standard_draft(request, request.owner, fallback=INFERENCE)
        return attrs.evolve(draft, owner=request.pod.reference, name=group_name(request.pod))
