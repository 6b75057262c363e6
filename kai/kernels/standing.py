"""How groups stand between searches: what each holds and wants, who waits, and where it ranks.

Described again is only whose pods changed their status. The rest of thousands of groups is as it was.
"""

from kai.kernels._jit import inner, kernel
from kai.kernels.columns import Columns, Facts
from kai.kernels.filling import rank_again
from kai.kernels.fit import Rules
from kai.kernels.groups import has_pending, has_place, hold, is_plain, want
from kai.kernels.order import Heap
from kai.kernels.struct import Bools, Float64s, Float64Table, Int64s, Struct
from kai.kernels.victims import select

WAITING, UNKNOWN, MOVED = 0, 1, 2


class Stand(Struct):
    """All groups as they stood when they were last looked at, and the two heaps that know them."""

    heap: Heap  # of those that wait
    victims: Heap  # of those that may have to go
    ranked: Int64s  # [G] all groups by the keys of either heap
    by_age: Int64s  # [G] all groups, oldest first
    states: Float64s  # [G] elastic state
    wanting: Float64Table  # [G, 3] what the next chunk of each waiting group wants
    holding: Float64Table  # [G, 3] what pods of the group that count as used hold
    requested: Float64Table  # [K, 3] what a pod of each shape is taken to want when groups are ordered
    waits: Bools  # [G] has a pending pod
    placed: Bools  # [G] has a pod with a place
    waiting: Int64s  # [G] those that wait, oldest first
    unknown: Int64s  # [G] those that wait and of which only Python can say what they want
    seen: Int64s  # [G] the epoch in which each was described
    moved: Int64s  # [G] those that changed their elastic state, and so may rank elsewhere
    chunk: Int64s  # [...]
    state: Int64s  # [3] how many wait, how many of those are unknown, how many moved


@inner
def _look(facts: Facts, columns: Columns, rules: Rules, stand: Stand, group: int) -> None:
    """Describe one group."""
    before = stand.states[group]
    hold(facts, columns, group, stand.states, stand.holding)
    stand.victims.amounts[group, :] = stand.holding[group]
    stand.waits[group] = has_pending(facts, columns, group)
    stand.placed[group] = has_place(facts, columns, group)
    if stand.waits[group]:
        if is_plain(facts, columns, group):
            want(facts, columns, stand.requested, group, stand.chunk, stand.wanting)
            stand.heap.amounts[group, :] = stand.wanting[group]
        else:
            stand.unknown[stand.state[UNKNOWN]] = group
            stand.state[UNKNOWN] += 1
    if stand.states[group] != before:
        stand.moved[stand.state[MOVED]] = group
        stand.state[MOVED] += 1
        if rules.elastic_key >= 0:
            stand.victims.keys[group, rules.elastic_key] = stand.states[group]
            stand.heap.keys[group, rules.elastic_key] = stand.states[group]


@kernel
def look_again(facts: Facts, columns: Columns, rules: Rules, stand: Stand, few: int) -> None:
    """Describe the groups that changed since the last look; up to ``few`` are moved to where they rank now.

    If more moved, ranking all again is the caller's, and so is asking what those in ``stand.unknown`` want.
    Cost: O(G), and little more for each that changed.
    """
    stand.state[UNKNOWN] = 0
    stand.state[MOVED] = 0
    begun = False
    for group in range(stand.seen.shape[0]):
        if stand.seen[group] != columns.epoch[group]:
            stand.seen[group] = columns.epoch[group]
            waited = stand.waits[group]
            _look(facts, columns, rules, stand, group)
            begun = begun or (stand.waits[group] and not waited)
    # Those that stopped waiting are taken out; one that began is found at its age.
    if begun:
        stand.state[WAITING] = select(stand.by_age, stand.waits, stand.waiting)
    else:
        stand.state[WAITING] = select(stand.waiting[: stand.state[WAITING]], stand.waits, stand.waiting)
    if rules.elastic_key >= 0 and 0 < stand.state[MOVED] <= few:
        rank_again(stand.heap.keys, stand.ranked, stand.moved[: stand.state[MOVED]])


@kernel
def keep_queues(facts: Facts, queues: Bools, member: Bools) -> None:
    """Take groups out of ``member`` [G] unless their queue is known and one of ``queues`` [Q]."""
    for group in range(member.shape[0]):
        queue = facts.groups.queue[group]
        member[group] = member[group] and queue >= 0 and queues[queue]
