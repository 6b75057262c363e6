"""Conditions that say why something waits: what they say, whether two are the same, and how they are written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Patch, Ref
from kai.api.scheduling.pod_group import PodGroup, SchedulingCondition
from kai.framework.verdict import Code

OURS: Final = frozenset(
    {names.UNSCHEDULABLE_REASON, Code.BIND_REFUSED.value, Code.HELD_FOR_LEAVING.value, Code.NOT_READY.value}
)
"""Reasons under which kai says of a pod why it has no node."""


def conditions(group: PodGroup, wanted: tuple[SchedulingCondition, ...]) -> Patch:
    """Return the write of the conditions of a group."""
    # The list is written whole, and other pools have conditions in it: only onto the version that we read.
    metadata = {"uid": group.metadata.uid, "resourceVersion": group.metadata.resource_version}
    status = {"schedulingConditions": [unstructure(each) for each in wanted]}
    ref = Ref.to(group)
    return Patch(ref=ref, patch={"metadata": metadata, "status": status}, subresource="status")


def explanation(pod: Pod) -> tuple[str, str] | None:
    """Return reason and message with which the pod's condition says why it waits; None if it says nothing of that.

    The API server says of pods with gates that these keep them.
    """
    for each in pod.status.conditions:
        if each.type == names.POD_SCHEDULED_CONDITION:
            is_ours = each.status == "False" and each.reason in OURS
            return (each.reason, each.message) if is_ours else None
    return None


def same_condition(last: SchedulingCondition, wanted: SchedulingCondition) -> bool:
    """Return whether two conditions say the same, figures and all."""
    return same_in_kind(last, wanted) and last.message == wanted.message


def same_in_kind(last: SchedulingCondition, wanted: SchedulingCondition) -> bool:
    """Return whether two conditions give the same reasons."""
    facts = [
        (each.type, each.node_pool, each.reason, each.status, tuple(reason.reason for reason in each.reasons))
        for each in (last, wanted)
    ]
    return facts[0] == facts[1]


def next_id(conditions: Iterable[SchedulingCondition]) -> str:
    """Return the number of the next transition; one that cannot be read counts as 0."""
    last = [each.transition_id for each in conditions][-1:]
    return str(int(last[0]) + 1 if last and last[0].isascii() and last[0].isdigit() else 1)
