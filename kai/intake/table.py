"""The pods, groups and nodes of an intake as columns that are carried from snapshot to snapshot.

An object has a record (``kai.intake.pods``, ``kai.intake.groups``); columns need a few numbers of it. They are read
when the record is fresh and move with its row afterwards, so a snapshot with ten new pods reads ten records, however
many pods there are. Names of nodes and of sub-groups are numbers here, because the row behind a name may change
without the pod.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress, count
from operator import is_not
from typing import NamedTuple

import attrs
import numpy as np

from kai.facts.model.axis import NONE, Bools, Int64s
from kai.facts.model.groups import PodGroup
from kai.facts.model.pod import Node, Pod
from kai.facts.state.memory import carried_items
from kai.facts.state.table_version import Carrier, Column, TableVersion
from kai.intake import groups, pods
from kai.intake.groups import GroupRecord
from kai.intake.membership import GroupKeys, Leaves
from kai.intake.pods import PodRecord

_MANY = 1 << 13


class PodColumns(NamedTuple):
    """Columns of pods, by row."""

    status: Int64s
    """The status without a bind request, and regardless of how long a pod has been terminating."""
    node: Int64s
    """The number of the node's name."""
    group_key: Int64s
    """The number of the key of the group that the pod was bound for, else of the group that it names."""
    account: Int64s
    """The number of the account (queue and node pool) that it is charged to; -1 for none, or if that is not known."""
    subgroup: Int64s
    """The number of the sub-group's name."""
    kind: Int64s
    """The number of the pair of the pod's scheduler name and its label keys."""
    reservation: Bools
    watched: Bools
    """The pod is leaving, or shares devices: its node and status depend on more than its phase."""

    @classmethod
    def of(cls, records: Iterable[PodRecord]) -> "PodColumns":
        """Return the columns of records."""
        status, node, group_key, account, subgroup, kind, *flags = pods.PACKING.columns(
            [record.row for record in records]
        )
        reservation, watched = [flag.astype(np.bool_) for flag in flags]
        return cls(status, node, group_key, account, subgroup, kind, reservation, watched)


@attrs.define(eq=False)
class PodTable:
    """All pods."""

    group_keys: GroupKeys
    leaves: Leaves
    node_names: dict[str, int] = attrs.field(factory=dict)
    """Numbers of node names."""
    records: Sequence[PodRecord] = ()
    pods: Sequence[Pod] = ()
    version: TableVersion = attrs.field(factory=TableVersion)
    columns: PodColumns = attrs.field(init=False)
    _rows_of_nodes: Mapping[str, int] | None = None
    _row_of: Int64s = attrs.field(factory=lambda: np.zeros(0, np.int64))
    """Rows of nodes by number of the name, for ``_rows_of_nodes``."""
    _rows: Carrier = attrs.field(factory=Carrier)

    def __attrs_post_init__(self) -> None:
        self.columns = PodColumns.of(())

    def selective(self, records: Sequence[PodRecord], version: TableVersion) -> list[PodRecord]:
        """Return the records with required or preferred terms about other pods."""

        def is_selective(rows: Sequence[int]) -> tuple[Bools]:
            return (np.array([records[row].traits.term_labels is not None for row in rows], np.bool_),)

        (chosen,) = self._rows.columns("selective", version, len(records), is_selective)
        return [records[row] for row in np.flatnonzero(chosen).tolist()]

    def read(self, records: Sequence[PodRecord], version: TableVersion) -> PodColumns:
        """Return the columns of the present records."""
        return PodColumns(*self._rows.columns("pods", version, len(records), lambda rows: _read_pods(records, rows)))

    def settle(self, records: Sequence[PodRecord], version: TableVersion) -> None:
        """Take the present records, shapes and signatures included."""
        if version is self.version:
            return
        if version.before is self.version.mark:
            self.pods = carried_items(self.pods, version, [records[row].pod for row in version.fresh.tolist()])
        else:
            self.pods = tuple([record.pod for record in records])
        self.records, self.version = records, version
        self.columns = self.read(records, version)

    def node_rows(self, rows: Mapping[str, int]) -> Int64s:
        """Return int64: the row of each node by the number of its name, -1 for none or one outside the snapshot.

        Holds: the same array while the content is the same.
        """
        row_of = self._row_of
        # Names are only added, so their number shows whether the column has them all.
        if rows is not self._rows_of_nodes or len(row_of) != len(self.node_names):
            row_of = self._row_of = np.array([rows.get(name, NONE) for name in self.node_names], np.int64)
            self._rows_of_nodes = rows
        return row_of

    def carried(
        self, name: str, read: Callable[[Sequence[int]], tuple[Column, ...]], inputs: tuple[object, ...]
    ) -> tuple[Column, ...]:
        """Return columns that follow from each pod's own columns and from ``inputs``; only fresh rows are read."""
        return self._rows.columns(name, self.version, len(self.records), read, inputs)

    @property
    def is_overgrown(self) -> bool:
        """Whether most names belong to nodes and sub-groups of the past."""
        return len(self.node_names) + len(self.leaves) > _MANY + 4 * len(self.records)


def _read_pods(records: Sequence[PodRecord], rows: Sequence[int]) -> PodColumns:
    return PodColumns.of(records if len(rows) == len(records) else [records[row] for row in rows])


class GroupColumns(NamedTuple):
    """Columns of groups, by row."""

    group_key: Int64s
    """The number of the key by which pods name the group."""
    account: Int64s
    """The number of the queue and node pool that the group names."""
    leaves: Int64s
    """The number of the leaves of its tree; -1 for a group outside the snapshot."""
    held: Bools
    """No pod of the group may be tried."""
    stands_in: Bools
    """The pod group was deleted, but pods are still charged to its account."""

    @classmethod
    def of(cls, records: Iterable[GroupRecord]) -> "GroupColumns":
        """Return the columns of records."""
        group_key, account, leaves, *flags = groups.PACKING.columns([record.row for record in records])
        held, stands_in = [flag.astype(np.bool_) for flag in flags]
        return cls(group_key, account, leaves, held, stands_in)

    @property
    def wanted(self) -> Bools:
        """Return bool[G]: whether each group is part of the snapshot."""
        chosen: Bools = self.leaves != NONE
        return chosen

    def among(self, chosen: Bools) -> "GroupColumns":
        """Return the columns of the ``chosen`` rows."""
        group_key, account, leaves = self.group_key[chosen], self.account[chosen], self.leaves[chosen]
        return GroupColumns(group_key, account, leaves, self.held[chosen], self.stands_in[chosen])


@attrs.define(eq=False)
class GroupTable:
    """The groups that are part of the snapshot, out of all groups."""

    members: Sequence[GroupRecord] = ()
    groups: Sequence[PodGroup] = ()
    version: TableVersion = attrs.field(factory=TableVersion)
    """The version of the table of groups in the snapshot."""
    columns: GroupColumns = attrs.field(init=False)
    _leaves: Int64s | None = None
    _wanted: Bools = attrs.field(factory=lambda: np.zeros(0, np.bool_))
    """Which groups are part of the snapshot, for ``_leaves``."""
    _rows: Carrier = attrs.field(factory=Carrier)

    def __attrs_post_init__(self) -> None:
        self.columns = GroupColumns.of(())

    def read(self, records: Sequence[GroupRecord], version: TableVersion, name: str = "said") -> GroupColumns:
        """Return the columns of all present records; each table that is read has a ``name``."""
        return GroupColumns(*self._rows.columns(name, version, len(records), lambda rows: _read_groups(records, rows)))

    def settle(self, records: Sequence[GroupRecord], whole: TableVersion, columns: GroupColumns) -> None:
        """Take the present records of all groups; ``whole`` is the version of their table."""
        if whole.mark is self.version.mark:
            return
        before, leaves = self._wanted, columns.leaves
        if leaves is not self._leaves:
            self._leaves, self._wanted = leaves, columns.wanted
        everything = bool(self._wanted.all())
        members = records if everything else list(compress(records, self._wanted.tolist()))
        if whole.before is self.version.mark:
            version = whole.among(before, self._wanted)
            fresh = _groups([members[row] for row in version.fresh.tolist()])
            groups = carried_items(self.groups, version, fresh)
        else:
            version, groups = TableVersion(mark=whole.mark), tuple(_groups(members))
        self.members, self.groups, self.version = members, groups, version
        self.columns = columns if everything else columns.among(self._wanted)


def _read_groups(records: Sequence[GroupRecord], rows: Sequence[int]) -> GroupColumns:
    return GroupColumns.of(records if len(rows) == len(records) else [records[row] for row in rows])


def _groups(records: Iterable[GroupRecord]) -> list[PodGroup]:
    return [record.group for record in records if record.group is not None]


@attrs.define(eq=False)
class NodeTable:
    """The nodes that are part of the snapshot."""

    nodes: tuple[Node, ...] = ()
    rows: Mapping[str, int] = attrs.field(factory=dict)
    """Rows by name; the same mapping while all rows stay."""
    version: TableVersion = attrs.field(factory=TableVersion)

    def settle(self, nodes: tuple[Node, ...]) -> None:
        """Take the present nodes, in row order."""
        before = self.nodes
        if nodes is before:
            return
        if len(nodes) != len(before) or any(one.name != other.name for one, other in zip(nodes, before, strict=True)):
            self.rows = {node.name: row for row, node in enumerate(nodes)}
            # A version without a predecessor: whatever follows from the rows of nodes is read anew.
            self.nodes, self.version = nodes, TableVersion()
            return
        changed = np.array(list(compress(count(), map(is_not, nodes, before))), np.int64)
        if len(changed):
            self.nodes, self.version = nodes, TableVersion(before=self.version.mark, fresh=changed)
