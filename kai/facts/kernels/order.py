"""The heap of heaps from which actions pop the next group.

It is a tree of binary heaps: one for each queue with entries, and the root above the top queues. Leaves hold entries (a
group, or a part of one), inner heaps hold queues. It is *lazy*: entries inside a heap may be stale, and only the top is
sifted again after a change below it. That laziness decides who is served first, so the array moves are part of the
behaviour: push appends and sifts up; pop swaps first and last and sifts down (the smaller child, the left one on ties),
swapping only on strictly less.

Source: the peer's actions/utils (job order by queue), and its scheduler_util priority queue.
"""

import numpy as np

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, Float64Table, Int64s, Struct
from kai.facts.kernels.columns import SHARED_RESOURCES, Columns, Facts
from kai.facts.kernels.fit import Rules
from kai.facts.kernels.queue_order import FIRST_OF_EQUALS, LAST_OF_EQUALS, compare_queues

WAITING, VICTIMS, RANKED = 0, 1, 2


class Heap(Struct):
    """One heap of heaps. Shapes: E entries, Q queues (node Q is the root)."""

    items: Int64s  # [...] entries in leaves, queues elsewhere
    start: Int64s  # [Q + 2]
    length: Int64s  # [Q + 1]
    dirty: Int64s  # [Q + 1]
    queue: Int64s  # [E] leaf queue of each entry
    keys: Float64Table  # [E, X] smaller goes first; the last key is unique
    amounts: Float64Table  # [E, 3] next chunk of each entry; for victims: what its pods hold
    popped: Float64Table  # [Q, 3] what was popped from each leaf so far (victims only)
    depth: Int64s  # [1] most entries in a leaf, 0: no entry gets in; negative: no bound
    victims: Int64s  # [1] WAITING; VICTIMS: reversed order; RANKED: so, and of equal queues their next entries decide


@inner
def entry_before(heap: Heap, left: int, right: int) -> bool:
    """Return whether entry ``left`` of a leaf goes before ``right``."""
    for key in range(heap.keys.shape[1]):
        mine, theirs = heap.keys[left, key], heap.keys[right, key]
        if mine != theirs:
            # Victims go in the reversed order of waiting groups: the last that would be served is the first to go.
            return (mine < theirs) != (heap.victims[0] != WAITING)
    return heap.victims[0] != WAITING


@inner
def best_leaf(facts: Facts, heap: Heap, queue: int) -> int:
    """Return the leaf queue at the end of the path of tops below ``queue``."""
    while not facts.queues.leaf[queue]:
        queue = heap.items[heap.start[queue]]
    return queue


@inner
def _queue_before(facts: Facts, columns: Columns, rules: Rules, heap: Heap, left: int, right: int) -> bool:
    leaf_left, leaf_right = best_leaf(facts, heap, left), best_leaf(facts, heap, right)
    top_left, top_right = heap.items[heap.start[leaf_left]], heap.items[heap.start[leaf_right]]
    nothing = heap.popped[heap.popped.shape[0] - 1]
    if heap.victims[0] != WAITING:
        given = heap.popped[leaf_left] + heap.amounts[top_left]
        taken = heap.popped[leaf_right] + heap.amounts[top_right]
        order = compare_queues(facts, columns, rules, left, right, nothing, nothing, given, taken, -1, -1)
        if heap.victims[0] == RANKED and (order == FIRST_OF_EQUALS or order == LAST_OF_EQUALS):
            return entry_before(heap, top_left, top_right)
        return not order < 0
    wanted, rival = heap.amounts[top_left], heap.amounts[top_right]
    return compare_queues(facts, columns, rules, left, right, wanted, rival, nothing, nothing, top_left, top_right) < 0


@inner
def _before(facts: Facts, columns: Columns, rules: Rules, heap: Heap, node: int, left: int, right: int) -> bool:
    if node < facts.queues.leaf.shape[0] and facts.queues.leaf[node]:
        return entry_before(heap, left, right)
    return _queue_before(facts, columns, rules, heap, left, right)


@inner
def _sift_up(facts: Facts, columns: Columns, rules: Rules, heap: Heap, node: int) -> None:
    base = heap.start[node]
    at = heap.length[node] - 1
    while at > 0:
        parent = (at - 1) // 2
        if not _before(facts, columns, rules, heap, node, heap.items[base + at], heap.items[base + parent]):
            break
        heap.items[base + at], heap.items[base + parent] = heap.items[base + parent], heap.items[base + at]
        at = parent


@inner
def _sift_down(facts: Facts, columns: Columns, rules: Rules, heap: Heap, node: int) -> bool:
    """Let the top of ``node`` sink to its place; return whether it stayed at the top."""
    base = heap.start[node]
    length = heap.length[node]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= length:
            break
        if child + 1 < length and _before(
            facts, columns, rules, heap, node, heap.items[base + child + 1], heap.items[base + child]
        ):
            child += 1
        if not _before(facts, columns, rules, heap, node, heap.items[base + child], heap.items[base + at]):
            break
        heap.items[base + at], heap.items[base + child] = heap.items[base + child], heap.items[base + at]
        at = child
    return at == 0


@inner
def append(facts: Facts, columns: Columns, rules: Rules, heap: Heap, node: int, item: int) -> None:
    """Append ``item`` to one binary heap, and sift it up."""
    heap.items[heap.start[node] + heap.length[node]] = item
    heap.length[node] += 1
    _sift_up(facts, columns, rules, heap, node)


@inner
def _sink(heap: Heap, node: int) -> None:
    """Do the same as ``_sift_down`` for a leaf without stale entries, with half the comparisons.

    The better children move up all the way. Then the entry from the top finds its place from below, which is near,
    because it was the last entry.
    """
    base, length = heap.start[node], heap.length[node]
    item = heap.items[base]
    at = 0
    while 2 * at + 1 < length:
        child = 2 * at + 1
        if child + 1 < length and entry_before(heap, heap.items[base + child + 1], heap.items[base + child]):
            child += 1
        heap.items[base + at] = heap.items[base + child]
        at = child
    while at > 0:
        parent = (at - 1) // 2
        if not entry_before(heap, item, heap.items[base + parent]):
            break
        heap.items[base + at] = heap.items[base + parent]
        at = parent
    heap.items[base + at] = item


@inner
def _remove_top(facts: Facts, columns: Columns, rules: Rules, heap: Heap, node: int, steady: bool) -> int:
    base = heap.start[node]
    last = heap.length[node] - 1
    item = heap.items[base]
    heap.items[base] = heap.items[base + last]
    heap.items[base + last] = item
    heap.length[node] = last
    if steady and last > 0:
        _sink(heap, node)
    else:
        _sift_down(facts, columns, rules, heap, node)
    return item


@kernel
def push(facts: Facts, columns: Columns, rules: Rules, heap: Heap, entry: int) -> None:
    """Push an entry into the heap of its leaf queue.

    Queues that were empty join their parents; all heaps above become dirty.
    """
    root = heap.length.shape[0] - 1
    node = heap.queue[entry]
    if heap.depth[0] == 0:
        return
    fresh = heap.length[node] == 0
    append(facts, columns, rules, heap, node, entry)
    # The end of the array is dropped, which need not be the entry that would come last: the peer's heap does the same.
    if 0 <= heap.depth[0] < heap.length[node]:
        heap.length[node] -= 1
    leaf = node
    while fresh and node != root:
        parent = facts.queues.parent[node]
        above = parent if parent >= 0 else root
        fresh = heap.length[above] == 0
        append(facts, columns, rules, heap, above, node)
        node = above
    node = leaf
    while node >= 0:
        heap.dirty[node] = 1
        node = facts.queues.parent[node]


@kernel
def pop(facts: Facts, columns: Columns, rules: Rules, heap: Heap) -> int:
    """Take the next entry; -1 when there is none. Cost: O(depth x log) comparisons."""
    return _pop(facts, columns, rules, heap, False)


@inner
def pop_steady(facts: Facts, columns: Columns, rules: Rules, heap: Heap) -> int:
    """Pop like ``pop``, provided that the keys of entries do not change while these are in the heap."""
    return _pop(facts, columns, rules, heap, True)


@inner
def _next_leaf(facts: Facts, columns: Columns, rules: Rules, heap: Heap) -> tuple[int, bool]:
    """Return the leaf queue whose turn it is, and whether every queue on the way was compared and stayed in place.

    If so, the same leaf has the next turn, provided that its next entry wants the same and no queue changes: the
    comparisons would be the same.
    """
    root = heap.length.shape[0] - 1
    node, settled = root, True
    while node == root or not facts.queues.leaf[node]:
        top = heap.items[heap.start[node]]
        settled = settled and heap.dirty[top] == 1
        # A queue that sank may have left a top that is dirty as well, so this goes on until a clean one is on top.
        while heap.dirty[top] == 1:
            heap.dirty[top] = 0
            settled = _sift_down(facts, columns, rules, heap, node) and settled
            top = heap.items[heap.start[node]]
        node = top
    return node, settled


@inner
def _pop(facts: Facts, columns: Columns, rules: Rules, heap: Heap, steady: bool) -> int:
    if heap.length[heap.length.shape[0] - 1] == 0:
        return -1
    leaf, _ = _next_leaf(facts, columns, rules, heap)
    return _take_top(facts, columns, rules, heap, leaf, steady)


@inner
def _take_top(facts: Facts, columns: Columns, rules: Rules, heap: Heap, leaf: int, steady: bool) -> int:
    """Pop the top of ``leaf``; the heaps above it become dirty."""
    root, node = heap.length.shape[0] - 1, leaf
    entry = _remove_top(facts, columns, rules, heap, node, steady)
    if heap.victims[0] != WAITING:
        for resource in range(SHARED_RESOURCES):
            heap.popped[node, resource] += heap.amounts[entry, resource]
    while node != root and heap.length[node] == 0:
        parent = facts.queues.parent[node]
        node = parent if parent >= 0 else root
        _remove_top(facts, columns, rules, heap, node, False)
    while node != root and node >= 0:
        heap.dirty[node] = 1
        node = facts.queues.parent[node]
    return entry


@kernel
def fill(facts: Facts, columns: Columns, rules: Rules, heap: Heap, entries: Int64s) -> None:
    """Push ``entries`` in their order."""
    for entry in entries:
        push(facts, columns, rules, heap, entry)


@kernel
def pop_among(facts: Facts, columns: Columns, rules: Rules, heap: Heap, wanted: Bools) -> int:
    """Pop up to an entry that is ``wanted`` [E]; return -1 if there is none.

    The others are dropped, as nothing happens between two pops.
    """
    while True:
        entry = pop(facts, columns, rules, heap)
        if entry < 0 or wanted[entry]:
            return entry


@inner
def _all_closed(facts: Facts, heap: Heap, leaf: int, closed: Bools) -> bool:
    """Return whether all entries of ``leaf`` are ``closed`` [E] and want the same."""
    base = heap.start[leaf]
    top = heap.items[base]
    # From the end, because the first open entry is where later calls stop anyway.
    for at in range(heap.length[leaf] - 1, -1, -1):
        entry = heap.items[base + at]
        if not closed[entry] or facts.groups.bound[entry] != facts.groups.bound[top]:
            return False
        for resource in range(SHARED_RESOURCES):
            if heap.amounts[entry, resource] != heap.amounts[top, resource]:
                return False
    return True


@kernel
def pop_open(facts: Facts, columns: Columns, rules: Rules, heap: Heap, closed: Bools, dropped: Int64s) -> int:
    """Pop up to the first entry that is not ``closed`` [E], and return it; -1 if there is none.

    ``dropped`` [E + 1] receives the entries before it in arbitrary order, and their number in its last cell. A leaf
    that would get every turn until all its entries are dropped is emptied at once.
    """
    root, count = heap.length.shape[0] - 1, 0
    looked = np.zeros(root + 1, np.bool_)
    while heap.length[root] > 0:
        leaf, settled = _next_leaf(facts, columns, rules, heap)
        # `settled`: nothing is placed between these pops, so the comparisons that gave this leaf its turn would be
        # repeated with the same outcome while its next entry wants the same.
        if settled and heap.victims[0] == WAITING and not looked[leaf]:
            looked[leaf] = True
            if _all_closed(facts, heap, leaf, closed):
                # All but the top: popping the top as the last one updates the queues above.
                for at in range(1, heap.length[leaf]):
                    dropped[count] = heap.items[heap.start[leaf] + at]
                    count += 1
                heap.length[leaf] = 1
        entry = _take_top(facts, columns, rules, heap, leaf, False)
        if not closed[entry]:
            dropped[dropped.shape[0] - 1] = count
            return entry
        dropped[count] = entry
        count += 1
    dropped[dropped.shape[0] - 1] = count
    return -1
