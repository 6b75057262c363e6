"""Where each column lives in the one arena.

Every mutable column is a view into a single flat int64 array, so that the memory of one session serves the next, a
fingerprint is one hash, and a write is one (offset, delta). Plugins' tracked columns follow the engine's own.
"""

from collections.abc import Mapping, Sequence
from math import prod

import attrs
import numpy as np

from kai.kernels.columns import Columns, Offsets
from kai.kernels.struct import Int64s

TOUCHED = 8192
"""Nodes, and groups, that the rings of changes remember; a reader that missed more looks at all of them again."""
STILL = "virtual"
"""The first of the columns at the end of an arena that are zero when a session opens."""
MOVES = 3
"""Releasing copies of a pod that are remembered: one for each action that can move it in a cycle."""


@attrs.frozen(kw_only=True)
class Sizes:
    """How many rows each table has."""

    nodes: int
    resources: int
    slots: int
    queues: int
    pods: int
    subgroups: int
    groups: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every column, in arena order."""
        node = (self.nodes, self.resources)
        slot, pod, subgroup = (self.slots,), (self.pods,), (self.subgroups,)
        return {
            "idle": node,
            "releasing": node,
            "used": node,
            "slot_used": slot,
            "slot_releasing": slot,
            "slot_allocated": slot,
            "slot_marked": slot,
            "slot_known": slot,
            "queue_used": (self.queues, 3),
            "queue_fixed": (self.queues, 3),
            "status": pod,
            "node": pod,
            "placement": pod,
            "active": subgroup,
            "occupying": subgroup,
            "pending": subgroup,
            "pipelined": subgroup,
            "counted": (self.groups,),
            "counters": (2,),
            # What a session begins with none of; from STILL on.
            "virtual": pod,
            "evicted_status": pod,
            "evicted_node": pod,
            "evicted_placement": pod,
            "left": (self.pods, MOVES),
        }


@attrs.frozen(kw_only=True)
class Layout:
    """Offsets of the engine's columns; ``size`` is where plugins' columns begin."""

    sizes: Sizes
    offsets: Offsets
    size: int
    _places: Mapping[str, tuple[slice, tuple[int, ...]]] = attrs.field(repr=False)
    """Which part of an arena each column is, and its shape."""

    @classmethod
    def of(cls, sizes: Sizes) -> "Layout":
        """Return the layout for tables of these sizes."""
        offsets: dict[str, int] = {}
        places: dict[str, tuple[slice, tuple[int, ...]]] = {}
        at = 0
        for name, shape in sizes.shapes().items():
            offsets[name] = at
            places[name] = slice(at, at + prod(shape)), shape
            at += prod(shape)
        return cls(sizes=sizes, offsets=Offsets(**offsets), size=at, places=places)

    @property
    def still(self) -> int:
        """Where the cells begin that are zero when a session opens."""
        begin: int = getattr(self.offsets, STILL)
        return begin

    def view(self, arena: Int64s, name: str) -> Int64s:
        """Return the column ``name`` of ``arena`` in its shape."""
        part, shape = self._places[name]
        return arena[part].reshape(shape)

    def columns(self, arena: Int64s, room: "Room", epoch: Int64s) -> Columns:
        """Return all columns over ``arena``, with the logs of ``room``."""
        views = {name: arena[part].reshape(shape) for name, (part, shape) in self._places.items()}
        return Columns(
            arena=arena,
            journal=room.journal,
            cursor=room.cursor,
            operations=room.operations,
            placement_slots=room.placement_slots,
            epoch=epoch,
            touched=room.touched,
            touches=room.touches,
            changed=room.changed,
            changes=room.changes,
            **views,
        )


@attrs.define(kw_only=True)
class Room:
    """The growing logs of a ledger: journal, operations, placements."""

    journal: Int64s
    cursor: Int64s
    operations: Int64s
    placement_slots: Int64s
    touched: Int64s = attrs.field(factory=lambda: np.zeros(TOUCHED, np.int64))
    touches: Int64s = attrs.field(factory=lambda: np.zeros(1, np.int64))
    changed: Int64s = attrs.field(factory=lambda: np.zeros(TOUCHED, np.int64))
    changes: Int64s = attrs.field(factory=lambda: np.zeros(1, np.int64))

    @classmethod
    def of(cls, placements: Sequence[Sequence[int]], width: int) -> "Room":
        """Return empty logs; row 0 of the placement table is "no slots", the given ``placements`` follow."""
        table = np.full((max(64, 2 * len(placements) + 2), max(1, width)), -1, np.int64)
        for row, slots in enumerate(placements, start=1):
            table[row, : len(slots)] = slots
        return cls(
            journal=np.empty((4096, 2), np.int64),
            cursor=np.zeros(2, np.int64),
            operations=np.empty((1024, 2), np.int64),
            placement_slots=table,
        )


def grown(table: Int64s, rows: int) -> Int64s:
    """Return ``table`` with at least ``rows`` rows, its content first; the same array if it has them already."""
    if table.shape[0] >= rows:
        return table
    larger = np.full((max(rows, 2 * table.shape[0]), *table.shape[1:]), -1, np.int64)
    larger[: table.shape[0]] = table
    return larger
