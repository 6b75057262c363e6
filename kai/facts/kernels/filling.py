"""Fills a heap of heaps from sorted groups, with the same result as pushing them one by one.

The order of groups within a leaf is total. So any sorted array is as good a heap as the one that pushes would make, and
listings keep such arrays from search to search. The order of queues is not total: which of two went first depended on
their best groups at the moment when the later queue got its first. So groups are walked by age until every queue has
one; then the listings are copied.

A heap of waiting groups lives from trial to trial (`Kept`). The order of the queues below one queue depends on nothing
outside of it. So where nothing changed below a queue, its order stays, and only those on the way to a change are made
again: some ten of thousands.
"""

import numpy as np

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, Float64s, Float64Table, Int64s, Int64Table, Struct
from kai.facts.kernels.arrays import ascending
from kai.facts.kernels.columns import SHARED_RESOURCES, Columns, Facts
from kai.facts.kernels.fit import Rules
from kai.facts.kernels.order import WAITING, Heap, append, entry_before, push
from kai.facts.kernels.queue_order import compare_queues

NEVER = np.inf
"""The age of the oldest entry where there is none."""
FEW = 32
"""Up to this many children are sorted by insertion although their order was never known."""


@inner
def usable(facts: Facts, group: int) -> bool:
    """Return whether the group's queue exists and is a leaf; other groups stay out of every heap."""
    queue = facts.groups.queue[group]
    return queue >= 0 and facts.queues.leaf[queue]


@inner
def empty(heap: Heap) -> None:
    """Remove everything from ``heap``."""
    heap.length[:] = 0
    heap.dirty[:] = 0
    heap.popped[:, :] = 0.0


@inner
def _meet(facts: Facts, columns: Columns, rules: Rules, heap: Heap, group: int) -> int:
    """Push ``group`` at its age: its queue appears (return 1), or the best group of the queue may change.

    Only the best group is kept; the others are copied later.
    """
    if not usable(facts, group):
        return 0
    queue = heap.queue[group]
    if heap.length[queue] == 0:
        push(facts, columns, rules, heap, group)
        return 1
    top = heap.start[queue]
    # The best group is all that the order of queues looks at; a heap with one entry is a heap.
    if entry_before(heap, group, heap.items[top]):
        heap.items[top] = group
    return 0


class Listing(Struct):
    """Groups by queue, each queue's in order, so that a heap is filled by copying."""

    items: Int64s  # [...] a queue's begin where its entries begin in a heap
    length: Int64s  # [Q + 1]
    member: Bools  # [G] the groups that are in it
    changed: Bools  # [Q + 1] queues whose lists or groups are not as a reader saw them; it clears that


@kernel
def fill_victims(
    facts: Facts,
    columns: Columns,
    rules: Rules,
    heap: Heap,
    listing: Listing,
    by_age: Int64s,
    queues: Bools,
    member: Bools,
) -> None:
    """Fill a heap of victims with the groups of ``listing`` that are in ``member`` [G] and in ``queues`` [Q].

    ``by_age`` is all groups, oldest first. Cost: one look at each group listed for one of ``queues``, at groups by age
    until each of these queues has one, and the few comparisons of queues.
    """
    empty(heap)
    missing = 0
    # Each look at a field of a struct counts references, which costs more than a step of these loops.
    items, start, queue_of = heap.items, heap.start, heap.queue
    listed, length, is_listed = listing.items, listing.length, listing.member
    for queue in range(queues.shape[0]):
        if queues[queue]:
            for at in range(start[queue], start[queue] + length[queue]):
                if member[listed[at]]:
                    missing += 1
                    break
    # By age, because pushes come by age: when a queue got its first entry decides how ties between queues went, and the
    # result must be that of the pushes.
    for group in by_age:
        if missing == 0:
            break
        if member[group] and is_listed[group] and queues[queue_of[group]]:
            missing -= _meet(facts, columns, rules, heap, group)
    for queue in range(queues.shape[0]):
        # Overwrites the one entry that stood for the queue with all of them, as they are listed. The order of the
        # queues themselves stays.
        if queues[queue]:
            count = start[queue]
            for at in range(start[queue], start[queue] + length[queue]):
                if member[listed[at]]:
                    items[count] = listed[at]
                    count += 1
            if length[queue] > 0:
                heap.length[queue] = count - start[queue]


@inner
def _before(keys: Float64Table, left: int, right: int) -> bool:
    for key in range(keys.shape[1]):
        if keys[left, key] != keys[right, key]:
            return keys[left, key] < keys[right, key]
    return False


@inner
def clear(listing: Listing) -> None:
    """Remove everything from ``listing``."""
    listing.length[:] = 0
    listing.member[:] = False
    listing.changed[:] = True


@inner
def list_last(facts: Facts, heap: Heap, listing: Listing, group: int) -> None:
    """Append ``group`` to the list of its queue; groups of unusable queues stay out."""
    if usable(facts, group):
        queue = heap.queue[group]
        listing.items[heap.start[queue] + listing.length[queue]] = group
        listing.length[queue] += 1
        listing.member[group] = True


@inner
def list_again(facts: Facts, heap: Heap, listing: Listing, group: int, belongs: bool, keys: Float64Table) -> None:
    """Remove ``group`` from its list and, if it ``belongs``, insert it by its ``keys`` [G, X].

    A listing for a heap of victims is in reverse order. Cost: O(groups of the queue), only for moving numbers.
    """
    queue = heap.queue[group]
    if listing.member[group]:
        listing.member[group] = False
        listing.changed[queue] = True
        at = heap.start[queue]
        # A scan, since the keys by which the group was listed are overwritten by now and a binary search would look in
        # the wrong place.
        while listing.items[at] != group:
            at += 1
        listing.length[queue] -= 1
        for after in range(at, heap.start[queue] + listing.length[queue]):
            listing.items[after] = listing.items[after + 1]
    if not belongs or not usable(facts, group):
        return
    listing.member[group] = True
    listing.changed[queue] = True
    low, high = heap.start[queue], heap.start[queue] + listing.length[queue]
    listing.length[queue] += 1
    last = high
    while low < high:
        middle = (low + high) // 2
        # The second part turns the comparison round for heaps of victims. No two groups are equal by all keys, so the
        # turned order is the exact reverse.
        if _before(keys, listing.items[middle], group) != (heap.victims[0] != WAITING):
            low = middle + 1
        else:
            high = middle
    for after in range(last, low, -1):
        listing.items[after] = listing.items[after - 1]
    listing.items[low] = group


class Kept(Struct):
    """A heap of waiting groups between trials: how the order of the queues below each queue came about.

    Children, and what happened to them, begin for each queue where its entries begin in the heap.
    """

    nodes: Int64s  # [Q + 1] all queues, the deepest first; the last is Q, the root
    children: Int64s  # [...] the queues below each, those with the oldest entries first
    count: Int64s  # [Q + 1] how many these are
    oldest: Float64s  # [Q + 1] age of the oldest entry of each
    times: Float64s  # [...] at which age of entries another child became the first
    tops: Int64s  # [...] that child
    turns: Int64s  # [Q + 1] how often that happened
    known: Bools  # [Q + 1] the children are nearly in order
    ranked: Bools  # [Q + 1] the entries of the queue are in order, best first
    used: Int64Table  # [Q, 3] what queues held when their order was made
    models: Int64Table  # [Q, M] the same of each GPU model; not filled if no queue has a quota of one
    lives: bool  # False: each trial makes all of it again


@inner
def _note_changes(facts: Facts, columns: Columns, kept: Kept, changed: Bools) -> None:
    """Mark in ``changed`` [Q + 1] queues whose children hold other amounts, and all queues above marked ones."""
    # Each look at a field of a struct counts references, which costs more than a comparison.
    parents, used, models = facts.queues.parent, kept.used, kept.models
    used_now, models_now, owed = columns.queue_used, columns.queue_models, facts.queues.deserved.shape[1]
    queues, root = parents.shape[0], parents.shape[0]
    if not kept.lives:
        changed[:] = True
    for queue in range(queues):
        above = parents[queue] if parents[queue] >= 0 else root
        for resource in range(SHARED_RESOURCES):
            if used[queue, resource] != used_now[queue, resource]:
                used[queue, resource] = used_now[queue, resource]
                changed[above] = True
        for model in range(owed):
            if models[queue, model] != models_now[queue, model]:
                models[queue, model] = models_now[queue, model]
                changed[above] = True
    for queue in range(queues):
        if changed[queue]:
            changed[root] = True
            above = parents[queue]
            # A marked queue has marked those above it, or will when its own turn comes.
            while above >= 0 and not changed[above]:
                changed[above] = True
                above = parents[above]


@inner
def _copy_leaf(heap: Heap, kept: Kept, queued: Listing, left_out: Bools, ages: Float64s, leaf: int) -> None:
    base, count, oldest = heap.start[leaf], 0, NEVER
    for at in range(base, base + queued.length[leaf]):
        group = queued.items[at]
        if not left_out[group]:
            heap.items[base + count] = group
            count += 1
            oldest = min(oldest, ages[group])
    heap.length[leaf] = count
    kept.oldest[leaf] = oldest
    kept.ranked[leaf] = True


@inner
def _best_at(facts: Facts, heap: Heap, kept: Kept, ages: Float64s, queue: int, time: float) -> int:
    """Return the entry that was the best below ``queue`` once those up to the age ``time`` were pushed."""
    while not facts.queues.leaf[queue]:
        low = heap.start[queue]
        high = low + kept.turns[queue] - 1
        while low < high:
            middle = (low + high + 1) // 2
            if kept.times[middle] <= time:
                low = middle
            else:
                high = middle - 1
        queue = kept.tops[low]
    best = -1
    for at in range(heap.start[queue], heap.start[queue] + heap.length[queue]):
        entry = heap.items[at]
        if ages[entry] <= time and (best < 0 or entry_before(heap, entry, best)):
            best = entry
            if kept.ranked[queue]:
                break
    return best


@inner
def _sort_children(heap: Heap, kept: Kept, node: int) -> None:
    base, count = heap.start[node], kept.count[node]
    if count > FEW and not kept.known[node]:
        ages = np.empty(count, np.float64)
        for at in range(count):
            ages[at] = kept.oldest[kept.children[base + at]]
        before = kept.children[base : base + count].copy()
        order = ascending(ages)
        for at in range(count):
            kept.children[base + at] = before[order[at]]
    kept.known[node] = True
    # Few of them have another oldest entry than the last time, so most are in their places.
    for at in range(1, count):
        child = kept.children[base + at]
        place = base + at
        while place > base and kept.oldest[kept.children[place - 1]] > kept.oldest[child]:
            kept.children[place] = kept.children[place - 1]
            place -= 1
        kept.children[place] = child


@inner
def _make_order(
    facts: Facts, columns: Columns, rules: Rules, heap: Heap, kept: Kept, ages: Float64s, node: int
) -> None:
    """Append the children of ``node`` in the order of their oldest entries, as pushes by age do."""
    _sort_children(heap, kept, node)
    base, length, turns = heap.start[node], 0, 0
    nothing = heap.popped[heap.popped.shape[0] - 1]
    for at in range(base, base + kept.count[node]):
        child = kept.children[at]
        time = kept.oldest[child]
        if time == NEVER:
            break
        heap.dirty[child] = 1
        heap.items[base + length] = child
        place, mine = length, _best_at(facts, heap, kept, ages, child, time)
        length += 1
        while place > 0:
            above = (place - 1) // 2
            other = heap.items[base + above]
            theirs = _best_at(facts, heap, kept, ages, other, time)
            # By the best entries of that moment: later ones do not sift a queue that is in the heap already.
            amounts, rival = heap.amounts[mine], heap.amounts[theirs]
            if compare_queues(facts, columns, rules, child, other, amounts, rival, nothing, nothing, mine, theirs) >= 0:
                break
            heap.items[base + place] = other
            heap.items[base + above] = child
            place = above
        if turns == 0 or kept.tops[base + turns - 1] != heap.items[base]:
            kept.times[base + turns] = time
            kept.tops[base + turns] = heap.items[base]
            turns += 1
    heap.length[node] = length
    kept.turns[node] = turns
    kept.oldest[node] = kept.oldest[kept.children[base]] if length > 0 else NEVER


@inner
def fill_waiting(
    facts: Facts,
    columns: Columns,
    rules: Rules,
    heap: Heap,
    kept: Kept,
    queued: Listing,
    left_out: Bools,
    ages: Float64s,
    groups: Int64s,
) -> None:
    """Fill a heap with the groups of ``queued`` that are not ``left_out`` [G] and with ``groups`` [n], as if pushed.

    ``groups`` are left out of the listing as well. ``ages`` [G]: the older, the smaller. Queues of all these count as
    changed again, since the next trial has others.
    Cost: a look at each queue; the groups and children of queues on the way to a change, and their comparisons.
    """
    changed = queued.changed
    for group in groups:
        if usable(facts, group):
            changed[heap.queue[group]] = True
    _note_changes(facts, columns, kept, changed)
    queues, is_leaf = facts.queues.parent.shape[0], facts.queues.leaf
    for node in kept.nodes:
        if changed[node] and node < queues and is_leaf[node]:
            _copy_leaf(heap, kept, queued, left_out, ages, node)
    for group in groups:
        if usable(facts, group):
            leaf = heap.queue[group]
            append(facts, columns, rules, heap, leaf, group)
            kept.oldest[leaf] = min(kept.oldest[leaf], ages[group])
            kept.ranked[leaf] = False
    # From below: the order of queues depends on what is below each of them.
    for node in kept.nodes:
        if changed[node] and not (node < queues and is_leaf[node]):
            _make_order(facts, columns, rules, heap, kept, ages, node)
        changed[node] = False
    for group in groups:
        if usable(facts, group):
            changed[heap.queue[group]] = True
