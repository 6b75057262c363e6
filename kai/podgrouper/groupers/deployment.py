"""Deployments and DaemonSets: kinds whose pods come one by one, and do not wait for one another."""

from typing import ClassVar

import attrs

from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.grouper import Request
from kai.podgrouper.rules import INFERENCE, TRAIN, group_name, standard_draft
from kai.podgrouper.settings import KindPattern

FALLBACKS = {"Deployment": INFERENCE, "DaemonSet": TRAIN}
"""Kind → its default priority class. Pods of a DaemonSet have that of pods without an owner."""


class Deployment:
    """A group for each pod: replicas of a service do not wait for one another."""

    kinds: ClassVar[tuple[KindPattern, ...]] = tuple(KindPattern("apps", "v1", kind) for kind in FALLBACKS)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return a group that belongs to the pod and is labelled as its owner is.

        Source: the peer's Deployment grouper. It has no right to read DaemonSets, so that their pods are grouped one by
            one there as well, and labels of the DaemonSet count for nothing.
        """
        draft = standard_draft(request, request.owner, fallback=FALLBACKS.get(request.owner.kind.kind, TRAIN))
        return attrs.evolve(draft, owner=request.pod.reference, name=group_name(request.pod))
