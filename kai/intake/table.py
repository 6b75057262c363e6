"""The pods, groups and nodes of an intake as columns that are carried from snapshot to snapshot.

What one object says is a record (``kai.intake.pods``, ``kai.intake.groups``); columns need a few numbers of it. They
are read when the record is fresh and move with its row afterwards, so a snapshot in which ten pods are new reads ten
records, however many there are. Names of nodes and of sub-groups are numbers here, because which row a name leads to
may change without the pod.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress, count
from operator import is_not
from typing import NamedTuple

import attrs
import numpy as np

from kai.intake import groups, pods
from kai.intake.groups import GroupRecord
from kai.intake.membership import GroupKeys, Leaves
from kai.intake.pods import PodRecord
from kai.model.axis import NONE, Bools, Int64s
from kai.model.groups import PodGroup
from kai.model.pod import Node, Pod
from kai.state.memory import carried_items
from kai.state.table_version import Carrier, Column, TableVersion

_MANY = 1 << 13


class PodColumns(NamedTuple):
    """What columns need of pods, by row."""

    status: Int64s
    """Without a bind request, and before the clock is asked about a terminating pod."""
    node: Int64s
    """Number of the name of the pod's node."""
    group_key: Int64s
    """Number of the key of the group that it was bound for, else of the one that it names."""
    account: Int64s
    """Number of the queue and node pool on whose account it was bound; -1 if it holds nothing, or that is not known."""
    subgroup: Int64s
    """Number of the name of its sub-group."""
    kind: Int64s
    """Number of the scheduler that it names and of the names of its labels."""
    reservation: Bools
    watched: Bools
    """The pod is leaving, or shares devices: more than its phase decides where it stands."""

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
    """Numbers of the names of nodes."""
    records: Sequence[PodRecord] = ()
    pods: Sequence[Pod] = ()
    version: TableVersion = attrs.field(factory=TableVersion)
    columns: PodColumns = attrs.field(init=False)
    _rows_of_nodes: Mapping[str, int] | None = None
    _row_of: Int64s = attrs.field(factory=lambda: np.zeros(0, np.int64))
    """Rows of nodes by number of the name, by ``_rows_of_nodes``."""
    _rows: Carrier = attrs.field(factory=Carrier)

    def __attrs_post_init__(self) -> None:
        self.columns = PodColumns.of(())

    def selective(self, records: Sequence[PodRecord], version: TableVersion) -> list[PodRecord]:
        """Return the records that have demands or wishes about other pods."""

        def is_selective(rows: Sequence[int]) -> tuple[Bools]:
            return (np.array([records[row].traits.term_labels is not None for row in rows], np.bool_),)

        (chosen,) = self._rows.columns("selective", version, len(records), is_selective)
        return [records[row] for row in np.flatnonzero(chosen).tolist()]

    def read(self, records: Sequence[PodRecord], version: TableVersion) -> PodColumns:
        """Return the columns of the records as they are now."""
        return PodColumns(*self._rows.columns("pods", version, len(records), lambda rows: _read_pods(records, rows)))

    def settle(self, records: Sequence[PodRecord], version: TableVersion) -> None:
        """Take the records as they are now, shapes and signatures included."""
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

        Holds: the same array for as long as it would say the same.
        """
        row_of = self._row_of
        if rows is not self._rows_of_nodes or len(row_of) != len(self.node_names):
            row_of = self._row_of = np.array([rows.get(name, NONE) for name in self.node_names], np.int64)
            self._rows_of_nodes = rows
        return row_of

    def carried(
        self, name: str, read: Callable[[Sequence[int]], tuple[Column, ...]], inputs: tuple[object, ...]
    ) -> tuple[Column, ...]:
        """Return columns that follow from each pod's own columns, and from ``inputs``."""
        return self._rows.columns(name, self.version, len(self.records), read, inputs)

    @property
    def is_overgrown(self) -> bool:
        """Whether most names are of nodes and sub-groups of the past."""
        return len(self.node_names) + len(self.leaves) > _MANY + 4 * len(self.records)


def _read_pods(records: Sequence[PodRecord], rows: Sequence[int]) -> PodColumns:
    return PodColumns.of(records if len(rows) == len(records) else [records[row] for row in rows])


class GroupColumns(NamedTuple):
    """What columns need of groups, by row."""

    group_key: Int64s
    """Number of the key by which pods name it."""
    account: Int64s
    """Number of the queue and node pool that it says."""
    leaves: Int64s
    """Number of the leaves of its tree; -1 for a group that is no part of the snapshot."""
    held: Bools
    """Nothing of the group may be tried."""
    stands_in: Bools
    """There is no such pod group (any more), but there are pods that hold something on its account."""

    @classmethod
    def of(cls, records: Iterable[GroupRecord]) -> "GroupColumns":
        """Return the columns of records."""
        group_key, account, leaves, *flags = groups.PACKING.columns([record.row for record in records])
        held, stands_in = [flag.astype(np.bool_) for flag in flags]
        return cls(group_key, account, leaves, held, stands_in)

    @property
    def wanted(self) -> Bools:
        """Return bool[G]: which groups are part of the snapshot."""
        chosen: Bools = self.leaves != NONE
        return chosen

    def among(self, chosen: Bools) -> "GroupColumns":
        """Return the columns of the ``chosen`` rows."""
        group_key, account, leaves = self.group_key[chosen], self.account[chosen], self.leaves[chosen]
        return GroupColumns(group_key, account, leaves, self.held[chosen], self.stands_in[chosen])


@attrs.define(eq=False)
class GroupTable:
    """The groups that are part of the snapshot, of all that there are."""

    members: Sequence[GroupRecord] = ()
    groups: Sequence[PodGroup] = ()
    version: TableVersion = attrs.field(factory=TableVersion)
    """Of the table of those that are part of the snapshot."""
    columns: GroupColumns = attrs.field(init=False)
    _leaves: Int64s | None = None
    _wanted: Bools = attrs.field(factory=lambda: np.zeros(0, np.bool_))
    """Which groups are part of the snapshot, by ``_leaves``."""
    _rows: Carrier = attrs.field(factory=Carrier)

    def __attrs_post_init__(self) -> None:
        self.columns = GroupColumns.of(())

    def read(self, records: Sequence[GroupRecord], version: TableVersion, name: str = "said") -> GroupColumns:
        """Return the columns of the records of all groups as they are now; each table that is read has a ``name``."""
        return GroupColumns(*self._rows.columns(name, version, len(records), lambda rows: _read_groups(records, rows)))

    def settle(self, records: Sequence[GroupRecord], whole: TableVersion, columns: GroupColumns) -> None:
        """Take the records of all groups as they are now; ``whole`` is the version of their table."""
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
    """By name; the same mapping for as long as all rows stay."""
    version: TableVersion = attrs.field(factory=TableVersion)

    def settle(self, nodes: tuple[Node, ...]) -> None:
        """Take the nodes as they are now, in row order."""
        before = self.nodes
        if nodes is before:
            return
        if len(nodes) != len(before) or any(one.name != other.name for one, other in zip(nodes, before, strict=True)):
            self.rows = {node.name: row for row, node in enumerate(nodes)}
            self.nodes, self.version = nodes, TableVersion()
            return
        changed = np.array(list(compress(count(), map(is_not, nodes, before))), np.int64)
        if len(changed):
            self.nodes, self.version = nodes, TableVersion(before=self.version.mark, fresh=changed)
