"""Queue and Topology: the trees of quotas and of node domains.

A Queue (scheduling.run.ai/v2) is a node of the tree of quotas.

A Topology (kai.scheduler/v1alpha1) has the levels of a data centre, as node labels from the widest to the narrowest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

import attrs

from kai.api.fields import EMPTY, Amounts, Int32, ObjectName, Pattern, Seconds, Share, Time, by_content
from kai.api.kubernetes.meta import Condition, ObjectMeta

DEEPEST_QUEUE: Final = 32
"""The most levels of queues that are scheduled. Every cycle walks from queues to their tops, for each group that it
looks at: a chain of 600 queues makes a cycle of an otherwise empty cluster take seconds."""

ScheduleText: TypeAlias = Annotated[str, Pattern(longest=256)]
ZoneName: TypeAlias = Annotated[str, Pattern(longest=64)]
DisplayName: TypeAlias = Annotated[str, Pattern(longest=1024)]


@attrs.frozen(kw_only=True)
class QueueResource:
    """What a queue may have of one resource.

    Units: GPUs in devices, CPU in millicores, memory in megabytes (10^6 bytes); -1 is unlimited.
    Source: in the peer an absent limit decodes to 0, not to unlimited.
    """

    quota: Share = 0.0
    over_quota_weight: Share = 0.0
    limit: Share = 0.0


@attrs.frozen(kw_only=True)
class QueueModel:
    """What a queue may have of one model of GPUs.

    Units: devices; -1 or an absent limit is unlimited, an absent quota is 0.
    """

    quota: Share = 0.0
    limit: Share = -1.0


@attrs.frozen(kw_only=True)
class UserResource:
    """What each user of a queue may hold of one resource.

    Units: those of the queue's own limit; -1 or an absent limit is unlimited.
    """

    limit: Share = -1.0


@attrs.frozen(kw_only=True)
class UserResources:
    """What each user of a queue may hold of each resource, in the queue and in all queues below it."""

    gpu: UserResource = UserResource()
    cpu: UserResource = UserResource()
    memory: UserResource = UserResource()


@attrs.frozen(kw_only=True)
class QueueResources:
    """What a queue and each of its users may have of each resource, and of models of its GPUs by their short names."""

    gpu: QueueResource = QueueResource()
    cpu: QueueResource = QueueResource()
    memory: QueueResource = QueueResource()
    models: Mapping[str, QueueModel] = attrs.field(default=EMPTY, eq=by_content)
    per_user: UserResources | None = None


@attrs.frozen(kw_only=True)
class ScheduledResource:
    """What changes of one resource while a window is open; None stays as it is."""

    quota: Share | None = None
    over_quota_weight: Share | None = None
    limit: Share | None = None


@attrs.frozen(kw_only=True)
class ScheduledModel:
    """What changes of one model of GPUs while a window is open; None stays as it is."""

    quota: Share | None = None
    limit: Share | None = None


@attrs.frozen(kw_only=True)
class ScheduledUser:
    """What changes of the limit of each user for one resource while a window is open; None stays as it is."""

    limit: Share | None = None


@attrs.frozen(kw_only=True)
class ScheduledUsers:
    """What each user may hold while the window is open; other limits of users stay as outside of it."""

    gpu: ScheduledUser = ScheduledUser()
    cpu: ScheduledUser = ScheduledUser()
    memory: ScheduledUser = ScheduledUser()


@attrs.frozen(kw_only=True)
class ScheduledResources:
    """What changes of each resource while a window is open."""

    gpu: ScheduledResource = ScheduledResource()
    cpu: ScheduledResource = ScheduledResource()
    memory: ScheduledResource = ScheduledResource()
    models: Mapping[str, ScheduledModel] = attrs.field(default=EMPTY, eq=by_content)
    per_user: ScheduledUsers = ScheduledUsers()


OnClose: TypeAlias = Literal["drain", "reclaim", "evict"]
MOST_SCHEDULES: Final = 16
"""The most schedules of a queue: a week needs few, and each cycle at an edge reads them all."""


@attrs.frozen(kw_only=True)
class QueueSchedule:
    """A window that opens again and again, and the resources of the queue while it is open."""

    name: ObjectName
    start: ScheduleText
    duration: Seconds
    time_zone: ZoneName = ""
    resources: ScheduledResources = ScheduledResources()
    on_close: OnClose = "reclaim"
    notice: Seconds = 300.0


Enforce: TypeAlias = Literal["warn", "admit", "stop"]
Refund: TypeAlias = Literal["nodeFailure", "preempted"]
MOST_BUDGETS: Final = 8
"""The most budgets of a queue: each is a sum over the history of usage, for the queue and all below it."""
MOST_WEIGHTS: Final = 32


@attrs.frozen(kw_only=True)
class ModelWeight:
    """How much an hour of a GPU of some models counts."""

    model: ZoneName
    weight: Share


@attrs.frozen(kw_only=True)
class QueueBudget:
    """GPU-hours that a queue and the queues below it may use in a period.

    Units: hours of one GPU, each times the weight of its model.
    """

    name: ObjectName
    amount: Share
    weights: tuple[ModelWeight, ...] = ()
    period: ScheduleText = "monthly"
    time_zone: ZoneName = ""
    from_: Time | None = None
    until: Time | None = None
    carry_over: Share = 0.0
    enforce: Enforce = "admit"
    refund: tuple[Refund, ...] = ()
    slice: Seconds = 3600.0


@attrs.frozen(kw_only=True)
class QueueSpec:
    """Where a queue stands in the tree, and its shares. A queue without resources has no quota and limit 0."""

    display_name: DisplayName = ""
    parent_queue: ObjectName = ""
    priority: Int32 | None = None
    resources: QueueResources | None = None
    preempt_min_runtime: Seconds | None = None
    reclaim_min_runtime: Seconds | None = None
    max_runtime: Seconds | None = None
    default_runtime: Seconds | None = None
    schedules: tuple[QueueSchedule, ...] = ()
    budgets: tuple[QueueBudget, ...] = ()


@attrs.frozen(kw_only=True)
class BudgetStatus:
    """What was spent of a budget in the period that began at ``since``, as the scheduler saw it at ``at``.

    Units: GPU-hours, weighted. ``user_hours`` are those of the users who spent most.
    """

    name: ObjectName
    since: Time
    at: Time
    spent: Share
    committed: Share = 0.0
    until: Time | None = None
    carried: Share = 0.0
    user_hours: Mapping[str, Share] = attrs.field(default=EMPTY, eq=by_content)


@attrs.frozen(kw_only=True)
class QueueStatus:
    """What a queue's pod groups use and ask for, written by the queue controller; its fair share by the scheduler.

    Source: in the peer a queue's fair share is a metric only.
    """

    child_queues: tuple[str, ...] = ()
    allocated: Amounts = attrs.field(default=EMPTY, eq=by_content)
    allocated_non_preemptible: Amounts = attrs.field(default=EMPTY, eq=by_content)
    requested: Amounts = attrs.field(default=EMPTY, eq=by_content)
    fair_share: Amounts = attrs.field(default=EMPTY, eq=by_content)
    budgets: tuple[BudgetStatus, ...] = ()
    conditions: tuple[Condition, ...] = ()


@attrs.frozen(kw_only=True)
class Queue:
    """A queue."""

    metadata: ObjectMeta = ObjectMeta()
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()


_PREFIX = r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
LabelKey: TypeAlias = Annotated[
    str,
    Pattern(rf"^{_PREFIX}([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$", shortest=1, longest=316),
]


@attrs.frozen(kw_only=True)
class TopologyLevel:
    """One level: the node label that names a node's domain there, and a shorter name for the level."""

    node_label: LabelKey
    alias: LabelKey | None = None


@attrs.frozen(kw_only=True)
class TopologySpec:
    """The levels of a topology."""

    levels: tuple[TopologyLevel, ...] = ()


@attrs.frozen(kw_only=True)
class Topology:
    """A topology."""

    metadata: ObjectMeta = ObjectMeta()
    spec: TopologySpec = TopologySpec()
