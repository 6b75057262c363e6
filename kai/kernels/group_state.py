"""The state of groups between searches: what each holds and wants, who waits, and where it ranks.

Described again is only whose pods changed their status. The rest of thousands of groups is as it was.
"""

from kai.kernels._jit import inner, kernel
from kai.kernels.arrays import copy
from kai.kernels.columns import Columns, Facts
from kai.kernels.filling import Listing, clear, list_again, list_last
from kai.kernels.fit import Rules
from kai.kernels.groups import has_pending, has_place, hold, is_plain, want
from kai.kernels.order import Heap
from kai.kernels.struct import Bools, Float64s, Float64Table, Int64s, Int64Table, Struct
from kai.kernels.victims import select

WAITING, UNKNOWN, CHANGED = 0, 1, 2


class GroupState(Struct):
    """All groups as they stood when they were last looked at, and the two heaps that know them."""

    heap: Heap  # of those that wait
    victims: Heap  # of those that may have to go
    queued: Listing  # those that wait, best first
    losing: Listing  # those that may have to go, best last
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
    changed: Int64s  # [G] those that were described by the last look
    chunk: Int64s  # [...]
    state: Int64s  # [3] how many wait, how many of those are unknown, how many changed


@inner
def _look(facts: Facts, columns: Columns, rules: Rules, groups: GroupState, group: int) -> None:
    """Describe one group."""
    hold(facts, columns, group, groups.states, groups.holding)
    copy(groups.holding[group], groups.victims.amounts[group])
    groups.waits[group] = has_pending(facts, columns, group)
    groups.placed[group] = has_place(facts, columns, group)
    if groups.waits[group]:
        if is_plain(facts, columns, group):
            want(facts, columns, groups.requested, group, groups.chunk, groups.wanting)
            copy(groups.wanting[group], groups.heap.amounts[group])
        else:
            groups.unknown[groups.state[UNKNOWN]] = group
            groups.state[UNKNOWN] += 1
    if rules.elastic_key >= 0:
        groups.victims.keys[group, rules.elastic_key] = groups.states[group]
        groups.heap.keys[group, rules.elastic_key] = groups.states[group]


@inner
def _may_lose(facts: Facts, groups: GroupState, group: int) -> bool:
    return groups.placed[group] and facts.groups.preemptible[group]


@kernel
def look_again(facts: Facts, columns: Columns, rules: Rules, groups: GroupState, few: int) -> None:
    """Describe the groups that changed since the last look; up to ``few`` are listed again where they belong now.

    If more changed, listing all again is the caller's, and so is asking what those in ``groups.unknown`` want.
    Cost: O(G) comparisons, and little more for each that changed.
    """
    groups.state[UNKNOWN] = 0
    groups.state[CHANGED] = 0
    begun = False
    for group in range(groups.seen.shape[0]):
        if groups.seen[group] != columns.epoch[group]:
            begun = _look_at(facts, columns, rules, groups, group) or begun
    _list_changed(facts, groups, begun, few)


@inner
def look_again_at(facts: Facts, columns: Columns, rules: Rules, groups: GroupState, few: int, pods: Int64Table) -> None:
    """Do what ``look_again`` does where only groups of ``pods`` changed; each pod is the second of its row."""
    groups.state[UNKNOWN] = 0
    groups.state[CHANGED] = 0
    begun = False
    for at in range(pods.shape[0]):
        group = facts.pods.group[pods[at, 1]]
        if group >= 0 and groups.seen[group] != columns.epoch[group]:
            begun = _look_at(facts, columns, rules, groups, group) or begun
    _list_changed(facts, groups, begun, few)


@inner
def _look_at(facts: Facts, columns: Columns, rules: Rules, groups: GroupState, group: int) -> bool:
    """Describe a group that changed; say whether it began to wait."""
    groups.seen[group] = columns.epoch[group]
    groups.changed[groups.state[CHANGED]] = group
    groups.state[CHANGED] += 1
    waited = groups.waits[group]
    _look(facts, columns, rules, groups, group)
    return groups.waits[group] and not waited


@inner
def _list_changed(facts: Facts, groups: GroupState, begun: bool, few: int) -> None:
    """List the groups that changed where they belong, unless they are more than ``few``; ``begun``: one waits now."""
    # Those that stopped waiting are taken out; one that began is found at its age.
    if begun:
        groups.state[WAITING] = select(groups.by_age, groups.waits, groups.waiting)
    else:
        groups.state[WAITING] = select(groups.waiting[: groups.state[WAITING]], groups.waits, groups.waiting)
    if groups.state[CHANGED] <= few:
        for group in groups.changed[: groups.state[CHANGED]]:
            list_again(facts, groups.heap, groups.queued, group, groups.waits[group], groups.heap.keys)
            list_again(
                facts, groups.victims, groups.losing, group, _may_lose(facts, groups, group), groups.victims.keys
            )


@kernel
def list_all(facts: Facts, groups: GroupState, ranked: Int64s, victims: Int64s) -> None:
    """List all groups anew; ``ranked`` and ``victims`` [G] are all of them by the keys of the two heaps. Cost: O(G)."""
    clear(groups.queued)
    clear(groups.losing)
    count = ranked.shape[0]
    for at in range(count):
        if groups.waits[ranked[at]]:
            list_last(facts, groups.heap, groups.queued, ranked[at])
        behind = victims[count - 1 - at]
        if _may_lose(facts, groups, behind):
            list_last(facts, groups.victims, groups.losing, behind)


@kernel
def keep_queues(facts: Facts, queues: Bools, member: Bools) -> None:
    """Take groups out of ``member`` [G] unless their queue is known and one of ``queues`` [Q]."""
    for group in range(member.shape[0]):
        queue = facts.groups.queue[group]
        member[group] = member[group] and queue >= 0 and queues[queue]
