"""The ledger: the one mutable object of a cycle, and the layout of its arena.

It owns the arena, the journal and the placement table. Everything that places or evicts ends in
``kai.facts.kernels.columns.add``. Undoing to a mark is exact, byte for byte, because all writes are integer additions.

Every mutable column is a view into a single flat int64 array. So the memory of one session serves the next, a
fingerprint is one hash, and a write is one (offset, delta). Plugins' tracked columns follow the engine's own.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import prod

import attrs
import numpy as np

from kai.facts.compiled.struct import Int64s
from kai.facts.kernels import booking
from kai.facts.kernels.columns import OP_ALLOCATE, Columns, Facts, Offsets, add, add_each, touch, undo_to
from kai.facts.model.axis import GPU_UNIT, locked

TOUCHED = 8192
"""The capacity of the rings of changed nodes and groups; a reader that is further behind reads all again."""
STILL = "virtual"
"""The first of the columns at the end of an arena that are zero when a session opens."""
MOVES = 3
"""The most releasing copies of a pod that are recorded: one for each action that can move it in a cycle."""


@attrs.frozen(kw_only=True)
class Sizes:
    """How many rows each table has."""

    nodes: int
    resources: int
    slots: int
    queues: int
    models: int
    pods: int
    subgroups: int
    groups: int
    budgets: int = 0
    accounts: int = 0

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
            "queue_models": (self.queues, self.models),
            "user_used": (self.accounts, 3),
            "budget_used": (self.budgets,),
            "status": pod,
            "node": pod,
            "placement": pod,
            "active": subgroup,
            "occupying": subgroup,
            "pending": subgroup,
            "pipelined": subgroup,
            "counted": (self.groups,),
            "counters": (2,),
            # Columns from STILL on are zero when a session opens.
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
    """The slice of the arena and the shape of each column."""

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
        """Return empty logs. Row 0 of the placement table means "no slots"; ``placements`` follow."""
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
    """Return ``table`` grown to at least ``rows`` rows; the same array if it has them already."""
    if table.shape[0] >= rows:
        return table
    larger = np.full((max(rows, 2 * table.shape[0]), *table.shape[1:]), -1, np.int64)
    larger[: table.shape[0]] = table
    return larger


MOST_FINAL = 1 << 16
"""The least number of final entries that a journal keeps; the bound is this or a sixteenth of the cells."""


@attrs.define
class Tracked:
    """A plugin's own column: it follows placements through effects and is undone with them.

    ``values`` is a live read-only view; while plugins open, it shows ``initial``.
    """

    initial: Int64s
    offset: int = -1
    values: Int64s = attrs.field(default=attrs.Factory(lambda self: locked(self.initial.view()), takes_self=True))
    cells: int = attrs.field(default=attrs.Factory(lambda self: int(self.initial.size), takes_self=True))
    """The number of cells; an effect names a cell by its position in the flat column."""


class Ledger:
    """Which pod is where and how much is left, with undo.

    ``facts``, ``columns`` and ``offsets`` are passed to kernels together; ``columns`` is replaced when a log grows, so
    it is read afresh for every call.
    """

    def __init__(
        self,
        layout: Layout,
        facts: Facts,
        arena: Int64s,
        room: Room,
        tracked: Sequence[Tracked] = (),
        opened: Columns | None = None,
    ) -> None:
        """Take over ``arena`` (not copied), and append the ``tracked`` columns to it.

        ``opened`` are the columns of ``arena`` with these logs; None: they are made, and epochs begin at zero.
        """
        self.layout = layout
        self.facts = facts
        self.offsets: Offsets = layout.offsets
        self.is_whole = True
        """Whether the journal has all entries since the ledger was opened, final ones included."""
        self._room = room
        # One array for the columns of the engine and of plugins: a single journal undoes both, in one order.
        self.arena = np.concatenate([arena, *(column.initial.ravel() for column in tracked)]) if tracked else arena
        at = layout.size
        for column in tracked:
            column.offset = at
            view = self.arena[at : at + column.initial.size].reshape(column.initial.shape)
            view.flags.writeable = False  # plugins change it only by effects
            column.values = view
            at += column.initial.size
        if opened is None or tracked:
            epoch = np.zeros(layout.sizes.groups, np.int64) if opened is None else opened.epoch
            opened = layout.columns(self.arena, room, epoch)
        self.columns: Columns = opened
        self._journal_per_pod = 8 * layout.sizes.resources + 24 * room.placement_slots.shape[1] + 8 * 12 + 40

    @property
    def mark(self) -> int:
        """The current length of the journal, as a point to undo to."""
        return int(self._room.cursor[0])

    @property
    def final(self) -> int:
        """The mark before which nothing can be undone any more."""
        return int(self._room.cursor[1])

    @property
    def journal(self) -> Int64s:
        """The journal entries up to ``mark``: cell and added number."""
        return self._room.journal

    def reserve(self, changes: int) -> None:
        """Make room in the logs for ``changes`` more placements or evictions: kernels cannot grow anything."""
        room = self._room
        # Grown before the kernel runs: a compiled kernel holds the array that it was given and cannot replace it.
        journal = grown(room.journal, self.mark + self.room_for(changes))
        operations = grown(room.operations, int(self.columns.counters[0]) + changes + 1)
        placements = grown(room.placement_slots, int(self.columns.counters[1]) + changes + 2)
        if journal is room.journal and operations is room.operations and placements is room.placement_slots:
            return
        room.journal, room.operations, room.placement_slots = journal, operations, placements
        self.columns = self.columns.replace(journal=journal, operations=operations, placement_slots=placements)

    def room_for(self, changes: int) -> int:
        """Return how many entries of the journal ``changes`` placements or evictions can take."""
        per_pod: int = self._journal_per_pod + 6 * min(1 + self.layout.sizes.queues, 64) + 2 * self.layout.sizes.budgets
        return (changes + 1) * per_pod

    def undo_to(self, mark: int) -> None:
        """Undo everything since ``mark`` that is not final."""
        # What is sealed stays: the mark may be from before a commit.
        undo_to(self.facts, self.columns, self.offsets, max(mark, self.final))

    def add(self, column: Tracked, index: int, delta: int) -> None:
        """Change one cell of a plugin's column."""
        self.reserve(1)
        add(self.columns, column.offset + index, delta)
        # These first columns are amounts of nodes, whose pods that fit have to be counted again.
        if column.offset + index < self.offsets.slot_used:
            touch(self.columns, index // self.layout.sizes.resources)

    def add_all(self, changes: Iterable[tuple[Tracked, int, int]]) -> None:
        """Change cells of plugins' columns: column, cell, and what is added, in their order."""
        self.reserve(1)
        columns, engine, width = self.columns, self.offsets.slot_used, self.layout.sizes.resources
        left = self.room_for(1)
        for column, index, delta in changes:
            if not left:
                self.reserve(1)
                columns, left = self.columns, self.room_for(1)
            left -= 1
            add(columns, column.offset + index, delta)
            if column.offset + index < engine:
                touch(columns, index // width)

    def add_cells(self, changes: Int64s) -> None:
        """Change cells of the arena that are no amounts of nodes: ``changes`` [n, 2] are cells and what is added."""
        self.reserve(1 + len(changes) // self.room_for(1))
        add_each(self.columns, changes)

    def evict(self, pod: int) -> None:
        """Release what ``pod`` holds."""
        self.reserve(1)
        booking.evict(self.facts, self.columns, self.offsets, pod)

    def pipeline(self, pod: int, node: int, placement: int, *, keep: bool) -> None:
        """Promise ``pod`` a place on ``node``."""
        self.reserve(1)
        booking.pipeline(self.facts, self.columns, self.offsets, pod, node, placement, keep)

    def unallocate(self, pod: int) -> None:
        """Take an allocated pod off its node."""
        self.reserve(1)
        booking.unallocate(self.facts, self.columns, self.offsets, pod)

    def settle(self) -> None:
        """Treat what was allocated since the last ``seal`` as binding."""
        done = self.columns.operations[: int(self.columns.counters[0]), 0]
        if not np.count_nonzero(done == OP_ALLOCATE):
            return
        self.reserve(int(self.columns.counters[0]))
        booking.settle(self.facts, self.columns, self.offsets)

    def operations(self) -> Int64s:
        """Return int64[o, 2]: (kind, pod) of the operations since the last ``seal``, in order."""
        return self.columns.operations[: int(self.columns.counters[0])].copy()

    def seal(self) -> None:
        """Make everything so far final.

        It can no longer be undone, and evicted pods no longer belong to the open statement.
        """
        self.reserve(int(self.columns.counters[0]))
        booking.seal(self.columns, self.offsets)
        self.forget()

    def forget(self) -> None:
        """Truncate the journal if it is long and all of it is final.

        Marks are positions in the journal, so marks from before must not be used afterwards.
        """
        if self.mark == self.final > MOST_FINAL + self.arena.size // 16:
            self._room.cursor[:] = 0
            self.is_whole = False

    def fingerprint(self) -> bytes:
        """Return the arena as bytes: equal before a change and after its undo."""
        return self.arena.tobytes()


__all__ = ["GPU_UNIT", "Ledger", "Sizes", "Tracked"]
