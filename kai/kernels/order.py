"""Who is next? Comparing queues and groups, and the heap of heaps that the actions pop from.

The heap is a tree of binary heaps: one for each queue that has entries, the root above the top queues; leaves hold
entries (a group, or a part of one), inner heaps hold queues. It is *lazy*: what is inside a heap may have become
stale, only the top is sifted again when something below it changed. That laziness decides who is served first, so the
array moves are part of the behaviour: push appends and sifts up, pop swaps first and last and sifts down (the smaller
child, the left one on ties), swapping only on strictly less.

Source: the peer's actions/utils (job order by queue), its scheduler_util priority queue, and the queue order of its
    proportion plugin.
"""

from kai.kernels._jit import inner, kernel
from kai.kernels.columns import GPU, GPU_UNIT, SHARED_RESOURCES, Columns, Facts
from kai.kernels.fit import Rules
from kai.kernels.struct import Bools, Float64s, Float64Table, Int64s, Struct

UNSHARED_PENALTY = 1000.0


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
    victims: Int64s  # [1] 1: reversed order, for choosing victims


@inner
def dominant_share(facts: Facts, queue: int, cpu: float, memory: float, gpu: float) -> float:
    """Return the largest share of what ``queue`` may hold that the amounts are."""
    most = 0.0
    for resource in range(SHARED_RESOURCES):
        held = cpu if resource == 0 else (memory if resource == 1 else gpu)
        share = facts.queues.allocatable[queue, resource]
        if share < 0:
            share = facts.queues.total[resource]
        if share == 0:
            ratio = held if resource == GPU else held * UNSHARED_PENALTY
        elif resource == GPU:
            # In devices, as the peer divides: 2.4 / 3 is less than 1.6 / 2 in binary fractions, 2400 / 3000 is not.
            ratio = (held / GPU_UNIT) / (share / GPU_UNIT)
        else:
            ratio = held / share
        most = max(most, ratio)
    return most


@inner
def _over_utilised(facts: Facts, columns: Columns, queue: int) -> bool:
    for resource in range(SHARED_RESOURCES):
        if facts.queues.fair_share[queue, resource] >= columns.queue_used[queue, resource]:
            return False
    return True


@inner
def _starved(facts: Facts, columns: Columns, queue: int, wanted: Float64s) -> bool:
    for resource in range(SHARED_RESOURCES):
        quota = facts.queues.quota[queue, resource]
        if quota >= 0 and columns.queue_used[queue, resource] + wanted[resource] > quota:
            return False
    return True


@inner
def _uses_what_it_may_not(facts: Facts, columns: Columns, queue: int, wanted: Float64s) -> bool:
    for resource in range(SHARED_RESOURCES):
        if (
            facts.queues.allocatable[queue, resource] == 0
            and columns.queue_used[queue, resource] + wanted[resource] > 0
        ):
            return True
    return False


@inner
def _weaker(facts: Facts, left: int, right: int) -> bool:
    """Say whether ``left`` may hold no more of anything and less of something."""
    less = False
    for resource in range(SHARED_RESOURCES):
        mine = facts.queues.allocatable[left, resource]
        theirs = facts.queues.allocatable[right, resource]
        if mine < 0 and theirs < 0:
            continue
        if mine < 0 or (theirs >= 0 and mine > theirs):
            return False
        if theirs < 0 or mine < theirs:
            less = True
    return less


@kernel
def compare_queues(
    facts: Facts,
    columns: Columns,
    rules: Rules,
    left: int,
    right: int,
    wanted: Float64s,
    rival: Float64s,
    given: Float64s,
    taken: Float64s,
) -> int:
    """Return -1 if ``left`` goes before ``right``, else 1 (0 never.

    Of two queues made at the same instant the right one goes first).

    Shapes: wanted, rival [3] the next chunk of each side; given, taken [3] what the victims of each side hold.
    """
    if not rules.fair_order:
        if facts.queues.created[left] != facts.queues.created[right]:
            return -1 if facts.queues.created[left] < facts.queues.created[right] else 1
        return -1 if left < right else 1
    over_left, over_right = _over_utilised(facts, columns, left), _over_utilised(facts, columns, right)
    if over_left != over_right:
        return 1 if over_left else -1
    starved_left, starved_right = _starved(facts, columns, left, wanted), _starved(facts, columns, right, rival)
    if starved_left != starved_right:
        return -1 if starved_left else 1
    if facts.queues.priority[left] != facts.queues.priority[right]:
        return -1 if facts.queues.priority[left] > facts.queues.priority[right] else 1
    bad_left = _uses_what_it_may_not(facts, columns, left, wanted)
    bad_right = _uses_what_it_may_not(facts, columns, right, rival)
    if bad_left != bad_right:
        return 1 if bad_left else -1
    used_left, used_right = columns.queue_used[left], columns.queue_used[right]
    with_left = dominant_share(
        facts,
        left,
        used_left[0] + wanted[0] - given[0],
        used_left[1] + wanted[1] - given[1],
        used_left[2] + wanted[2] - given[2],
    )
    with_right = dominant_share(
        facts,
        right,
        used_right[0] + rival[0] - taken[0],
        used_right[1] + rival[1] - taken[1],
        used_right[2] + rival[2] - taken[2],
    )
    if with_left != with_right:
        return -1 if with_left < with_right else 1
    plain_left = dominant_share(facts, left, float(used_left[0]), float(used_left[1]), float(used_left[2]))
    plain_right = dominant_share(facts, right, float(used_right[0]), float(used_right[1]), float(used_right[2]))
    if plain_left != plain_right:
        return -1 if plain_left < plain_right else 1
    if _weaker(facts, left, right):
        return -1
    if _weaker(facts, right, left):
        return 1
    return -1 if facts.queues.created[left] < facts.queues.created[right] else 1


@inner
def entry_before(heap: Heap, left: int, right: int) -> bool:
    """Say whether entry ``left`` of a leaf goes before ``right``."""
    for key in range(heap.keys.shape[1]):
        mine, theirs = heap.keys[left, key], heap.keys[right, key]
        if mine != theirs:
            return (mine < theirs) != (heap.victims[0] == 1)
    return heap.victims[0] == 1


@inner
def best_leaf(facts: Facts, heap: Heap, queue: int) -> int:
    """Return the leaf queue that the path of tops below ``queue`` ends in."""
    while not facts.queues.leaf[queue]:
        queue = heap.items[heap.start[queue]]
    return queue


@inner
def _queue_before(facts: Facts, columns: Columns, rules: Rules, heap: Heap, left: int, right: int) -> bool:
    leaf_left, leaf_right = best_leaf(facts, heap, left), best_leaf(facts, heap, right)
    top_left, top_right = heap.items[heap.start[leaf_left]], heap.items[heap.start[leaf_right]]
    nothing = heap.popped[heap.popped.shape[0] - 1]
    if heap.victims[0] == 1:
        given = heap.popped[leaf_left] + heap.amounts[top_left]
        taken = heap.popped[leaf_right] + heap.amounts[top_right]
        return not compare_queues(facts, columns, rules, left, right, nothing, nothing, given, taken) < 0
    return (
        compare_queues(
            facts, columns, rules, left, right, heap.amounts[top_left], heap.amounts[top_right], nothing, nothing
        )
        < 0
    )


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
def _sift_down(facts: Facts, columns: Columns, rules: Rules, heap: Heap, node: int) -> None:
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


@inner
def append(facts: Facts, columns: Columns, rules: Rules, heap: Heap, node: int, item: int) -> None:
    """Put ``item`` into one binary heap."""
    heap.items[heap.start[node] + heap.length[node]] = item
    heap.length[node] += 1
    _sift_up(facts, columns, rules, heap, node)


@inner
def _sink(heap: Heap, node: int) -> None:
    """Do what ``_sift_down`` does to a leaf in which no entry is stale, with half the comparisons.

    The better children move up all the way, and then the entry from the top finds its place from below: it was the last
    one, so it is not far.
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
    """Put an entry into the heap of its leaf queue.

    Queues that were empty join their parents; everything above is to be sifted again.
    """
    root = heap.length.shape[0] - 1
    node = heap.queue[entry]
    if heap.depth[0] == 0:
        return
    fresh = heap.length[node] == 0
    append(facts, columns, rules, heap, node, entry)
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
    """Do what ``pop`` does where the keys of entries never change while these are in the heap."""
    return _pop(facts, columns, rules, heap, True)


@inner
def _pop(facts: Facts, columns: Columns, rules: Rules, heap: Heap, steady: bool) -> int:
    root = heap.length.shape[0] - 1
    if heap.length[root] == 0:
        return -1
    node = root
    while node == root or not facts.queues.leaf[node]:
        top = heap.items[heap.start[node]]
        while heap.dirty[top] == 1:
            heap.dirty[top] = 0
            _sift_down(facts, columns, rules, heap, node)
            top = heap.items[heap.start[node]]
        node = top
    entry = _remove_top(facts, columns, rules, heap, node, steady)
    if heap.victims[0] == 1:
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
def next_chunk(facts: Facts, columns: Columns, leaf: int, out: Int64s) -> int:
    """Fill ``out`` with the pods of a group's only leaf that the next attempt places; return how many.

    All that are missing to the minimum, or one more when it is reached: pods in order that are pending, or evicted by
    the open statement.
    """
    active = columns.active[leaf]
    missing = facts.groups.minimum[leaf] - active
    wanted = missing if missing > 0 else 1
    count = 0
    for at in range(facts.groups.pod_start[leaf], facts.groups.pod_start[leaf + 1]):
        if count == wanted:
            break
        pod = facts.groups.pods[at]
        status = columns.status[pod]
        if status == 0 or (status == 7 and columns.virtual[pod] == 1):
            out[count] = pod
            count += 1
    return count


@kernel
def pop_among(facts: Facts, columns: Columns, rules: Rules, heap: Heap, wanted: Bools) -> int:
    """Pop until an entry with ``wanted`` [E] comes; -1 when none does.

    The others are dropped: nothing happens between two pops.
    """
    while True:
        entry = pop(facts, columns, rules, heap)
        if entry < 0 or wanted[entry]:
            return entry


@kernel
def pop_open(facts: Facts, columns: Columns, rules: Rules, heap: Heap, closed: Bools, dropped: Int64s) -> int:
    """Pop until an entry comes that is not ``closed`` [E], and return it; -1 when none does.

    ``dropped`` [E + 1] receives the entries on the way, and in its last cell how many they are.
    """
    count = 0
    while True:
        entry = pop(facts, columns, rules, heap)
        if entry < 0 or not closed[entry]:
            dropped[dropped.shape[0] - 1] = count
            return entry
        dropped[count] = entry
        count += 1
