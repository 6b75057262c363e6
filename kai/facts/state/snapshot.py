"""The snapshot: one immutable picture of a cluster.

Facts as frozen objects (what is read once per decision or in an explanation) and as columns (what is read in a loop).
Row *i* of every pod column is ``snapshot.pods[i]``; rows are in name order, which is the last tie-break everywhere,
so decisions do not depend on the order in which objects arrived.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cached_property
from math import inf
from typing import TypeVar

import attrs
import numpy as np

from kai.facts.model.axis import PLUGGED_GPU, Bools, Int64s, ResourceAxis, locked
from kai.facts.model.budgets import Budget
from kai.facts.model.claim import RawObject
from kai.facts.model.groups import Crowds, PodGroup, Queue
from kai.facts.model.partitions import Catalog
from kai.facts.model.placement import Past
from kai.facts.model.pod import UNKNOWN_GPU_MEMORY, Node, Pod, Shape
from kai.facts.state.memory import Memory, SnapshotVersions, even_steps

T = TypeVar("T")


@attrs.frozen(kw_only=True, eq=False)
class BudgetTable:
    """The budgets of all queues at the instant of a snapshot.

    Shapes: A budgets, N nodes, G groups, M GPU models.
    """

    budgets: tuple[Budget, ...]
    """All budgets, also with ``warn``, by the row of their queue."""
    weights: Int64s
    """[A, M + 1] What an hour of a GPU of each model counts at each budget, in thousandths; the last is the most."""
    node_model: Int64s
    """[N] The model of each node."""
    group_model: Int64s
    """[G] The model that a group is bound to; M for any."""
    duration: Int64s
    """[G] Milliseconds for which pods of a group are charged; -1 for work that would need a limit."""
    sliced: Int64s
    """Groups that have a place and no known end, ascending."""
    unending: Bools
    """[G] Groups without a known end, those too that wait."""
    at: int
    """The instant, in milliseconds since the epoch."""
    next_change: float = inf
    """When the clock changes an answer next: a period ends, or a slice. Seconds since the epoch."""
    bounding: tuple[Budget, ...] = attrs.field(init=False)
    """The budgets that bound starts; their rows are those of columns."""

    @bounding.default
    def _bounding(self) -> tuple[Budget, ...]:
        return tuple([each for each in self.budgets if each.bounds_starts])

    def held(self, budget_used: Int64s, budget_left: Int64s) -> dict[tuple[int, str], int]:
        """Return what running work may still cost, by the row of the queue and the name of each budget that bounds.

        ``budget_used`` [B] is the column of a ledger, in GPU-microseconds, and ``budget_left`` [B] what was left when
        that was booked: what was used since is no longer to come.
        """
        rows = zip(self.bounding, budget_used.tolist(), budget_left.tolist(), strict=True)
        return {
            (each.queue, each.name): used if each.spent is None else max(0, used - max(0, left - each.left))
            for each, used, left in rows
        }


@attrs.frozen(kw_only=True, slots=False)
class Snapshot:
    """Everything a cycle may know. Shapes: P pods, N nodes, G groups, K shapes, Q queues.

    ``now`` is seconds since the epoch; the core has no other clock.
    """

    now: float
    axis: ResourceAxis
    nodes: tuple[Node, ...] = ()
    """By name."""
    pods: Sequence[Pod] = ()
    """By (namespace, name)."""
    shapes: tuple[Shape, ...] = ()
    """In order of first use by pod row."""
    groups: Sequence[PodGroup] = ()
    """By (name, namespace)."""
    queues: tuple[Queue, ...] = ()
    """By name."""
    foreign: Mapping[tuple[str, str], tuple[RawObject, ...]] = attrs.field(factory=dict)
    """Objects that plugins read, as written, by apiVersion and kind; in name order."""
    catalog: Catalog = attrs.field(factory=Catalog)
    pod_shape: Int64s = attrs.field(factory=lambda: np.zeros(0, np.int64), eq=False)
    pod_group: Int64s = attrs.field(factory=lambda: np.zeros(0, np.int64), eq=False)
    """Row of the group, -1 for pods that belong to none."""
    pod_subgroup: Int64s = attrs.field(factory=lambda: np.zeros(0, np.int64), eq=False)
    """Position of the pod's leaf in ``groups[g].subgroups``, -1 when its label names none."""
    pod_status: Int64s = attrs.field(factory=lambda: np.zeros(0, np.int64), eq=False)
    pod_node: Int64s = attrs.field(factory=lambda: np.zeros(0, np.int64), eq=False)
    """Row of the node, -1 for none or one outside the snapshot."""
    pod_reservation: Bools = attrs.field(factory=lambda: np.zeros(0, np.bool_), eq=False)
    """Pods that hold a device for pods that share it."""
    pod_devices: Mapping[int, tuple[str, ...]] = attrs.field(factory=dict)
    """Names of the shared devices (GPU groups) of sharing pods that have a place, by pod row."""
    bind_requests: Mapping[int, RawObject] = attrs.field(factory=dict, eq=False)
    """Live bind requests as written, by pod row: the details of placements that are on their way."""
    past: Past = attrs.field(factory=Past)
    budgets: BudgetTable | None = attrs.field(default=None, eq=False)
    """The budgets of queues at ``now``; None where no queue has one. The ``content`` of versions leaves them out."""
    revision: int = 0
    """The number of the cycle that this snapshot is for."""
    crowds: Crowds = attrs.field(factory=Crowds)
    """The namespaces whose groups take turns, and the groups that wait in this cycle."""
    versions: SnapshotVersions = attrs.field(factory=SnapshotVersions, eq=False, repr=False, init=False)
    """What it shares with the snapshots before it; a snapshot that was changed by hand shares nothing."""

    def with_versions(self, versions: SnapshotVersions) -> "Snapshot":
        """Set the versions, and return this snapshot; only its maker may call this, before others see the snapshot."""
        # Not `evolve`: that would copy the object and drop what its cached properties know already.
        object.__setattr__(self, "versions", versions)
        return self

    def at(self, now: float, revision: int, past: Past) -> "Snapshot":
        """Return the same facts at another instant; ``past`` may differ in awaited groups and in what was spent."""
        # `evolve` leaves out fields that are not arguments of the constructor, so the versions must be handed on; else
        # the whole next cycle would read everything in full.
        return attrs.evolve(self, now=now, revision=revision, past=past).with_versions(self.versions)

    def with_budgets(self, budgets: BudgetTable | None) -> "Snapshot":
        """Return the same facts with what of budgets is left; this snapshot where that is None, now and before."""
        if budgets is None and self.budgets is None:
            return self
        return attrs.evolve(self, budgets=budgets).with_versions(self.versions)

    def apart(self) -> "Snapshot":
        """Return the same facts with a memory of their own, for a thread other than that of the cycles."""
        return attrs.evolve(self)

    def locked(self) -> "Snapshot":
        """Return the same facts in read-only arrays. Cost: that of ten views."""
        # The views are of the same memory: nothing is copied, and a plugin that tries to write gets an error where it
        # does so.
        shown = copy(self)
        # Lazy columns are computed here, so that they are locked too when plugins read them later.
        for name in ("first_subgroup", "requests", *vars(self)):
            value = getattr(self, name)
            if isinstance(value, np.ndarray):
                vars(shown)[name] = locked(value)
        return shown

    @property
    def memory(self) -> Memory:
        """Memoized answers, shared with earlier snapshots of the same intake."""
        return self.versions.memory

    @cached_property
    def first_subgroup(self) -> Int64s:
        """Return int64[G + 1]: the sub-groups of group g have rows first_subgroup[g] .. first_subgroup[g + 1]."""
        groups, rows = self.groups, self.memory.rows

        def read(chosen: Sequence[int]) -> tuple[Int64s]:
            return (np.array([len(groups[row].subgroups) for row in chosen], np.int64),)

        (counts,) = rows.columns("subgroup counts", self.versions.groups, len(groups), read)

        def start() -> Int64s:
            if len(counts) and (counts == counts[0]).all():  # most often a cluster of single pods
                return even_steps(self.memory, int(counts[0]), len(counts) + 1)
            return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])

        return self.memory.once("first sub-groups", (counts,), start)

    @cached_property
    def node_rows(self) -> Mapping[str, int]:
        """Return the row of each node by name."""
        nodes = self.nodes
        return self.memory.once("node rows", (nodes,), lambda: {node.name: row for row, node in enumerate(nodes)})

    @cached_property
    def queue_rows(self) -> Mapping[str, int]:
        """Return the row of each queue by name."""
        return {queue.name: row for row, queue in enumerate(self.queues)}

    @cached_property
    def gpu_memories(self) -> tuple[int, ...]:
        """Return the distinct known memory sizes (MiB) of the GPUs of nodes, ascending."""
        nodes = self.nodes

        def known() -> tuple[int, ...]:
            return tuple(sorted({node.gpu_memory for node in nodes if node.gpu_memory > UNKNOWN_GPU_MEMORY}))

        return self.memory.once("memory of GPUs", (nodes,), known)

    @cached_property
    def requests(self) -> Int64s:
        """Return int64[K, R]: the request of a pod of each shape, in axis units."""
        axis, shapes = self.axis, self.shapes
        at = axis.index.get(PLUGGED_GPU)

        def row(shape: Shape) -> Int64s:
            amounts = axis.vector(dict(shape.request))
            if at is not None:
                amounts[at] = shape.plugged_gpus
            return amounts

        def table() -> Int64s:
            rows = self.by_shape("requests of shapes", row, axis)
            return np.array(rows, np.int64).reshape(len(shapes), len(axis))

        return self.memory.once("requests", (shapes, axis), table)

    def by_shape(self, name: str, read: Callable[[Shape], T], *inputs: object) -> tuple[T, ...]:
        """Return the results of ``read`` for each shape, memoized per shape as long as ``inputs`` are the same.

        Without that, thousands of pods that all differ would cost a call of ``read`` each in every cycle.
        """
        return self.memory.each(name, self.shapes, read, inputs)
