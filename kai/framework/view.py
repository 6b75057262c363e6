"""What plugins see of a session: facts, live read-only columns, and the few questions that many plugins ask."""

from typing import TYPE_CHECKING

import numpy as np

from kai.framework.parameters import Parameters
from kai.kernels.columns import Columns, Facts
from kai.kernels.fit import Rules, Vectors
from kai.model.rows import Float64s, GroupRow, GroupRows, Int64s, NodeRows, PodRow, PodRows, QueueRow
from kai.model.status import ACTIVE_ALLOCATED
from kai.state.ledger import Tracked
from kai.state.snapshot import Snapshot

if TYPE_CHECKING:
    from kai.framework.session import Session


class SessionView:
    """A read-only window on a session. ``columns`` is live: what it holds follows every placement and every undo."""

    def __init__(self, session: "Session") -> None:
        """Look at ``session``."""
        self._session = session
        self._codes: dict[str, Int64s] = {}

    @property
    def snapshot(self) -> Snapshot:
        """The facts of the cycle."""
        return self._session.snapshot

    @property
    def parameters(self) -> Parameters:
        """Settings of the scheduler that are no plugin's own."""
        return self._session.parameters

    @property
    def now(self) -> float:
        """The instant at which everything happens, in seconds since the epoch."""
        return self._session.snapshot.now

    @property
    def facts(self) -> Facts:
        """The tables that kernels read."""
        return self._session.facts

    @property
    def columns(self) -> Columns:
        """The columns that change, to be read only."""
        return self._session.columns

    @property
    def rules(self) -> Rules:
        """The folded score terms and checks; only after all plugins have opened."""
        return self._session.policy.rules

    @property
    def vectors(self) -> Vectors:
        """The static masks and scores; only after all plugins have opened."""
        return self._session.policy.vectors

    @property
    def nodes(self) -> NodeRows:
        """All node rows."""
        return self._session.all_nodes

    @property
    def last_start(self) -> Float64s:
        """float64[G]: when each group last started, NaN if never; starts of this cycle included."""
        return self._session.last_start

    def track(self, initial: Int64s) -> Tracked:
        """Return a column of the plugin's own that follows effects and undo. Only to be called while the plugin opens."""
        return self._session.track(initial)

    def label_codes(self, label: str) -> Int64s:
        """Return int64[N]: equal numbers for nodes with equal values of ``label``, 0 for nodes without it, in the order of the values."""
        if label not in self._codes:
            values = [node.labels.get(label) for node in self.snapshot.nodes]
            codes = {value: code for code, value in enumerate(sorted({v for v in values if v is not None}), start=1)}
            self._codes[label] = np.array([0 if v is None else codes[v] for v in values], np.int64)
        return self._codes[label]

    def group_of(self, pod: PodRow) -> GroupRow:
        """Return the group of ``pod``, -1 for none."""
        return GroupRow(int(self.facts.pods.group[pod]))

    def queue_of(self, group: GroupRow) -> QueueRow:
        """Return the queue of ``group``, -1 for one that does not exist."""
        return QueueRow(int(self.facts.groups.queue[group]))

    def shape_of(self, pod: PodRow) -> int:
        """Return the shape of ``pod``."""
        return int(self.facts.pods.shape[pod])

    def pods_of(self, group: GroupRow) -> PodRows:
        """Return all pods of ``group`` that belong to a sub-group, in pod order within each."""
        groups = self.facts.groups
        first, last = groups.first_subgroup[group], groups.first_subgroup[group + 1]
        return groups.pods[groups.pod_start[first] : groups.pod_start[last]]

    def placed(self, pods: PodRows) -> PodRows:
        """Return those of ``pods`` that have a place: running, being bound, allocated or promised."""
        return pods[((ACTIVE_ALLOCATED >> self.columns.status[pods]) & 1).astype(np.bool_)]

    def nodes_of(self, group: GroupRow) -> NodeRows:
        """Return the node of each placed pod of ``group``."""
        nodes = self.columns.node[self.placed(self.pods_of(group))]
        return nodes[nodes >= 0]

    def chunk_amounts(self, group: GroupRow) -> Float64s:
        """Return float64[3]: CPU, memory and GPU of what the next attempt on ``group`` would place, in axis units."""
        return self._session.portion(group).amounts()

    def group_rows(self) -> GroupRows:
        """Return all group rows."""
        return np.arange(len(self.snapshot.groups), dtype=np.int64)
