"""Filling a heap of heaps from groups whose order is known, as if they had been pushed one by one.

Inside a leaf the order of groups is total, so any array in order is as good a heap as the one that pushing would have
made. Among queues it is not: which of two goes first depended on their best groups at the moment when the later one
got its first. So groups are walked by age until every queue has one, and then written down in order.
"""

from kai.kernels._jit import inner, kernel
from kai.kernels.columns import Columns, Facts
from kai.kernels.fit import Rules
from kai.kernels.order import Heap, entry_before, push
from kai.kernels.struct import Bools, Float64Table, Int64s


@inner
def usable(facts: Facts, group: int) -> bool:
    """Say whether the group's queue exists and is a leaf; others stay out of every heap."""
    queue = facts.groups.queue[group]
    return queue >= 0 and facts.queues.leaf[queue]


@inner
def empty(heap: Heap) -> None:
    """Take everything out of ``heap``."""
    heap.length[:] = 0
    heap.dirty[:] = 0
    heap.popped[:, :] = 0.0


@inner
def mark(facts: Facts, heap: Heap, group: int) -> int:
    """Mark the queue of ``group`` as one that is to have entries; return 1 if it was not."""
    if not usable(facts, group):
        return 0
    fresh = 1 - heap.dirty[heap.queue[group]]
    heap.dirty[heap.queue[group]] = 1
    return fresh


@inner
def meet(facts: Facts, columns: Columns, rules: Rules, heap: Heap, group: int) -> int:
    """Let ``group`` come at its age: its queue appears (return 1), or the best group of the queue may change.

    Only the best one is kept; ``place`` writes the others down.
    """
    if not usable(facts, group):
        return 0
    queue = heap.queue[group]
    if heap.length[queue] == 0:
        push(facts, columns, rules, heap, group)
        return 1
    top = heap.start[queue]
    if entry_before(heap, group, heap.items[top]):
        heap.items[top] = group
    return 0


@inner
def clear_leaves(facts: Facts, heap: Heap) -> None:
    """Take the entries out of leaves, but not the leaves out of the queues above them."""
    for queue in range(facts.queues.leaf.shape[0]):
        if facts.queues.leaf[queue]:
            heap.length[queue] = 0


@inner
def place(facts: Facts, heap: Heap, group: int) -> None:
    """Write ``group`` down behind all that go before it."""
    if usable(facts, group):
        queue = heap.queue[group]
        heap.items[heap.start[queue] + heap.length[queue]] = group
        heap.length[queue] += 1


@kernel
def fill_victims(
    facts: Facts, columns: Columns, rules: Rules, heap: Heap, ranked: Int64s, by_age: Int64s, member: Bools
) -> None:
    """Fill a heap of victims with the groups that are ``member`` [G]; ``by_age`` is all groups, oldest first.

    ``ranked`` [G] is all groups, by the keys of ``heap``. Cost: O(G), and what few comparisons queues need.
    """
    empty(heap)
    missing = 0
    for group in range(member.shape[0]):
        if member[group]:
            missing += mark(facts, heap, group)
    heap.dirty[:] = 0
    for group in by_age:
        if missing == 0:
            break
        if member[group]:
            missing -= meet(facts, columns, rules, heap, group)
    clear_leaves(facts, heap)
    for at in range(ranked.shape[0] - 1, -1, -1):
        if member[ranked[at]]:
            place(facts, heap, ranked[at])


@inner
def _before(keys: Float64Table, left: int, right: int) -> bool:
    for key in range(keys.shape[1]):
        if keys[left, key] != keys[right, key]:
            return keys[left, key] < keys[right, key]
    return False


@inner
def _rank_of(keys: Float64Table, ranked: Int64s, count: int, group: int) -> int:
    """Return how many of the first ``count`` of ``ranked``, which are in order, go before ``group``."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if _before(keys, ranked[middle], group):
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def rank_again(keys: Float64Table, ranked: Int64s, groups: Int64s) -> None:
    """Move ``groups``, whose keys have changed, to where they belong in ``ranked`` [G].

    Cost: for each one move of at most G numbers.
    """
    count = ranked.shape[0]
    for group in groups:
        at = 0
        while ranked[at] != group:
            at += 1
        for after in range(at + 1, count):
            ranked[after - 1] = ranked[after]
        count -= 1
    for group in groups:
        at = _rank_of(keys, ranked, count, group)
        for after in range(count, at, -1):
            ranked[after] = ranked[after - 1]
        ranked[at] = group
        count += 1
