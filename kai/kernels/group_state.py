"""The state of groups between searches: what each holds and wants, who waits, and where it ranks.

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


class GroupState(Struct):
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
def _look(facts: Facts, columns: Columns, rules: Rules, groups: GroupState, group: int) -> None:
    """Describe one group."""
    before = groups.states[group]
    hold(facts, columns, group, groups.states, groups.holding)
    groups.victims.amounts[group, :] = groups.holding[group]
    groups.waits[group] = has_pending(facts, columns, group)
    groups.placed[group] = has_place(facts, columns, group)
    if groups.waits[group]:
        if is_plain(facts, columns, group):
            want(facts, columns, groups.requested, group, groups.chunk, groups.wanting)
            groups.heap.amounts[group, :] = groups.wanting[group]
        else:
            groups.unknown[groups.state[UNKNOWN]] = group
            groups.state[UNKNOWN] += 1
    if groups.states[group] != before:
        groups.moved[groups.state[MOVED]] = group
        groups.state[MOVED] += 1
        if rules.elastic_key >= 0:
            groups.victims.keys[group, rules.elastic_key] = groups.states[group]
            groups.heap.keys[group, rules.elastic_key] = groups.states[group]


@kernel
def look_again(facts: Facts, columns: Columns, rules: Rules, groups: GroupState, few: int) -> None:
    """Describe the groups that changed since the last look; up to ``few`` are moved to where they rank now.

    If more moved, ranking all again is the caller's, and so is asking what those in ``groups.unknown`` want.
    Cost: O(G), and little more for each that changed.
    """
    groups.state[UNKNOWN] = 0
    groups.state[MOVED] = 0
    begun = False
    for group in range(groups.seen.shape[0]):
        if groups.seen[group] != columns.epoch[group]:
            groups.seen[group] = columns.epoch[group]
            waited = groups.waits[group]
            _look(facts, columns, rules, groups, group)
            begun = begun or (groups.waits[group] and not waited)
    # Those that stopped waiting are taken out; one that began is found at its age.
    if begun:
        groups.state[WAITING] = select(groups.by_age, groups.waits, groups.waiting)
    else:
        groups.state[WAITING] = select(groups.waiting[: groups.state[WAITING]], groups.waits, groups.waiting)
    if rules.elastic_key >= 0 and 0 < groups.state[MOVED] <= few:
        rank_again(groups.heap.keys, groups.ranked, groups.moved[: groups.state[MOVED]])


@kernel
def keep_queues(facts: Facts, queues: Bools, member: Bools) -> None:
    """Take groups out of ``member`` [G] unless their queue is known and one of ``queues`` [Q]."""
    for group in range(member.shape[0]):
        queue = facts.groups.queue[group]
        member[group] = member[group] and queue >= 0 and queues[queue]
