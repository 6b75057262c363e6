"""The heaps that actions pop groups from: a thin Python hand on the kernels of ``kai.kernels.order``.

A heap keeps one entry for each group, which is the whole group or a part of it. Keys and amounts of entries are brought up to date before every
operation for those groups whose pods changed status since.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from kai.framework.portion import Portion
from kai.kernels.order import Heap, pop, push
from kai.model.rows import Int64s

if TYPE_CHECKING:
    from kai.framework.session import Session


class GroupHeap:
    """Groups by queue order, best first; with ``victims`` in reverse, so that the group that deserves its place least comes first."""

    def __init__(self, session: "Session", *, victims: bool = False, depth: int = -1) -> None:
        """Make an empty heap; ``depth`` bounds how many groups of one queue it keeps."""
        facts = session.facts
        queues, groups = len(session.snapshot.queues), len(session.snapshot.groups)
        self._session = session
        self._victims = victims
        counts = np.zeros(queues + 1, np.int64)
        known = facts.groups.queue >= 0
        np.add.at(counts, facts.groups.queue[known], 1)
        parents = facts.queues.parent
        np.add.at(counts, np.where(parents >= 0, parents, queues), 1)
        start = np.zeros(queues + 2, np.int64)
        # One more than can be in a heap: an entry beyond the depth is appended before the last one is dropped.
        np.cumsum(counts + 1, out=start[1:])
        self._heap = Heap(
            items=np.zeros(int(start[-1]), np.int64),
            start=start,
            length=np.zeros(queues + 1, np.int64),
            dirty=np.zeros(queues + 1, np.int64),
            queue=facts.groups.queue,
            keys=session.group_keys.copy(),
            amounts=np.zeros((groups, 3), np.float64),
            popped=np.zeros((queues + 1, 3), np.float64),
            depth=np.array([depth], np.int64),
            victims=np.array([int(victims)], np.int64),
        )
        self._portions: dict[int, Portion] = {}
        self._seen = np.full(groups, -1, np.int64)

    def push(self, portion: Portion) -> bool:
        """Add a group or what is left of it; False, and nothing happens, when its queue is unknown or no leaf."""
        queue = int(self._session.facts.groups.queue[portion.group])
        if queue < 0 or not self._session.facts.queues.leaf[queue]:
            return False
        self._portions[portion.group] = portion
        self._refresh()
        self._describe(portion)
        push(self._session.facts, self._session.columns, self._session.policy.rules, self._heap, portion.group)
        return True

    def extend(self, portions: Iterable[Portion]) -> None:
        """Push each of ``portions`` in turn."""
        for portion in portions:
            self.push(portion)

    def pop(self) -> Portion | None:
        """Take the next one; None when the heap is empty."""
        self._refresh()
        group = pop(self._session.facts, self._session.columns, self._session.policy.rules, self._heap)
        return self._portions.pop(group) if group >= 0 else None

    def _refresh(self) -> None:
        epoch = self._session.columns.epoch
        for group in np.flatnonzero(epoch != self._seen):
            portion = self._portions.get(int(group))
            if portion is not None:
                self._describe(portion)
        self._seen[:] = epoch

    def _describe(self, portion: Portion) -> None:
        heap, group = self._heap, portion.group
        elastic = self._session.policy.rules.elastic_key
        if elastic >= 0:
            heap.keys[group, elastic] = portion.elastic_state()
        heap.amounts[group] = portion.counted_amounts() if self._victims else portion.amounts()


__all__ = ["GroupHeap", "Int64s"]
