"""The status of a pod group: the resources that its pods request and hold.

One look at a group turns its pods, and for some of them nodes and resource claims, into three lists of amounts and a
patch, or no patch if nothing changed. The shell that watches and writes knows no more than that.

A bound pod counts for the group for which it was bound, with its granted share.

Source: the peer's pod-group controller. We differ where it is plainly wrong: init containers, sidecars and overhead
count, a share of several devices is held on all of them, and a group that turns preemptible no longer shows its earlier
resources as non-preemptible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kai.api import names
from kai.api.conventions.amounts import Amount, plus, texts
from kai.api.conventions.binding import group_of
from kai.api.conventions.pod_amounts import Surroundings, count
from kai.api.kinds import title
from kai.api.scheduling.pod_group import PodGroup, PodGroupResources
from kai.api.values import BadValue
from kai.roles.controllers.sums import changed_lists

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai.api.kubernetes.meta import PriorityClass
    from kai.api.kubernetes.pod import Pod


def is_preemptible(group: PodGroup, classes: Iterable[PriorityClass]) -> bool:
    """Return whether a group may be preempted: by its own field, else by its priority.

    The priority is that of its class, else of the cluster's default class, else 50.
    """
    if group.spec.preemptibility:
        return group.spec.preemptibility == names.PREEMPTIBLE
    in_order = sorted(classes, key=lambda known: known.metadata.name)
    for known in in_order:
        if known.metadata.name == group.spec.priority_class_name:
            return known.value < names.NON_PREEMPTIBLE_PRIORITY
    for known in in_order:
        if known.global_default:
            return known.value < names.NON_PREEMPTIBLE_PRIORITY
    return names.DEFAULT_POD_GROUP_PRIORITY < names.NON_PREEMPTIBLE_PRIORITY


def pod_group_resources(group: PodGroup, pods: Iterable[Pod], around: Surroundings) -> PodGroupResources:
    """Return the resources that the pods of a group request and hold; pods of other groups among `pods` are ignored.

    Raises: BadValue that names a pod which cannot be counted. The controller then leaves the status as it is and
        tries again later.
    """
    requested: dict[str, Amount] = {}
    allocated: dict[str, Amount] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        if not _belongs(pod, group):
            continue
        try:
            asked, held = count(pod, around)
        except BadValue as error:
            raise error.of(title(pod)) from None
        requested = plus(requested, asked)
        allocated = plus(allocated, held)
    preemptible = is_preemptible(group, around.priority_classes)
    return PodGroupResources(
        requested=texts(requested),
        allocated=texts(allocated),
        allocated_non_preemptible={} if preemptible else texts(allocated),
    )


def status_patch(group: PodGroup, resources: PodGroupResources) -> dict[str, Any] | None:
    """Return the merge patch of the group's status; None if no amount changed, however it is written."""
    changes = changed_lists(group.status.resources_status, resources)
    return {"status": {"resourcesStatus": changes}} if changes else None


def _belongs(pod: Pod, group: PodGroup) -> bool:
    return group_of(pod) == group.metadata.name and pod.metadata.namespace == group.metadata.namespace
