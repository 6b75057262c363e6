"""PodGroup (scheduling.run.ai/v2alpha2): pods that are scheduled together, and why they are not scheduled."""

from __future__ import annotations

from typing import Annotated, Final, Literal, TypeAlias

import attrs

from kai.api.fields import (
    EMPTY,
    Amounts,
    Count,
    Int32,
    LevelName,
    ObjectName,
    Pattern,
    Seconds,
    Time,
    by_content,
    shared,
)
from kai.api.kubernetes.meta import Condition, ObjectMeta

Preemptibility: TypeAlias = Literal["", "preemptible", "non-preemptible"]
_LONGEST_NAME: Final = 253
MOST_SUB_GROUPS: Final = 4096
"""Enough for sixteen thousand pods in segments of four. Every sub-group is visited whenever the group is."""
DEEPEST_SUB_GROUP: Final = 16
"""The most levels of sub-groups: as many as the levels that a topology may have."""

SubGroupName: TypeAlias = Annotated[str, Pattern("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", shortest=1, longest=253)]


@attrs.frozen(kw_only=True, weakref_slot=False)
class TopologyConstraint:
    """How close together pods must, or should, be: levels of a Topology, by node label or alias."""

    topology: ObjectName = ""
    required_topology_level: LevelName = ""
    preferred_topology_level: LevelName = ""


@attrs.frozen(kw_only=True, weakref_slot=False)
class SubGroup:
    """A part of a pod group; a leaf holds pods, others hold sub-groups."""

    name: SubGroupName
    parent: SubGroupName | None = None
    min_member: Count | None = None
    min_sub_group: Count | None = None
    topology_constraint: TopologyConstraint | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodGroupSpec:
    """What a pod group wants. `min_member` 0 is legal and means fully elastic; absent means 1."""

    queue: ObjectName = ""
    min_member: Count | None = None
    min_sub_group: Count | None = None
    priority_class_name: ObjectName = ""
    preemptibility: Preemptibility = ""
    topology_constraint: TopologyConstraint = TopologyConstraint()
    sub_groups: tuple[SubGroup, ...] = ()
    mark_unschedulable: bool | None = None
    scheduling_backoff: Int32 | None = None
    preemption_delay: Seconds | None = None
    staleness_grace_period: Seconds | None = None

    @property
    def minimum(self) -> int:
        """How many pods of a group without sub-groups must be placed together."""
        return 1 if self.min_member is None else self.min_member


@attrs.frozen(kw_only=True, weakref_slot=False)
class QueueDetails:
    """The queue's side of a refusal."""

    name: str = ""
    queue_requested_resources: Amounts = attrs.field(default=EMPTY, eq=by_content)
    queue_deserved_resources: Amounts = attrs.field(default=EMPTY, eq=by_content)
    queue_allocated_resources: Amounts = attrs.field(default=EMPTY, eq=by_content)
    queue_allocated_non_preemptible_resources: Amounts = attrs.field(default=EMPTY, eq=by_content)
    queue_resource_limits: Amounts = attrs.field(default=EMPTY, eq=by_content)
    pod_group_requested_resources: Amounts = attrs.field(default=EMPTY, eq=by_content)
    pod_group_requested_non_preemptible_resources: Amounts = attrs.field(default=EMPTY, eq=by_content)


@attrs.frozen(kw_only=True, weakref_slot=False)
class UnschedulableDetails:
    """Figures that belong to a refusal."""

    queue_details: QueueDetails | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class UnschedulableReason:
    """One reason why a pod group was not scheduled."""

    reason: str = ""
    message: str = ""
    details: UnschedulableDetails | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class SchedulingCondition:
    """The last word of one node pool on a pod group. `transition_id` is a decimal counter."""

    type: str = ""
    node_pool: str = ""
    reason: str = ""
    message: str = ""
    reasons: tuple[UnschedulableReason, ...] = ()
    transition_id: str = ""
    last_transition_time: Time | None = None
    status: str = ""


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodGroupResources:
    """What a pod group's pods use and ask for, written by the pod-group controller."""

    allocated: Amounts = attrs.field(default=EMPTY, eq=by_content)
    allocated_non_preemptible: Amounts = attrs.field(default=EMPTY, eq=by_content)
    requested: Amounts = attrs.field(default=EMPTY, eq=by_content)


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodGroupCondition(Condition):
    """A condition of a pod group; no current component sets one."""

    transition_id: str = ""


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodGroupStatus:
    """Where a pod group stands."""

    conditions: tuple[PodGroupCondition, ...] = ()
    scheduling_conditions: tuple[SchedulingCondition, ...] = ()
    resources_status: PodGroupResources = PodGroupResources()
    running_since: Time | None = None
    consumed_runtime: Seconds | None = None


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodGroup:
    """A pod group."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = attrs.field(default=PodGroupSpec(), metadata=shared())
    status: PodGroupStatus = attrs.field(default=PodGroupStatus(), metadata=shared())


def name_after(owner: str, uid: str) -> str:
    """Return the name of the group of an owner; the UID distinguishes it from an earlier owner of the same name.

    Source: the peer's names. A name beyond the limit is shortened; the peer's group is rejected.
    """
    room = _LONGEST_NAME - len(f"pg--{uid}")
    return f"pg-{owner if len(owner) <= room else owner[:room].rstrip('-.')}-{uid}"


def least_members(spec: PodGroupSpec) -> int:
    """Return the fewest pods with which a group can start, by its tree of sub-groups.

    Sub-groups that no top sub-group leads to count for nothing.
    """
    below: dict[str, list[SubGroup]] = {}
    for each in spec.sub_groups:
        below.setdefault(each.parent or "", []).append(each)
    if not below:
        return max(1, spec.minimum)
    parents = set(below)
    tree = below.pop("", [])
    for each in tree:  # the list grows during the walk: parents before children
        tree += below.pop(each.name, [])
    found: dict[str, list[int]] = {}
    for each in reversed(tree):
        least = 1 if each.min_member is None else each.min_member
        if each.name in parents:
            least = _fewest(found.get(each.name, []), each.min_sub_group)
        found.setdefault(each.parent or "", []).append(least)
    return max(1, _fewest(found.get("", []), spec.min_sub_group))


def _fewest(counts: list[int], needed: int | None) -> int:
    """Return the sum of the ``needed`` smallest counts; of all if None."""
    return sum(sorted(counts)[:needed])
