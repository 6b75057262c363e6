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
    node: Int64s
    """Number of the name of the pod's node."""
    place: Int64s
    """Number of the place of the group that it names."""
    subgroup: Int64s
    """Number of the name of its sub-group."""
    kind: Int64s
    """Number of its kind."""
    reservation: Bools
    watched: Bools
    """The pod is leaving, or shares devices."""


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
        self.columns = self._read_rows(())

    def selective(self, cells: Sequence[PodCell], edition: Edition) -> list[PodCell]:
        """Return the cells that have terms about other pods."""

        def is_selective(rows: Sequence[int]) -> tuple[Bools]:
            return (np.array([cells[row].traits.term_labels is not None for row in rows], np.bool_),)

        (chosen,) = self._rows.columns("selective", edition, len(cells), is_selective)
        return [cells[row] for row in np.flatnonzero(chosen).tolist()]

    def settle(self, cells: Sequence[PodCell], edition: Edition) -> None:
        """Take the cells as they are now, shapes and signatures included."""
        if edition is self.edition:
            return
        if edition.before is self.edition.mark:
            self.pods = carried_items(self.pods, edition, [cells[row].pod for row in edition.fresh.tolist()])
        else:
            self.pods = tuple([cell.pod for cell in cells])
        self.cells, self.edition = cells, edition
        self.columns = PodColumns(*self._rows.columns("pods", edition, len(cells), self._read))

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

    def _read(self, rows: Sequence[int]) -> PodColumns:
        return self._read_rows([self.cells[row] for row in rows])

    def _read_rows(self, cells: Sequence[PodCell]) -> PodColumns:
        return PodColumns(
            status=np.array([cell.status for cell in cells], np.int64),
            node=np.array([cell.node_number for cell in cells], np.int64),
            place=np.array([cell.place for cell in cells], np.int64),
            subgroup=np.array([cell.subgroup_number for cell in cells], np.int64),
            kind=np.array([cell.kind for cell in cells], np.int64),
            reservation=np.array([cell.reservation for cell in cells], np.bool_),
            watched=np.array([cell.watched for cell in cells], np.bool_),
        )


class GroupColumns(NamedTuple):
    """What columns need of groups."""

    place: Int64s
    """Number of the place that pods name."""
    leaves: Int64s
    """Number of the leaves of its tree."""
    held: Bools
    """Nothing of the group may be tried."""


@attrs.define(eq=False)
class GroupTable:
    """The groups that are part of the snapshot, of all that there are."""

    leaves: Leaves
    members: Sequence[GroupCell] = ()
    groups: Sequence[PodGroup] = ()
    edition: Edition = attrs.field(factory=Edition)
    """Of the table of those that are part of the snapshot."""
    columns: GroupColumns = attrs.field(init=False)
    _wanted: Bools = attrs.field(factory=lambda: np.zeros(0, np.bool_))
    _rows: Carrier = attrs.field(factory=Carrier)

    def __attrs_post_init__(self) -> None:
        self.columns = self._read(())

    def settle(self, cells: Sequence[GroupCell], whole: Edition) -> None:
        """Take the cells of all groups as they are now; ``whole`` is the edition of their table."""
        if whole.mark is self.edition.mark:
            return

        def is_wanted(rows: Sequence[int]) -> tuple[Bools]:
            return (np.array([cells[row].group is not None for row in rows], np.bool_),)

        before = self._wanted
        (self._wanted,) = self._rows.columns("wanted", whole, len(cells), is_wanted)
        members = cells if self._wanted.all() else list(compress(cells, self._wanted.tolist()))
        if whole.before is self.edition.mark:
            edition = whole.among(before, self._wanted)
            fresh = _groups(members[row] for row in edition.fresh.tolist())
            groups = carried_items(self.groups, edition, fresh)
        else:
            edition, groups = Edition(mark=whole.mark), tuple(_groups(members))
        self.members, self.groups, self.edition = members, groups, edition
        self.columns = GroupColumns(*self._rows.columns("groups", edition, len(members), self._read_rows))

    def _read_rows(self, rows: Sequence[int]) -> GroupColumns:
        return self._read([self.members[row] for row in rows])

    def _read(self, members: Sequence[GroupCell]) -> GroupColumns:
        places = np.array([each.place for each in members], np.int64)
        leaves = np.array([self.leaves.tree(each.leaves) for each in members], np.int64)
        held = np.array([each.group is not None and bool(each.group.held) for each in members], np.bool_)
        return GroupColumns(places, leaves, held)


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
