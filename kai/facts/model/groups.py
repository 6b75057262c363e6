"""Queues, pod groups with the trees of their sub-groups, and crowds.

Queues form a tree of quotas. A crowd is a namespace with too many waiting groups, or shapes of them, for one cycle: the
cycle considers only some of them.
"""

from collections.abc import Mapping, Sequence
from math import inf

import attrs
import numpy as np

from kai.basics.schedules import Openings
from kai.facts.model.axis import GroupRows
from kai.facts.model.constraints import TopologyConstraint

UNLIMITED = -1.0


@attrs.frozen(kw_only=True)
class Shares:
    """One number of a queue per shared resource, in axis units (millicores, bytes, thousandths of a GPU).

    -1 is unlimited.
    """

    cpu: float = 0.0
    memory: float = 0.0
    gpu: float = 0.0

    def of(self, resource: int) -> float:
        """Return the number for the resource at this place of the axis: CPU, memory or GPU."""
        return (self.cpu, self.memory, self.gpu)[resource]


@attrs.frozen(kw_only=True)
class ModelBounds:
    """What a queue is owed and may use of one model of GPUs, in thousandths of GPUs; -1 is unlimited."""

    quota: float = 0.0
    limit: float = UNLIMITED


@attrs.frozen(kw_only=True)
class Windows:
    """What is known of a queue whose quota follows the clock. Times are seconds since the epoch."""

    until: float = inf
    """When its amounts may change next."""
    lower_quotas: tuple[tuple[float, Shares], ...] = ()
    """The quotas to come that are lower than all before, by resource, each with the instant from which it holds."""
    next_limit: tuple[float, Shares] | None = None
    """The first other limit to come, and the instant from which it holds."""
    next_user_limit: tuple[float, Shares] | None = None
    """The first other limit of each user to come, and the instant from which it holds."""
    timezone: str = ""
    """The IANA zone in which people read these instants; "" for UTC."""
    draining: tuple[Openings, ...] = ()
    """Closed windows whose work is not reclaimed."""
    ended_at: float | None = None
    """When a window closed whose work is evicted; None while it is open."""
    ended: str = ""
    """The name of that window."""
    ending: tuple[float, str, Shares] | None = None
    """When a window closes whose work is then evicted, its name, and the quota from then on; None before its notice."""


@attrs.frozen(kw_only=True)
class Queue:
    """One queue. ``parent`` is a row of the queue table, -1 for a top queue; weights are plain numbers."""

    name: str
    display_name: str = ""
    parent: int = -1
    priority: int = 100
    created: float = 0.0
    quota: Shares = Shares()
    limit: Shares = Shares()
    weight: Shares = Shares()
    usage: Shares = Shares()
    """Past usage as a fraction of the cluster, 0 without a usage database."""
    preempt_min_runtime: float | None = None
    reclaim_min_runtime: float | None = None
    models: Mapping[str, ModelBounds] = attrs.field(factory=dict, hash=False)
    """Bounds by model of GPU; other models are bounded by ``limit`` alone."""
    per_user: Shares | None = None
    """What each user may hold in the queue and in those below; None: users have no limits."""
    windows: Windows | None = None
    """None where the quota does not follow the clock."""
    labels: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    """Of the object, for plugins; kai itself decides by none of them."""

    @property
    def title(self) -> str:
        """The name that people see."""
        return self.display_name or self.name


def models_in(queues: Sequence[Queue]) -> tuple[str, ...]:
    """Return the models of GPUs that queues name, sorted."""
    return tuple(sorted({model for queue in queues for model in queue.models}))


def next_change(queues: Sequence[Queue]) -> float:
    """Return when the clock may change the amounts of a queue next; infinity for never."""
    return min((queue.windows.until for queue in queues if queue.windows is not None), default=inf)


def lasting_quota(queue: Queue, until: float = inf) -> Shares:
    """Return the least quota of each resource that holds at some instant from now to ``until``, as far as is known."""
    shares = queue.quota
    for at, lower in lower_quotas(queue):
        # In order of time, each lower than all before: the last one that begins in time is the least.
        if at < until:
            shares = lower
    return shares


def lower_quotas(queue: Queue) -> tuple[tuple[float, Shares], ...]:
    """Return the quotas to come that are lower than all before, each with the instant from which it holds."""
    return () if queue.windows is None else queue.windows.lower_quotas


def path_to(queues: Sequence[Queue], row: int) -> list[int]:
    """Return the rows of queues from the top one down to ``row``; none for -1. Intake rejects cycles."""
    path = []
    while row >= 0:
        path.append(row)
        row = queues[row].parent
    return path[::-1]


DEFAULT_SUBGROUP = "default"


@attrs.frozen(kw_only=True)
class SubGroup:
    """A node of a group's tree.

    Leaves hold pods and need ``minimum`` of them; inner nodes need ``minimum`` satisfied children (None: all).
    """

    name: str
    parent: int
    """Position of the parent in ``PodGroup.subgroups``; -1 for the root, which is always first and called ""."""
    leaf: bool
    minimum: int | None
    constraint: TopologyConstraint | None = None


@attrs.frozen(kw_only=True)
class RunBound:
    """What limits the run of a group, and its own limits only: no queue's quota, no demand of others.

    Units: seconds of running; ``since`` in seconds since the epoch.
    """

    left: float = inf
    """How long it may run from ``since`` on; infinity where nothing ends it."""
    since: float | None = None
    """When the present run began; None while it does not run."""
    yields: float | None = None
    """How long after its last start it gives way to its equals; None: never."""

    def end(self, now: float) -> float:
        """Return when the group has ended at the latest if it runs now, or is started now; infinity without an end."""
        return max(now, (now if self.since is None else self.since) + self.left)


@attrs.frozen(kw_only=True, weakref_slot=False)
class PodGroup:
    """One pod group. Times are seconds since the epoch, durations seconds, None where not set."""

    name: str
    namespace: str
    uid: str
    queue: str
    queue_row: int
    """Row of the queue; -1 when it does not exist."""
    priority: int
    preemptible: bool
    created: float
    subgroups: tuple[SubGroup, ...]
    last_start: float | None = None
    last_eviction: float | None = None
    stale_since: float | None = None
    partial_since: float | None = None
    staleness_grace: float | None = None
    preemption_delay: float | None = None
    node_pool: str = ""
    mark_unschedulable: bool = True
    scheduling_backoff: int | None = None
    labels: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    annotations: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    tree_error: str = ""
    """Why the declared sub-groups were unusable (the group then counts as one flat gang of minimum 1)."""

    held: str = ""
    """Why its waiting pods may not be scheduled; "" if they may. Pods that have a place keep it and count."""
    held_code: str = "PodGroupRefused"
    """The reason code of ``held``."""
    bound: RunBound | None = None
    """None where nothing limits its run."""
    user: str = ""
    """The account that created the workload, as admission noted it; "" where there is no note."""

    @property
    def holder(self) -> str:
        """Whose limit counts in queues that limit users: the user, or the namespace of a group without a note."""
        return self.user or f"namespace {self.namespace}"

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@attrs.frozen(kw_only=True)
class Crowd:
    """A namespace with too many waiting groups or shapes for one cycle."""

    namespace: str
    shapes: int
    """The number of shapes of its pending pods."""
    considered: int
    """The most shapes that a cycle considers; 0 is all."""
    pods: int
    """The number of its waiting pods."""
    at_a_time: int
    """The most of these pods that a cycle considers; 0 is all."""
    turns: int
    """The number of cycles until each was considered once."""
    groups: GroupRows = attrs.field(eq=False)
    """The groups that wait for their turn."""


@attrs.frozen(kw_only=True)
class Crowds:
    """All crowds of a snapshot."""

    by_namespace: Mapping[str, Crowd] = attrs.field(factory=dict)
    waiting: GroupRows = attrs.field(factory=lambda: np.zeros(0, np.int64), eq=False)
    """Groups that wait for their turn, ascending."""

    @property
    def turns(self) -> int:
        """The number of cycles until every group was considered once; 1 without a crowd."""
        return max((each.turns for each in self.by_namespace.values()), default=1)
