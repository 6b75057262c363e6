"""The state in which every cycle on one snapshot begins.

Tables for kernels are made once; an arena is booked by each session, which writes on in it.
"""

from collections.abc import Mapping, Sequence
from sys import getrefcount
from typing import Final

import attrs
import numpy as np

from kai.kernels.accounting import open_accounts
from kai.kernels.columns import Columns, Facts
from kai.model.rows import Bools, Int64s
from kai.state.facts import group_facts, node_facts, pod_facts, queue_facts, shape_facts, shape_rows, slot_table
from kai.state.kept import GroupColumns, group_columns, group_order, pod_order, pods_by_leaf, subgroup_columns
from kai.state.layout import Layout, Room, Sizes
from kai.state.memory import Memory
from kai.state.snapshot import Snapshot

_SPARE: Final = "the arena of the session before"


@attrs.frozen
class Opening:
    """Books in which every assigned pod stands, for one session that may write them."""

    arena: Int64s
    room: Room
    columns: Columns
    """The columns of the arena."""


@attrs.frozen(kw_only=True)
class Base:
    """Facts, layout, the places of pods that share devices, and the names of slots."""

    facts: Facts
    layout: Layout
    placements: tuple[tuple[int, ...], ...]
    placed: tuple[int, ...]
    """The pods with these placements."""
    width: int
    slot_names: tuple[str, ...]
    pod_order: Int64s
    """Pod rows by creation time, then uid."""
    groups: GroupColumns
    constrained: Bools
    """[G] Some sub-group of the group names a topology."""
    group_order: Int64s
    """Group rows by creation time, then uid."""

    def open(self, snapshot: Snapshot) -> Opening:
        """Book every pod of ``snapshot``, which this is the base of, that stands somewhere.

        Holds: the books are the caller's own; they lie in the memory of the last session's if no view of that is left.
        Cost: O(P + N R). A session writes the very arena that is booked: a copy for each session takes as long.
        """
        layout, room = self.layout, self.room()
        arena = self._arena(snapshot.memory)
        view = layout.view
        arena[: layout.offsets.status] = 0
        view(arena, "status")[:] = snapshot.pod_status
        view(arena, "node")[:] = snapshot.pod_node
        arena[layout.offsets.placement : layout.still] = 0
        view(arena, "placement")[list(self.placed)] = np.arange(1, 1 + len(self.placed))
        view(arena, "counters")[1] = len(self.placed)
        view(arena, "idle")[:] = self.facts.nodes.allocatable
        columns = layout.columns(arena, room, np.zeros(layout.sizes.groups, np.int64))
        open_accounts(self.facts, columns, layout.offsets)
        return Opening(arena, room, columns)

    def _arena(self, memory: Memory) -> Int64s:
        """Return an arena whose end, from where the columns begin that are zero when a session opens, is zero.

        Memory that the process never touched before costs five times as much as other memory.
        """
        size, still = self.layout.size, self.layout.still
        left = memory.recall(_SPARE)
        memory.keep(_SPARE, None)
        spare, (first, last) = left if isinstance(left, tuple) else (None, (0, 0))
        del left
        # This name and the argument of the question are two references; the holder of a third would see numbers change.
        if not (isinstance(spare, np.ndarray) and len(spare) >= size and getrefcount(spare) == 2):
            spare, first, last = np.empty(size + size // 16, np.int64), 0, 0
        arena: Int64s = spare[:size]
        if first < last and still < last:  # most of it is zero already
            arena[still:first] = 0
            arena[last:] = 0
        else:
            arena[still:] = 0
        return arena

    @staticmethod
    def leave_arena(arena: Int64s, memory: Memory, zeros: tuple[int, int] = (0, 0)) -> None:
        """Offer the place of an arena that is not needed any more to the next session.

        ``zeros``: between which cells nothing but zeros was left.
        """
        memory.keep(_SPARE, (arena.base, zeros))

    def room(self) -> Room:
        """Return fresh logs for a session."""
        return Room.of(self.placements, self.width)


def _widest(snapshot: Snapshot, slot_start: Int64s, placements: Sequence[Sequence[int]]) -> int:
    """Return how many devices one pod can have at most, at least 1.

    That is as many as one asks for, but no more than the largest node has room for: a user may write any number into an
    annotation, and tables are as wide. A pod that asks for more finds no node.
    """
    most = int(np.diff(slot_start).max(initial=0))
    asked = max((row.devices for row in shape_rows(snapshot)), default=0)
    return max(1, min(asked, most), *map(len, placements))


def _placements(snapshot: Snapshot, slot_rows: Mapping[tuple[int, str], int]) -> dict[int, tuple[int, ...]]:
    """Return the slots of every assigned pod that shares devices, by pod row, ascending."""
    placements: dict[int, tuple[int, ...]] = {}
    for pod, devices in sorted(snapshot.pod_devices.items()):
        node = int(snapshot.pod_node[pod])
        slots = tuple(slot_rows[node, name] for name in devices if (node, name) in slot_rows)
        if slots:
            placements[pod] = slots
    return placements


def make_base(snapshot: Snapshot) -> Base:
    """Return what all sessions on ``snapshot`` begin with. Cost: O(P + N R), once per snapshot."""
    slot_start, slot_names, slot_rows = slot_table(snapshot)
    pods, groups, order = pod_facts(snapshot), group_columns(snapshot), pod_order(snapshot)
    subgroups = subgroup_columns(snapshot, groups.tree)
    by_leaf = pods_by_leaf(pods.leaf, order, int(snapshot.first_subgroup[-1]))
    facts = Facts(
        nodes=node_facts(snapshot, slot_start, slot_names),
        shapes=shape_facts(snapshot),
        pods=pods,
        groups=group_facts(groups, subgroups, snapshot.first_subgroup, by_leaf),
        queues=queue_facts(snapshot),
    )
    layout = Layout.of(
        Sizes(
            nodes=len(snapshot.nodes),
            resources=len(snapshot.axis),
            slots=len(slot_names),
            queues=len(snapshot.queues),
            pods=len(snapshot.pods),
            subgroups=int(snapshot.first_subgroup[-1]),
            groups=len(snapshot.groups),
        )
    )
    placements = _placements(snapshot, slot_rows)
    return Base(
        facts=facts,
        layout=layout,
        placements=tuple(placements.values()),
        placed=tuple(placements),
        width=_widest(snapshot, slot_start, list(placements.values())),
        slot_names=slot_names,
        pod_order=order,
        groups=groups,
        constrained=subgroups.constrained,
        group_order=group_order(snapshot, groups.created),
    )
