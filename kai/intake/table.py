"""The pods, groups and nodes of an intake as columns that are carried from snapshot to snapshot.

What one object says is a cell (``kai.intake.pods``, ``kai.intake.groups``); columns need a few numbers of it. They are
read when the cell is fresh and move with its row afterwards, so a snapshot in which ten pods are new reads ten cells,
however many there are. Names of nodes and of sub-groups are numbers here, because which row a name leads to may change
without the pod.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import compress, count
from operator import is_not
from typing import NamedTuple

import attrs
import numpy as np

from kai.intake import groups, pods
from kai.intake.groups import GroupCell
from kai.intake.membership import Leaves, Places
from kai.intake.pods import PodCell
from kai.model.node import Node
from kai.model.pod import Pod
from kai.model.podgroup import PodGroup
from kai.model.rows import NONE, Bools, Int64s
from kai.state.edition import Carrier, Edition
from kai.state.items import carried_items


class PodColumns(NamedTuple):
    """What columns need of pods, by row."""

    status: Int64s
    """Without a bind request, and before the clock is asked about a terminating pod."""
    node: Int64s
    """Number of the name of the pod's node."""
    place: Int64s
    """Number of the place of the group that it was bound for, else of the one that it names."""
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
    def of(cls, cells: Iterable[PodCell]) -> "PodColumns":
        """Return the columns of cells."""
        status, node, place, account, subgroup, kind, *flags = pods.PACKING.columns([cell.row for cell in cells])
        reservation, watched = [flag.astype(np.bool_) for flag in flags]
        return cls(status, node, place, account, subgroup, kind, reservation, watched)


@attrs.define(eq=False)
class PodTable:
    """All pods."""

    places: Places
    leaves: Leaves
    node_names: dict[str, int] = attrs.field(factory=dict)
    """Numbers of the names of nodes."""
    cells: Sequence[PodCell] = ()
    pods: Sequence[Pod] = ()
    edition: Edition = attrs.field(factory=Edition)
    columns: PodColumns = attrs.field(init=False)
    _rows_of_nodes: Mapping[str, int] | None = None
    _row_of: Int64s = attrs.field(factory=lambda: np.zeros(0, np.int64))
    """Rows of nodes by number of the name, by ``_rows_of_nodes``."""
    _rows: Carrier = attrs.field(factory=Carrier)

    def __attrs_post_init__(self) -> None:
        self.columns = PodColumns.of(())

    def selective(self, cells: Sequence[PodCell], edition: Edition) -> list[PodCell]:
        """Return the cells that have terms about other pods."""

        def is_selective(rows: Sequence[int]) -> tuple[Bools]:
            return (np.array([cells[row].traits.term_labels is not None for row in rows], np.bool_),)

        (chosen,) = self._rows.columns("selective", edition, len(cells), is_selective)
        return [cells[row] for row in np.flatnonzero(chosen).tolist()]

    def read(self, cells: Sequence[PodCell], edition: Edition) -> PodColumns:
        """Return the columns of the cells as they are now."""
        return PodColumns(*self._rows.columns("pods", edition, len(cells), lambda rows: _read_pods(cells, rows)))

    def settle(self, cells: Sequence[PodCell], edition: Edition) -> None:
        """Take the cells as they are now, shapes and signatures included."""
        if edition is self.edition:
            return
        if edition.before is self.edition.mark:
            self.pods = carried_items(self.pods, edition, [cells[row].pod for row in edition.fresh.tolist()])
        else:
            self.pods = tuple([cell.pod for cell in cells])
        self.cells, self.edition = cells, edition
        self.columns = self.read(cells, edition)

    def node_rows(self, rows: Mapping[str, int]) -> Int64s:
        """Return int64[P]: the row of each pod's node, -1 for none or one outside the snapshot."""
        row_of = self._row_of
        if rows is not self._rows_of_nodes or len(row_of) != len(self.node_names):
            row_of = self._row_of = np.array([rows.get(name, NONE) for name in self.node_names], np.int64)
            self._rows_of_nodes = rows
        return row_of[self.columns.node]

    @property
    def is_overgrown(self) -> bool:
        """Whether most names are of nodes and sub-groups of the past."""
        return len(self.node_names) + len(self.leaves) > (1 << 16) + 4 * len(self.cells)


def _read_pods(cells: Sequence[PodCell], rows: Sequence[int]) -> PodColumns:
    return PodColumns.of(cells if len(rows) == len(cells) else [cells[row] for row in rows])


class GroupColumns(NamedTuple):
    """What columns need of groups, by row."""

    place: Int64s
    """Number of the place that pods name."""
    account: Int64s
    """Number of the queue and node pool that it says."""
    leaves: Int64s
    """Number of the leaves of its tree; -1 for a group that is no part of the snapshot."""
    held: Bools
    """Nothing of the group may be tried."""
    stands_in: Bools
    """There is no such pod group (any more), but there are pods that hold something on its account."""

    @classmethod
    def of(cls, cells: Iterable[GroupCell]) -> "GroupColumns":
        """Return the columns of cells."""
        place, account, leaves, *flags = groups.PACKING.columns([cell.row for cell in cells])
        held, stands_in = [flag.astype(np.bool_) for flag in flags]
        return cls(place, account, leaves, held, stands_in)

    @property
    def wanted(self) -> Bools:
        """Return bool[G]: which groups are part of the snapshot."""
        chosen: Bools = self.leaves != NONE
        return chosen

    def among(self, chosen: Bools) -> "GroupColumns":
        """Return the columns of the ``chosen`` rows."""
        place, account, leaves = self.place[chosen], self.account[chosen], self.leaves[chosen]
        return GroupColumns(place, account, leaves, self.held[chosen], self.stands_in[chosen])


@attrs.define(eq=False)
class GroupTable:
    """The groups that are part of the snapshot, of all that there are."""

    members: Sequence[GroupCell] = ()
    groups: Sequence[PodGroup] = ()
    edition: Edition = attrs.field(factory=Edition)
    """Of the table of those that are part of the snapshot."""
    columns: GroupColumns = attrs.field(init=False)
    _wanted: Bools = attrs.field(factory=lambda: np.zeros(0, np.bool_))
    _rows: Carrier = attrs.field(factory=Carrier)

    def __attrs_post_init__(self) -> None:
        self.columns = GroupColumns.of(())

    def read(self, cells: Sequence[GroupCell], edition: Edition, name: str = "said") -> GroupColumns:
        """Return the columns of the cells of all groups as they are now; each table that is read has a ``name``."""
        return GroupColumns(*self._rows.columns(name, edition, len(cells), lambda rows: _read_groups(cells, rows)))

    def settle(self, cells: Sequence[GroupCell], whole: Edition, columns: GroupColumns) -> None:
        """Take the cells of all groups as they are now; ``whole`` is the edition of their table."""
        if whole.mark is self.edition.mark:
            return
        before, self._wanted = self._wanted, columns.wanted
        everything = bool(self._wanted.all())
        members = cells if everything else list(compress(cells, self._wanted.tolist()))
        if whole.before is self.edition.mark:
            edition = whole.among(before, self._wanted)
            fresh = _groups(members[row] for row in edition.fresh.tolist())
            groups = carried_items(self.groups, edition, fresh)
        else:
            edition, groups = Edition(mark=whole.mark), tuple(_groups(members))
        self.members, self.groups, self.edition = members, groups, edition
        self.columns = columns if everything else columns.among(self._wanted)


def _read_groups(cells: Sequence[GroupCell], rows: Sequence[int]) -> GroupColumns:
    return GroupColumns.of(cells if len(rows) == len(cells) else [cells[row] for row in rows])


def _groups(cells: Iterable[GroupCell]) -> list[PodGroup]:
    return [cell.group for cell in cells if cell.group is not None]


@attrs.define(eq=False)
class NodeTable:
    """The nodes that are part of the snapshot."""

    nodes: tuple[Node, ...] = ()
    rows: Mapping[str, int] = attrs.field(factory=dict)
    """By name; the same mapping for as long as all rows stay."""
    edition: Edition = attrs.field(factory=Edition)

    def settle(self, nodes: tuple[Node, ...]) -> None:
        """Take the nodes as they are now, in row order."""
        before = self.nodes
        if nodes is before:
            return
        if len(nodes) != len(before) or any(one.name != other.name for one, other in zip(nodes, before, strict=True)):
            self.rows = {node.name: row for row, node in enumerate(nodes)}
            self.nodes, self.edition = nodes, Edition()
            return
        changed = np.array(list(compress(count(), map(is_not, nodes, before))), np.int64)
        if len(changed):
            self.nodes, self.edition = nodes, Edition(before=self.edition.mark, fresh=changed)
