"""The view of a session for plugins: facts, live read-only columns, and queries that many plugins share.

``SessionView`` is the contract. An engine must implement its first part; the second derives from the first and is the
same for every engine.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from kai.facts.kernels.columns import Columns, Facts
from kai.facts.kernels.fit import Rules, Vectors
from kai.facts.kernels.groups import nodes_of_group
from kai.facts.model.axis import (
    Bools,
    Float64s,
    GroupRow,
    GroupRows,
    Int64s,
    NodeRow,
    NodeRows,
    PodRow,
    PodRows,
    QueueRow,
    locked,
)
from kai.facts.model.constraints import NodeTerm
from kai.facts.model.groups import PodGroup
from kai.facts.model.pod import ACTIVE_ALLOCATED, ACTIVE_USED, Pod, Status
from kai.facts.state.ledger import Tracked
from kai.facts.state.memory import PodKind, PodKinds
from kai.facts.state.snapshot import Snapshot
from kai.facts.state.table_version import TableVersion
from kai.framework.objects import Column, LabelTable, Objects
from kai.framework.parameters import AS_PEER, Parameters

NAME = "metadata.name"
T = TypeVar("T")


class SessionView(Protocol):
    """A read-only view of a session. ``columns`` is live: it follows every placement and every undo.

    Its arrays are read-only. A kernel takes them in a struct, such as ``columns`` itself, or as a copy.
    """

    # ------------------------------------------------------------------ what an engine gives

    @property
    @abstractmethod
    def snapshot(self) -> Snapshot:
        """The facts of the cycle. Use ``is_past``, ``are_past`` or ``now`` instead of its instant."""

    @property
    @abstractmethod
    def parameters(self) -> Parameters:
        """Settings of the scheduler that belong to no plugin."""

    @property
    @abstractmethod
    def now(self) -> float:
        """The instant of the cycle, in seconds since the epoch.

        The result of a cycle in which a plugin reads it cannot be reused. If a plugin only compares deadlines, use
        ``is_past``: then cycles that would decide nothing are skipped until the next deadline.
        """

    @abstractmethod
    def is_past(self, deadline: float) -> bool:
        """Return whether ``deadline`` (seconds since the epoch) has passed; NaN never passes."""

    @abstractmethod
    def are_past(self, deadlines: Float64s) -> Bools:
        """Return bool[n]: which of ``deadlines`` have passed; NaN never passes."""

    @property
    @abstractmethod
    def facts(self) -> Facts:
        """The tables that kernels read."""

    @property
    @abstractmethod
    def columns(self) -> Columns:
        """The mutable columns, read-only for plugins."""

    @property
    @abstractmethod
    def rules(self) -> Rules:
        """The folded score terms and checks; only after all plugins have opened."""

    @property
    @abstractmethod
    def vectors(self) -> Vectors:
        """The static masks and scores; only after all plugins have opened."""

    @property
    @abstractmethod
    def nodes(self) -> NodeRows:
        """All node rows."""

    @property
    @abstractmethod
    def requested(self) -> Float64s:
        """float64[K, 3]: CPU, memory and GPU that one pod of each shape is assumed to request before it has a node."""

    @property
    @abstractmethod
    def last_start(self) -> Float64s:
        """float64[G]: when each group last started, NaN if never; starts of this cycle included."""

    @property
    @abstractmethod
    def groups_by_age(self) -> GroupRows:
        """All group rows, oldest first."""

    @property
    @abstractmethod
    def constrained_groups(self) -> Bools:
        """bool[G]: groups with a topology constraint on some sub-group."""

    @abstractmethod
    def track(self, initial: Int64s) -> Tracked:
        """Return a column of the plugin's own that follows effects and undo; only while the plugin opens."""

    @abstractmethod
    def engine_column(self, name: str) -> Tracked:
        """Return a column of the engine as a target of effects.

        ``idle``, ``releasing`` and ``used`` of nodes, flat [N, R]; ``queue_used`` and ``queue_fixed``, flat [Q, 3];
        ``queue_models``, flat [Q, M]; ``user_used``, flat [A, 3].
        """

    @abstractmethod
    def has_column(self, column: Tracked) -> bool:
        """Return whether ``column`` belongs to this session; a column of an earlier session has no place in it."""

    @abstractmethod
    def evicted_detail(self, pod: PodRow, node: NodeRow, kind: str) -> object | None:
        """Return the detail of the placement on ``node`` that the open statement took from ``pod``; None: none."""

    @abstractmethod
    def chunk_amounts(self, group: GroupRow) -> Float64s:
        """Return float64[3]: CPU, memory and GPU that the next attempt on ``group`` places, in axis units."""

    # ------------------------------------------------------------------ what follows from it

    def once(self, name: str, inputs: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return the result of ``make``, memoized for the very same ``inputs`` across sessions.

        Use it for values that derive from facts (``snapshot.nodes`` and the like) and are expensive. ``make`` must
        depend only on ``inputs``, and its result must not be changed. ``name`` is the plugin's own.
        """
        return self.snapshot.memory.once(f"plugin: {name}", inputs, make)

    def values(self, objects: Objects) -> Mapping[str, object]:
        """Return the result of ``objects.read`` for each object of its kind, by ``namespace/name``, in name order.

        It is the same mapping as long as no object of the kind changes. Cost: a call for each changed object.
        """
        # Two plugins may read one kind in different ways, hence the identity in the name. That an identity is used
        # again after an `Objects` is gone does no harm: ``objects`` is also among the inputs, which must be the very
        # same.
        memory, name = self.snapshot.memory, f"objects of {objects.api_version} {objects.kind} for {id(objects)}"
        found = self.snapshot.foreign.get((objects.api_version, objects.kind), ())

        def read() -> Mapping[str, object]:
            values = memory.each(name, found, objects.value_of, (objects,))
            return {raw.key: value for raw, value in zip(found, values, strict=True)}

        return memory.once(name, (found, objects), read)

    def pod_column(self, column: Column) -> Float64s:
        """Return float64[P]: the number of each pod in ``column``. Cost: a call for each new or changed pod."""
        return self._column("pods", column, self.snapshot.pods, self.snapshot.versions.pods)

    def group_column(self, column: Column) -> Float64s:
        """Return float64[G]: the number of each group in ``column``. Cost: a call for each new or changed group."""
        return self._column("groups", column, self.snapshot.groups, self.snapshot.versions.groups)

    def _column(
        self, name: str, column: Column, objects: Sequence[Pod] | Sequence[PodGroup], version: TableVersion
    ) -> Float64s:
        def read(rows: Sequence[int]) -> tuple[Float64s]:
            some = [objects[row] for row in rows]
            return (np.array([column.of(each.labels, each.annotations) for each in some], np.float64),)

        # ``column`` is among the inputs as well, since an identity may be used again by another column.
        name = f"column {id(column)} of {name}"
        (found,) = self.snapshot.memory.rows.columns(name, version, len(objects), read, (column,))
        return locked(found)

    def pods_labelled(self, label: str) -> PodRows:
        """Return the rows of pods that have ``label``, ascending."""
        return self._pods_that(f"has label {label}", lambda kind: label in kind[1:])

    def pods_of_others(self) -> PodRows:
        """Return the rows of pods that belong to another scheduler, ascending."""
        ours = self.parameters.scheduler_name
        return self._pods_that(f"not of scheduler {ours}", lambda kind: kind[0] != ours)

    def _pods_that(self, name: str, holds: Callable[[PodKind], bool]) -> PodRows:
        """Return the rows of pods whose kind satisfies ``holds``. Cost: O(kinds), and O(P) in columns."""
        snapshot = self.snapshot
        found = snapshot.versions.kinds or snapshot.memory.once(
            "kinds", (snapshot.pods,), lambda: PodKinds.of(snapshot.pods)
        )

        def rows() -> PodRows:
            # Pods have few distinct kinds; ``holds`` is a call of Python, so it is asked about these and not about each
            # pod.
            chosen = np.array([holds(kind) for kind in found.kinds], np.bool_)
            pods = np.flatnonzero(chosen[found.numbers]).astype(np.int64) if chosen.any() else np.zeros(0, np.int64)
            # The result is kept for later sessions and handed to plugins: one that wrote to it would change the next
            # cycle.
            pods.flags.writeable = False
            return pods

        return snapshot.memory.once(name, (found.numbers,), rows)

    @cached_property
    def node_labels(self) -> LabelTable:
        """The labels of all nodes."""
        nodes = self.snapshot.nodes
        # Also kept across sessions, since the tuple of nodes is the same object until a node changes. A cached property
        # alone would end with the session and build every column anew.
        return self.once("labels of nodes", (nodes,), lambda: LabelTable([node.labels for node in nodes]))

    @cached_property
    def _node_fields(self) -> LabelTable:
        nodes = self.snapshot.nodes
        return self.once("names of nodes", (nodes,), lambda: LabelTable([{NAME: node.name} for node in nodes]))

    def label_codes(self, label: str) -> Int64s:
        """Return int64[N]: equal numbers for equal values of ``label``, in their order; 0 for nodes without it."""
        return self.node_labels.codes(label)

    def selected_nodes(self, terms: Iterable[NodeTerm]) -> Bools:
        """Return bool[N]: the nodes for which one of ``terms`` holds; a term without expressions holds for none."""
        mask = np.zeros(len(self.snapshot.nodes), np.bool_)
        for term in terms:
            # The terms are alternatives, the expressions of one term all must hold; a term with neither matches
            # nothing, which is also how Kubernetes reads one.
            if term.fields:
                mask |= self.node_labels.satisfies(term.labels) & self._node_fields.satisfies(term.fields)
            elif term.labels:
                mask |= self.node_labels.satisfies(term.labels)
        return mask

    def group_of(self, pod: PodRow) -> GroupRow:
        """Return the group of ``pod``, -1 for none."""
        return GroupRow(int(self.facts.pods.group[pod]))

    def queue_of(self, group: GroupRow) -> QueueRow:
        """Return the queue of ``group``, -1 for one that does not exist."""
        return QueueRow(int(self.facts.groups.queue[group]))

    def path_to(self, queue: int) -> list[int]:
        """Return the queues from the root down to ``queue``."""
        path = []
        while queue >= 0:
            path.append(queue)
            queue = int(self.facts.queues.parent[queue])
        return path[::-1]

    def shape_of(self, pod: PodRow) -> int:
        """Return the shape of ``pod``."""
        return int(self.facts.pods.shape[pod])

    def pods_of(self, group: GroupRow) -> PodRows:
        """Return all pods of ``group`` that belong to a sub-group, in pod order within each."""
        groups = self.facts.groups
        first, last = groups.first_subgroup[group], groups.first_subgroup[group + 1]
        return groups.pods[groups.pod_start[first] : groups.pod_start[last]]

    def placed(self, pods: PodRows) -> PodRows:
        """Return the ``pods`` that have a place: running, being bound, allocated or promised."""
        return pods[((ACTIVE_ALLOCATED >> self.columns.status[pods]) & 1).astype(np.bool_)]

    @cached_property
    def _pods_by_shape(self) -> tuple[PodRows, Int64s]:
        shapes = self.facts.pods.shape
        counts = np.bincount(shapes, minlength=len(self.snapshot.shapes))
        start = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int64)
        # Stable, so that rows stay ascending within a shape; callers rely on that order.
        return np.argsort(shapes, kind="stable").astype(np.int64), start

    def pods_of_shapes(self, shapes: Bools) -> PodRows:
        """Return the rows of all pods whose shape is in the mask ``shapes`` [K], ascending."""
        pods, start = self._pods_by_shape
        found = [pods[start[shape] : start[shape + 1]] for shape in np.flatnonzero(shapes)]
        return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)

    def assigned(self, pods: PodRows) -> tuple[PodRows, NodeRows]:
        """Return which of ``pods`` are on which nodes, one entry for each pair, promised and terminating pods included.

        A pod that was evicted and promised another node is on both until it is gone from the first.

        Cost: O(pods).
        """
        found, where = self._on_nodes(pods, ACTIVE_USED)
        left, places = self._left(pods)
        return (np.concatenate([found, left]), np.concatenate([where, places])) if len(left) else (found, where)

    def staying(self, pods: PodRows) -> tuple[PodRows, NodeRows]:
        """Return pairs of ``pods`` and nodes where they are and will stay: ``assigned`` without ``leaving``.

        Promised pods stay. So do pods that should have ended long ago, since their end cannot be relied on. Where
        victims are chosen as by the peer, all stay.

        Cost: O(pods).
        """
        # The peer simulates evictions by taking pods off their nodes, but its filters still see these pods: with its
        # choice of victims, theirs is the answer that gives the same decisions.
        if self.parameters.victims == AS_PEER:
            return self.assigned(pods)
        return self._on_nodes(pods, ACTIVE_USED & ~(1 << Status.RELEASING))

    def leaving(self, pods: PodRows) -> tuple[PodRows, NodeRows]:
        """Return pairs of ``pods`` and nodes that they are leaving: they are terminating, evicted, or moved elsewhere.

        Their resources may be promised. A pod that needs these has to wait, see ``NodeWait``.

        Cost: O(pods).
        """
        if self.parameters.victims == AS_PEER:
            return self._on_nodes(pods, 0)
        found, where = self._on_nodes(pods, 1 << Status.RELEASING)
        left, places = self._left(pods)
        return (np.concatenate([found, left]), np.concatenate([where, places])) if len(left) else (found, where)

    def _on_nodes(self, pods: PodRows, statuses: int) -> tuple[PodRows, NodeRows]:
        nodes = self.columns.node[pods]
        # ``statuses`` is a set as bits, so that one shift and mask tests all of a set's statuses for all pods at once.
        present = (((statuses >> self.columns.status[pods]) & 1) > 0) & (nodes >= 0)
        return pods[present], nodes[present]

    def _left(self, pods: PodRows) -> tuple[PodRows, NodeRows]:
        """Return the nodes that ``pods`` will leave for others that they were promised."""
        left = self.columns.left[pods]
        row, copy = np.nonzero(left)
        # Nodes are kept plus 1, so that 0 can mean "none" in a table that is made of zeros.
        return pods[row], left[row, copy] - 1

    def nodes_of(self, group: GroupRow) -> NodeRows:
        """Return the node of each placed pod of ``group``."""
        return nodes_of_group(self.facts, self.columns, group)

    def group_rows(self) -> GroupRows:
        """Return all group rows."""
        return np.arange(len(self.snapshot.groups), dtype=np.int64)
