"""Pod groups and the trees of their sub-groups."""

from collections.abc import Mapping

import attrs

from kai.model.constraints import TopologyConstraint

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
    """Why the declared sub-groups were not usable (the group then counts as one flat gang of minimum 1)."""

    held: str = ""
    """Why none of its pods that wait may be tried; "" if they may. Pods that have a place keep it and count."""
    held_code: str = "PodGroupRefused"
    """The reason code of that."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"
