"""The heaps that actions pop groups from: a thin layer of Python over ``kai.kernels.order``.

A heap keeps one entry for each group, which is the whole group or a part of it. Keys and amounts of entries are
brought up to date before every operation for those groups whose pods changed status since.
"""

from typing import NamedTuple, Self

import numpy as np

from kai.engine.portion import Portion
from kai.engine.readiness import Filled
from kai.engine.session import Session
from kai.kernels.groups import describe_holding, describe_waiting, find_plain
from kai.kernels.order import RANKED, VICTIMS, WAITING, Heap, fill, pop, pop_among, pop_open, push
from kai.model.axis import Bools, GroupRows, Int64s


class Order(NamedTuple):
    """What of a heap changes when groups are popped that want something."""

    items: Int64s
    length: Int64s
    dirty: Int64s


class GroupHeap:
    """Groups by queue order, best first.

    With ``victims`` the order is reversed: the group that deserves its place least comes first.
    """

    def __init__(self, session: Session, *, victims: bool = False, depth: int = -1, every_key: bool = False) -> None:
        """Make an empty heap; ``depth`` bounds how many groups of one queue it keeps.

        ``every_key``: its records have the keys of all groups, and not only of those that were ever in it.
        """
        self._session = session
        self._victims = victims
        self._heap = _empty(session, victims=victims, depth=depth, every_key=every_key)
        self._parts: dict[int, Portion] = {}
        self._member = np.zeros(len(session.snapshot.groups), np.bool_)
        self._seen = session.changes()
        """How many changes of status there had been when its entries were brought up to date."""
        self._states = np.empty(len(self._member), np.float64)
        """[G] Elastic states of the groups that were described last."""
        self._dropped: Int64s | None = None

    @property
    def records(self) -> Heap:
        """The heap as kernels see it."""
        return self._heap

    def taken(self, group: int) -> Portion:
        """Return what the entry of ``group``, which a kernel popped, stood for."""
        self._member[group] = False
        return self._parts.pop(group, None) or self._session.portion(group)

    def drop(self, groups: GroupRows) -> None:
        """Let go of ``groups``, which a kernel popped."""
        self._member[groups] = False

    def order(self) -> Order:
        """Return in which order groups come, to be restored after a kernel popped some."""
        heap = self._heap
        return Order(heap.items.copy(), heap.length.copy(), heap.dirty.copy())

    def restore(self, order: Order) -> None:
        """Have groups come in ``order``, those included that a kernel popped and that were not dropped."""
        heap = self._heap
        heap.items[:] = order.items
        heap.length[:] = order.length
        heap.dirty[:] = order.dirty

    def copy(self) -> Self:
        """Return an equal heap that can be emptied without touching this one."""
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
        twin._states = self._states
        twin._dropped = None
        return twin

    def fill(self, groups: GroupRows, *, again: bool = False) -> None:
        """Push whole ``groups`` in their order; those of unknown queues, or of queues that are no leaves, stay out.

        ``again``: another empty heap may be filled with the same groups later, by the same rules. Where nothing has
        changed by then, it begins with what this one was.
        """
        session = self._session
        queues = session.facts.groups.queue[groups]
        usable = (
            groups[(queues >= 0) & session.facts.queues.leaf[queues]] if len(session.snapshot.queues) else groups[:0]
        )
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
        """Return the groups that were not popped yet, in no order that matters."""
        heap, queues = self._heap, self._session.facts.queues
        begins, ends = heap.start[:-1], heap.start[:-1] + heap.length
        leaves = np.flatnonzero(queues.leaf & (heap.length[:-1] > 0)).tolist()
        found = [heap.items[begins[leaf] : ends[leaf]] for leaf in leaves]
        return np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)

    def push(self, portion: Portion) -> None:
        """Add a group, or the part that is left of it."""
        session = self._session
        group = portion.group
        queue = int(session.facts.groups.queue[group])
        if queue < 0 or not session.facts.queues.leaf[queue]:
            return
        self.refresh()
        self._member[group] = True
        self._parts.pop(group, None)
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
        """Take the next one that is not ``closed`` [G]; return it (None: there is none) and the groups before it.

        The latter are dropped.
        """
        unbounded = self._heap.depth[0] < 0  # so that all members are in the heap
        if unbounded and not (self._member & ~closed).any():  # in which order they would come is of no interest
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
        """Take the next group that is ``wanted`` [G] and drop the groups before it; None when there is none."""
        self.refresh()
        group = pop_among(self._session.facts, self._session.columns, self._session.policy.rules, self._heap, wanted)
        if group < 0:
            return None
        self._member[group] = False
        return self._parts.pop(group, None) or self._session.portion(group)

    def refresh(self) -> None:
        """Describe the groups that changed, as every operation does, and as is due before a kernel pops."""
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
        for part in self._parts:
            described[groups == part] = False
        for group in map(int, groups[~described]):
            portion = self._parts.get(group) or session.portion(group)
            states[group] = portion.elastic_state()
            heap.amounts[group] = portion.counted_amounts() if self._victims else portion.amounts()
        if elastic >= 0:
            heap.keys[groups, elastic] = states[groups]


def _empty(session: Session, *, victims: bool, depth: int, every_key: bool) -> Heap:
    """Return a heap without entries. Memory for all groups is taken and not touched, unless they want ``every_key``."""
    facts = session.facts
    queues, groups = len(session.snapshot.queues), len(session.snapshot.groups)
    keys = session.group_keys.copy() if every_key else np.empty((groups, session.key_count), np.float64)
    order = WAITING
    if victims:
        order = RANKED if session.ranks_victims else VICTIMS
    if every_key and order == RANKED:
        keys[:, -1] = session.victim_ranks
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
