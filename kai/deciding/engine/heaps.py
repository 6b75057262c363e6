"""The heaps from which actions pop groups: a thin layer of Python over ``kai.facts.kernels.order``.

A heap has one entry for each group: the whole group or a part of it. Before every operation, keys and amounts are
updated for groups whose pods changed status since.
"""

from typing import NamedTuple, Self

import numpy as np

from kai.deciding.engine.portion import Portion
from kai.deciding.engine.readiness import Filled
from kai.deciding.engine.session import Session
from kai.facts.kernels.groups import describe_holding, describe_waiting, find_plain
from kai.facts.kernels.order import RANKED, VICTIMS, WAITING, Heap, fill, pop, pop_among, pop_open, push
from kai.facts.model.axis import Bools, GroupRows, Int64s


class Order(NamedTuple):
    """The state of a heap that changes when pending groups are popped."""

    items: Int64s
    length: Int64s
    dirty: Int64s


class GroupHeap:
    """Groups in queue order, best first.

    With ``victims`` the order is reversed: the group that deserves its place least comes first.
    """

    def __init__(self, session: Session, *, victims: bool = False, depth: int = -1, every_key: bool = False) -> None:
        """Make an empty heap that keeps at most ``depth`` groups of a queue.

        ``every_key``: the records hold the keys of all groups, even if they were never in the heap.
        """
        self._session = session
        self._victims = victims
        self._heap = _empty(session, victims=victims, depth=depth, every_key=every_key)
        self._parts: dict[int, Portion] = {}
        self._member = np.zeros(len(session.snapshot.groups), np.bool_)
        self._seen = session.changes()
        """The number of status changes when the entries were last updated."""
        self._states = np.empty(len(self._member), np.float64)
        """[G] Elastic states, for the groups that were described last."""
        self._dropped: Int64s | None = None

    @property
    def records(self) -> Heap:
        """The heap as kernels see it."""
        return self._heap

    def taken(self, group: int) -> Portion:
        """Return the portion behind the entry of ``group``, which a kernel popped."""
        self._member[group] = False
        return self._parts.pop(group, None) or self._session.portion(group)

    def drop(self, groups: GroupRows) -> None:
        """Forget ``groups``, which a kernel popped."""
        self._member[groups] = False

    def order(self) -> Order:
        """Return the order of groups, to be restored after a kernel has popped some."""
        heap = self._heap
        return Order(heap.items.copy(), heap.length.copy(), heap.dirty.copy())

    def restore(self, order: Order) -> None:
        """Restore ``order``, with the groups that a kernel popped, except dropped ones."""
        heap = self._heap
        heap.items[:] = order.items
        heap.length[:] = order.length
        heap.dirty[:] = order.dirty

    def copy(self) -> Self:
        """Return an equal heap that can be emptied independently."""
        twin = object.__new__(type(self))
        twin._session = self._session
        twin._victims = self._victims
        heap = self._heap
        twin._heap = heap.replace(
            items=heap.items.copy(),
            length=heap.length.copy(),
            dirty=heap.dirty.copy(),
            keys=heap.keys.copy(),
            amounts=heap.amounts.copy(),
            popped=heap.popped.copy(),
        )
        twin._parts = dict(self._parts)
        twin._member = self._member.copy()
        twin._seen = self._seen
        # Shared on purpose: each description fills the cells that it reads.
        twin._states = self._states
        twin._dropped = None
        return twin

    def fill(self, groups: GroupRows, *, again: bool = False) -> None:
        """Push whole ``groups`` in their order, except groups of unknown queues and of queues that are no leaves.

        ``again``: other empty heaps may be filled with the same groups later, by the same rules. If nothing has changed
        by then, they start from a copy of this one.
        """
        session = self._session
        usable = in_leaf_queues(session, groups)
        self._member[usable] = True
        known = session.filled
        if again and known is not None and known.holds(self._heap, usable, session.changes()):
            known.write(self._heap)
            return
        self._describe(usable)
        fill(session.facts, session.columns, session.policy.rules, self._heap, usable)
        if again:
            session.filled = Filled.of(self._heap, usable, session.changes())

    def remaining(self) -> GroupRows:
        """Return the groups that were not popped yet, in arbitrary order."""
        heap, queues = self._heap, self._session.facts.queues
        begins, ends = heap.start[:-1], heap.start[:-1] + heap.length
        leaves = np.flatnonzero(queues.leaf & (heap.length[:-1] > 0)).tolist()
        found = [heap.items[begins[leaf] : ends[leaf]] for leaf in leaves]
        return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)

    def push(self, portion: Portion) -> None:
        """Add a group, or the rest of one."""
        session = self._session
        group = portion.group
        queue = int(session.facts.groups.queue[group])
        if queue < 0 or not session.facts.queues.leaf[queue]:
            return
        self.refresh()
        self._member[group] = True
        self._parts.pop(group, None)
        # A whole group is always the same object, so identity tells a part from it.
        if portion is not session.portion(group):
            self._parts[group] = portion
        self._describe(np.array([group], np.int64))
        push(session.facts, session.columns, session.policy.rules, self._heap, group)

    def pop(self) -> Portion | None:
        """Take the next group; None when the heap is empty."""
        self.refresh()
        group = pop(self._session.facts, self._session.columns, self._session.policy.rules, self._heap)
        if group < 0:
            return None
        self._member[group] = False
        return self._parts.pop(group, None) or self._session.portion(group)

    def pop_open(self, closed: Bools) -> tuple[Portion | None, GroupRows]:
        """Pop the first group that is not ``closed`` [G]; return it (None: there is none) and those before it.

        The groups before it are dropped.
        """
        unbounded = self._heap.depth[0] < 0  # all members are in the heap, not only the first of each queue
        if unbounded and not (self._member & ~closed).any():  # all are closed, so their order does not matter
            dropped = np.flatnonzero(self._member).astype(np.int64)
            self._member[:] = False
            self._heap.length[:] = 0
            return None, dropped
        self.refresh()
        session = self._session
        if self._dropped is None:
            self._dropped = np.empty(len(self._member) + 1, np.int64)
        group = pop_open(session.facts, session.columns, session.policy.rules, self._heap, closed, self._dropped)
        passed = self._dropped[: self._dropped[-1]].copy()
        self._member[passed] = False
        return (self.taken(group) if group >= 0 else None), passed

    def pop_among(self, wanted: Bools) -> Portion | None:
        """Pop up to the first group that is ``wanted`` [G], and drop those before it; None if there is none."""
        self.refresh()
        group = pop_among(self._session.facts, self._session.columns, self._session.policy.rules, self._heap, wanted)
        if group < 0:
            return None
        self._member[group] = False
        return self._parts.pop(group, None) or self._session.portion(group)

    def refresh(self) -> None:
        """Update the entries of changed groups. Every operation does it; callers do it before a kernel pops."""
        since, self._seen = self._seen, self._session.changes()
        if since == self._seen:
            return
        changed = self._session.changed_groups(since=since)
        mine = changed[self._member[changed]]
        if len(mine):
            self._describe(mine)

    def _describe(self, groups: Int64s) -> None:
        session, heap = self._session, self._heap
        elastic = session.policy.rules.elastic_key
        heap.keys[groups] = session.keys_of(groups)
        if self._victims and session.ranks_victims:
            heap.keys[groups, -1] = session.victim_ranks[groups]
        states = self._states
        described = np.ones(len(groups), np.bool_)
        if self._victims:
            describe_holding(session.facts, session.columns, groups, states, heap.amounts)
        else:
            describe_waiting(session.facts, session.columns, session.requested, groups, states, heap.amounts)
            find_plain(session.facts, session.columns, groups, described)
        # A part has other pods than its group, so what the kernels found for the whole group is wrong for it.
        for part in self._parts:
            described[groups == part] = False
        for group in map(int, groups[~described]):
            portion = self._parts.get(group) or session.portion(group)
            states[group] = portion.elastic_state()
            heap.amounts[group] = portion.counted_amounts() if self._victims else portion.amounts()
        if elastic >= 0:
            heap.keys[groups, elastic] = states[groups]


def in_leaf_queues(session: Session, groups: GroupRows) -> GroupRows:
    """Return those of ``groups`` that a heap takes: neither of unknown queues nor of queues that are no leaves."""
    if not len(session.snapshot.queues):
        return groups[:0]
    queues = session.facts.groups.queue[groups]
    return groups[(queues >= 0) & session.facts.queues.leaf[queues]]


def _empty(session: Session, *, victims: bool, depth: int, every_key: bool) -> Heap:
    """Return a heap without entries. Arrays over all groups stay untouched, unless they hold ``every_key``."""
    facts = session.facts
    queues, groups = len(session.snapshot.queues), len(session.snapshot.groups)
    keys = session.group_keys.copy() if every_key else np.empty((groups, session.key_count), np.float64)
    order = WAITING
    if victims:
        order = RANKED if session.ranks_victims else VICTIMS
    if every_key and order == RANKED:
        keys[:, -1] = session.victim_ranks
    # `np.empty` where it will do: cells of groups that never enter the heap are not read, and untouched pages cost
    # nothing.
    return Heap(
        items=np.empty(int(session.heap_start[-1]), np.int64),
        start=session.heap_start,
        length=np.zeros(queues + 1, np.int64),
        dirty=np.zeros(queues + 1, np.int64),
        queue=facts.groups.queue,
        keys=keys,
        amounts=np.zeros((groups, 3), np.float64) if every_key else np.empty((groups, 3), np.float64),
        popped=np.zeros((queues + 1, 3), np.float64),
        depth=np.array([depth], np.int64),
        victims=np.array([order], np.int64),
    )
