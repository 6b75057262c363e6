"""The state in which every cycle on one snapshot begins.

Tables for kernels are made once per snapshot. Each session books pods in an arena, and writes to it from then on.
"""

from collections.abc import Mapping, Sequence
from operator import is_
from sys import getrefcount
from typing import Final

import attrs
import numpy as np

from kai.facts.kernels.accounting import open_accounts, reopen_accounts
from kai.facts.kernels.columns import Columns, Facts, take_back
from kai.facts.model.axis import Bools, Int64s
from kai.facts.state import budgets
from kai.facts.state.facts import (
    group_facts,
    named_models,
    node_facts,
    pod_facts,
    queue_facts,
    shape_facts,
    shape_rows,
    slot_table,
)
from kai.facts.state.kept import (
    GroupColumns,
    group_columns,
    group_order,
    pending_pods,
    pod_order,
    pods_by_leaf,
    subgroup_columns,
    timed_groups,
)
from kai.facts.state.ledger import Layout, Ledger, Room, Sizes
from kai.facts.state.snapshot import Snapshot
from kai.facts.state.table_version import OWN

_LEFT: Final = "what the session before left"


@attrs.frozen
class Opening:
    """The opening books, with all assigned pods, for one session that may write to them."""

    arena: Int64s
    room: Room
    columns: Columns
    """The columns of the arena."""
    lacking: Int64s
    """Leaf sub-groups with fewer pods on nodes than they need."""


@attrs.frozen(eq=False)
class Left:
    """What a session leaves to the next: its arena, and the way back to its opening state."""

    memory: Int64s
    """The memory of the arena; it may be longer than the arena."""
    journal: Int64s
    entries: int
    """The number of journal entries to undo."""
    is_whole: bool
    """Whether undoing these restores the opening state."""
    base: "Base"
    assigned: object
    """The mark of the version of pod assignments."""
    lacking: Int64s
    """Leaf sub-groups that had fewer pods on nodes than they need when the session opened."""
    epoch: Int64s

    @property
    def is_free(self) -> bool:
        """Return whether no view of the memory is left; a holder of one would see its numbers change."""
        return getrefcount(self.memory) == OWN


@attrs.frozen(kw_only=True)
class Base:
    """Facts, layout, the placements of pods that share devices, and the names of slots."""

    facts: Facts
    layout: Layout
    placements: tuple[tuple[int, ...], ...]
    placed: tuple[int, ...]
    """The pods of these placements."""
    width: int
    slot_names: tuple[str, ...]
    pod_order: Int64s
    """Pod rows by creation time, then uid."""
    groups: GroupColumns
    constrained: Bools
    """[G] Groups with a topology constraint on some sub-group."""
    group_order: Int64s
    """Group rows by creation time, then uid."""
    pending: Int64s
    """Pods that are pending."""
    stale: Int64s
    """Groups that have a time since which they are stale."""
    partial: Int64s
    """Groups that have a time since which an optional sub-group lacks pods."""

    def open(self, snapshot: Snapshot) -> Opening:
        """Book every assigned pod of ``snapshot``, whose base this is.

        Holds: the books belong to the caller. They reuse the memory of the last session if no view of that is left.
        Cost: O(P + N R). If the last session was on a snapshot with the same rows: that of its writes and of the pods
            that have changed places since.
        """
        left, room, sizes = snapshot.memory.recall(_LEFT), self.room(), self.layout.sizes
        # Taken out first: if something below fails, these books are half undone.
        snapshot.memory.keep(_LEFT, None)
        if not isinstance(left, Left) or not left.is_free:
            left = None
        # Readers only compare an epoch with one they remember, so a session may begin with any numbers.
        epoch = np.zeros(sizes.groups, np.int64) if left is None or len(left.epoch) != sizes.groups else left.epoch
        if left is not None and left.is_whole:
            take_back(left.memory, left.journal, left.entries)
            # It has grown to what the session before needed, and this one most likely needs as much.
            room.journal = left.journal
            rows = self._differing(left, snapshot)
            if rows is not None:
                arena = left.memory[: self.layout.size]
                columns = self.layout.columns(arena, room, epoch)
                # The old facts say what was booked for these pods, the new ones what is to be booked: a pod may have
                # another shape now.
                status, node = snapshot.pod_status[rows], snapshot.pod_node[rows]
                reopen_accounts(left.base.facts, self.facts, columns, rows, status, node)
                # `make_final` sets the number of operations back without the journal, so taking the journal back leaves
                # it wrong.
                columns.counters[:] = 0
                budgets.book(snapshot, self.facts, columns)
                return Opening(arena, room, columns, self._still_lacking(columns, left, rows))
        return self._opened(snapshot, self._cleared(left), room, epoch)

    def _opened(self, snapshot: Snapshot, arena: Int64s, room: Room, epoch: Int64s) -> Opening:
        """Book all pods in an arena that is zero from the first column that begins at zero."""
        layout = self.layout
        view = layout.view
        arena[: layout.offsets.status] = 0
        view(arena, "status")[:] = snapshot.pod_status
        view(arena, "node")[:] = snapshot.pod_node
        arena[layout.offsets.placement : layout.still] = 0
        view(arena, "placement")[list(self.placed)] = np.arange(1, 1 + len(self.placed))
        view(arena, "counters")[1] = len(self.placed)
        view(arena, "idle")[:] = self.facts.nodes.allocatable
        columns = layout.columns(arena, room, epoch)
        open_accounts(self.facts, columns, layout.offsets)
        budgets.book(snapshot, self.facts, columns)
        return Opening(arena, room, columns, self._lacking(columns))

    def _lacking(self, columns: Columns) -> Int64s:
        """Return the leaves with fewer pods on nodes than they need. Cost: O(B)."""
        groups = self.facts.groups
        return np.flatnonzero(groups.leaf & (columns.occupying < groups.minimum))

    def _still_lacking(self, columns: Columns, left: Left, pods: Int64s) -> Int64s:
        """Return the same if only ``pods`` have changed places since the session before.

        Cost: that of the leaves of ``pods`` and of leaves that lacked pods, unless minimums changed.
        """
        groups, before = self.facts.groups, left.base.facts
        if before.groups.minimum is not groups.minimum:
            return self._lacking(columns)
        leaves = np.union1d(before.pods.leaf[pods], self.facts.pods.leaf[pods])
        leaves = leaves[leaves >= 0]
        lacking = leaves[groups.leaf[leaves] & (columns.occupying[leaves] < groups.minimum[leaves])]
        return np.union1d(np.setdiff1d(left.lacking, leaves), lacking)

    def _cleared(self, left: Left | None) -> Int64s:
        """Return an arena that is zero from the first column that begins at zero.

        Memory that the process has never touched costs five times as much as reused memory.
        """
        size, still = self.layout.size, self.layout.still
        if left is None or len(left.memory) < size:
            # With some room, so that a cluster that grows a little can use the same memory again.
            arena = np.empty(size + size // 16, np.int64)[:size]
            arena[still:] = 0
            return arena
        arena = left.memory[:size]
        before = left.base.layout
        if left.is_whole and still < before.size:  # most of it is zero already
            arena[still : before.still] = 0
            arena[before.size :] = 0
        else:
            arena[still:] = 0
        return arena

    def _differing(self, left: Left, snapshot: Snapshot) -> Int64s | None:
        """Return the pods that changed places since the session before opened; None if anything else changed too."""
        assigned = snapshot.versions.assigned
        is_same = assigned.mark is left.assigned
        follows = is_same or (assigned.before is left.assigned and assigned.has_kept_places)
        shares_devices = self.placed or left.base.placed or self.layout.sizes.slots
        # What a shared device counts depends on which pod came first, so the difference of a few pods cannot be added
        # up.
        if not follows or shares_devices or not _count_alike(left.base.facts, self.facts):
            return None
        return np.zeros(0, np.int64) if is_same else assigned.fresh

    def leave(self, snapshot: Snapshot, ledger: Ledger, lacking: Int64s) -> None:
        """Leave the arena of a finished session on ``snapshot`` to the next one."""
        if isinstance(ledger.arena.base, np.ndarray):  # it is a view: no plugin's columns made it a copy
            mark = snapshot.versions.assigned.mark
            arena, journal, entries = ledger.arena.base, ledger.journal, ledger.mark
            left = Left(arena, journal, entries, ledger.is_whole, self, mark, lacking, ledger.columns.epoch)
            snapshot.memory.keep(_LEFT, left)

    def room(self) -> Room:
        """Return new, empty logs."""
        return Room.of(self.placements, self.width)


def _counted_by(facts: Facts) -> tuple[object, ...]:
    groups, users = facts.groups, facts.users
    return (
        facts.shapes,
        facts.nodes,
        groups.queue,
        groups.preemptible,
        groups.first_subgroup,
        users.account,
        users.above,
    )


def _count_alike(before: Facts, now: Facts) -> bool:
    """Return whether a pod in an unchanged place counts as much as before, on the same node and for the same queues."""
    if not np.array_equal(before.queues.parent, now.queues.parent):
        return False
    if len(before.budgets.left) != len(now.budgets.left):  # their column is as long as there are budgets
        return False
    # By identity: these tables are made anew only if something in them changed, and comparing them would cost a pass.
    one, other = (_counted_by(facts) for facts in (before, now))
    return all(map(is_, one, other))


def _widest(snapshot: Snapshot, slot_start: Int64s, placements: Sequence[Sequence[int]]) -> int:
    """Return the most devices that one pod can have, at least 1.

    That is the largest request, but no more than the largest node has room for: users may write any number into an
    annotation, and tables have this width. A pod that requests more finds no node.
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
    by_leaf = snapshot.memory.once(
        "pods by leaf",
        (pods.leaf, order, snapshot.first_subgroup),
        lambda: pods_by_leaf(pods.leaf, order, int(snapshot.first_subgroup[-1])),
    )
    nodes = node_facts(snapshot, slot_start, slot_names)
    facts = Facts(
        nodes=nodes,
        shapes=shape_facts(snapshot),
        pods=pods,
        groups=group_facts(snapshot, groups, subgroups, by_leaf),
        queues=queue_facts(snapshot),
        budgets=budgets.budget_facts(snapshot),
        users=budgets.user_facts(snapshot, groups.queue, nodes),
    )
    layout = Layout.of(
        Sizes(
            nodes=len(snapshot.nodes),
            resources=len(snapshot.axis),
            slots=len(slot_names),
            queues=len(snapshot.queues),
            models=len(named_models(snapshot)),
            pods=len(snapshot.pods),
            subgroups=int(snapshot.first_subgroup[-1]),
            groups=len(snapshot.groups),
            budgets=len(facts.budgets.left),
            accounts=len(facts.users.limit),
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
        pending=pending_pods(snapshot),
        stale=timed_groups(snapshot, "stale", groups.stale_since),
        partial=timed_groups(snapshot, "partial", groups.partial_since),
    )
