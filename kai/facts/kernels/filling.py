"""Fills a heap of heaps from sorted groups, with the same result as pushing them one by one.

The order of groups within a leaf is total. So any sorted array is as good a heap as the one that pushes would make, and
listings keep such arrays from search to search. The order of queues is not total: which of two went first depended on
their best groups at the moment when the later queue got its first. So groups are walked by age until every queue has
one; then the listings are copied.
"""

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, Float64Table, Int64s, Struct
from kai.facts.kernels.columns import Columns, Facts
from kai.facts.kernels.fit import Rules
from kai.facts.kernels.order import WAITING, Heap, entry_before, push


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
def mark(facts: Facts, heap: Heap, group: int) -> int:
    """Mark the queue of ``group`` as one that will have entries; return 1 if it was not marked."""
    if not usable(facts, group):
        return 0
    fresh = 1 - heap.dirty[heap.queue[group]]
    heap.dirty[heap.queue[group]] = 1
    return fresh


@inner
def meet(facts: Facts, columns: Columns, rules: Rules, heap: Heap, group: int) -> int:
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
    for queue in range(queues.shape[0]):
        if queues[queue]:
            for at in range(heap.start[queue], heap.start[queue] + listing.length[queue]):
                if member[listing.items[at]]:
                    missing += 1
                    break
    # By age, because pushes come by age: when a queue got its first entry decides how ties between queues went, and the
    # result must be that of the pushes.
    for group in by_age:
        if missing == 0:
            break
        if member[group] and listing.member[group] and queues[heap.queue[group]]:
            missing -= meet(facts, columns, rules, heap, group)
    for queue in range(queues.shape[0]):
        # Overwrites the one entry that stood for the queue with all of them, as they are listed. The order of the
        # queues themselves stays.
        if queues[queue]:
            count = heap.start[queue]
            for at in range(heap.start[queue], heap.start[queue] + listing.length[queue]):
                if member[listing.items[at]]:
                    heap.items[count] = listing.items[at]
                    count += 1
            if listing.length[queue] > 0:
                heap.length[queue] = count - heap.start[queue]


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
