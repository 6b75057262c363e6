"""Sums and group states for searches of victims, and sets of victims as arrays of pods and batch starts.

``GroupState`` holds for all groups, between searches, what each holds and wants, which wait, and their ranks. Only
groups whose pods changed status are described again, a handful among thousands.
"""

import numpy as np

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, Float64s, Float64Table, Int64s, Int64Table, Struct
from kai.facts.kernels.arrays import copy
from kai.facts.kernels.booking import accepted_gpu
from kai.facts.kernels.columns import ACTIVE_ALLOCATED, CPU, GPU_UNIT, MEMORY, PIPELINED, RELEASING, Columns, Facts
from kai.facts.kernels.filling import Listing, clear, list_again, list_last
from kai.facts.kernels.fit import Rules
from kai.facts.kernels.groups import has_pending, has_place, hold, is_plain, next_chunk, want
from kai.facts.kernels.order import Heap

HUNDREDTH = GPU_UNIT // 100


@inner
def free_gpus_of(facts: Facts, columns: Columns, node: int, idle: Int64s, releasing: Int64s) -> None:
    """Compute the free GPUs of one node; see ``free_gpus``."""
    idle[node] = 0
    releasing[node] = 0
    for resource in range(columns.idle.shape[1]):
        weight = facts.nodes.gpu_weight[resource]
        if weight > 0:
            idle[node] += weight * columns.idle[node, resource]
            releasing[node] += weight * columns.releasing[node, resource]
    memory = facts.nodes.gpu_memory[node]
    for slot in range(facts.nodes.slot_start[node], facts.nodes.slot_start[node + 1]):
        allocated = columns.slot_allocated[slot]
        if allocated > 0:
            # The part that is in use is rounded up, so that the free part is never more than a pod could get.
            idle[node] += GPU_UNIT - (100 * allocated + memory - 1) // memory * HUNDREDTH
        leaving = columns.slot_releasing[slot]
        if leaving > 0 and not (columns.slot_used[slot] != 0 and columns.slot_used[slot] == leaving):
            releasing[node] += (100 * leaving + memory - 1) // memory * HUNDREDTH


@kernel
def free_gpus(facts: Facts, columns: Columns, idle: Int64s, releasing: Int64s) -> None:
    """Fill ``idle`` and ``releasing`` [N] with thousandths of GPUs; parts of shared devices are rounded to hundredths.

    A shared device that is wholly being released counts as a whole one. Promises beyond the released amount count
    negative.
    """
    for node in range(idle.shape[0]):
        free_gpus_of(facts, columns, node, idle, releasing)


@inner
def refresh_free_gpus(facts: Facts, columns: Columns, seen: Int64s, idle: Int64s, releasing: Int64s) -> None:
    """Update ``free_gpus`` for nodes that changed since change ``seen[0]`` (-1: compute all)."""
    size, last = columns.touched.shape[0], columns.touches[0]
    # The changes are a ring: with more of them than it holds, the oldest were overwritten and no node can be trusted.
    if seen[0] < 0 or last - seen[0] > size:
        free_gpus(facts, columns, idle, releasing)
    else:
        for change in range(seen[0], last):
            free_gpus_of(facts, columns, columns.touched[change % size], idle, releasing)
    seen[0] = last


@inner
def _places_after_moves(facts: Facts, columns: Columns, room: Int64s, movable: Bools, sizes: Int64s, size: int) -> int:
    """Return how many places of ``size`` GPUs nodes have if each movable pod makes room as far as it can."""
    left = room.copy()
    for pod in range(facts.pods.shape.shape[0]):
        group, node = facts.pods.group[pod], columns.node[pod]
        if group >= 0 and node >= 0 and movable[group] and (ACTIVE_ALLOCATED >> columns.status[pod]) & 1:
            left[node] += sizes[facts.pods.shape[pod]] % size
    places = 0
    for node in range(left.shape[0]):
        places += max(left[node], 0) // size
    return places


@kernel
def may_fit_after_moves(
    facts: Facts,
    columns: Columns,
    waiting: Int64s,
    movable: Bools,
    sizes: Int64s,
    room: Int64s,
    free: Int64s,
    adds_up: bool,
) -> bool:
    """Return whether moves of pods of the groups ``movable`` [G] might make room for one of the ``waiting`` groups.

    Each of these has one leaf. ``sizes`` [K] are the thousandths of whole GPUs that a pod of each shape requests,
    ``room`` [N] the free ones, ``free`` [R] the free amounts of all ready nodes. ``adds_up``: GPUs are requested whole,
    so that places for one size can be counted.
    Cost: O(pods that wait), and a pass over the pods for each size of a request.
    """
    gpus, longest = 0, 1
    for node in range(room.shape[0]):
        if facts.nodes.ready[node]:
            gpus += room[node]
    for group in waiting:
        leaf = facts.groups.first_subgroup[group] + 1
        longest = max(longest, facts.groups.pod_start[leaf + 1] - facts.groups.pod_start[leaf])
    chunk, counted = np.empty(longest, np.int64), np.empty(waiting.shape[0], np.int64)
    places, known = np.empty(waiting.shape[0], np.int64), 0
    for group in waiting:
        count = next_chunk(facts, columns, facts.groups.first_subgroup[group] + 1, chunk)
        wanted, size, cpu, memory = 0, 0, 0, 0
        for pod in chunk[:count]:
            shape = facts.pods.shape[pod]
            wanted += sizes[shape]
            size = max(size, sizes[shape])
            cpu += facts.shapes.request[shape, CPU]
            memory += facts.shapes.request[shape, MEMORY]
        if wanted > gpus or cpu > free[CPU] or memory > free[MEMORY]:
            continue
        if size == 0 or not adds_up:
            return True
        at = 0
        while at < known and counted[at] != size:
            at += 1
        if at == known:
            counted[at], places[at] = size, _places_after_moves(facts, columns, room, movable, sizes, size)
            known += 1
        needed = 0
        for pod in chunk[:count]:
            needed += sizes[facts.pods.shape[pod]] // size
        if places[at] >= needed:
            return True
    return False


@kernel
def add_held(facts: Facts, columns: Columns, pods: Int64s, out: Int64s) -> None:
    """Add to ``out`` [N] the thousandths of GPUs that ``pods`` hold on each node."""
    for pod in pods:
        node = columns.node[pod]
        if node >= 0:
            out[node] += accepted_gpu(facts, facts.pods.shape[pod], node)


@kernel
def least_held(facts: Facts, columns: Columns, member: Bools, out: Int64s) -> None:
    """Fill ``out`` [Q]: the fewest thousandths of GPUs that a pod of a group in ``member`` [G] holds, by its queue.

    Only pods with a place and some GPU count; 0 where there is none. A pod whose group or sub-group
    has fewer pods than it needs counts as 1: it may be a smaller loss than one that holds less.
    """
    out[:] = 0
    for pod in range(facts.pods.shape.shape[0]):
        group, node = facts.pods.group[pod], columns.node[pod]
        if group < 0 or node < 0 or not member[group] or not (ACTIVE_ALLOCATED >> columns.status[pod]) & 1:
            continue
        held, queue, leaf = (
            accepted_gpu(facts, facts.pods.shape[pod], node),
            facts.groups.queue[group],
            facts.pods.leaf[pod],
        )
        if leaf >= 0 and columns.active[leaf] < facts.groups.minimum[leaf]:
            held = min(held, 1)
        if queue >= 0 and held > 0 and (out[queue] == 0 or held < out[queue]):
            out[queue] = held


@kernel
def select(order: Int64s, member: Bools, out: Int64s) -> int:
    """Fill ``out`` with the entries of ``order`` that are in ``member``; return their number."""
    count = 0
    for row in order:
        if member[row]:
            out[count] = row
            count += 1
    return count


@kernel
def distinct(pods: Int64s, count: int) -> Int64s:
    """Return the distinct ``pods``, which are rows below ``count``, in order of first occurrence."""
    seen = np.zeros(count, np.bool_)
    out = np.empty(pods.shape[0], np.int64)
    found = 0
    for pod in pods:
        if not seen[pod]:
            seen[pod] = True
            out[found] = pod
            found += 1
    # A slice would keep the whole array alive for as long as the scenario does.
    return out[:found].copy()


@kernel
def losing(columns: Columns, pods: Int64s, start: Int64s, victims: Int64s) -> Int64s:
    """Return the batches with an evicted or moved pod, in the order of ``victims``; those with evicted pods come first.

    A pod in several batches counts for the first.
    """
    batches = start.shape[0] - 1
    batch_of = np.full(columns.status.shape[0], -1, np.int64)
    for batch in range(batches):
        for at in range(start[batch], start[batch + 1]):
            if batch_of[pods[at]] < 0:
                batch_of[pods[at]] = batch
    out = np.empty(batches, np.int64)
    known = np.zeros(batches, np.bool_)
    found = 0
    # Two passes and not one sort: the order of victims within each kind stays, and a batch counts where it is met
    # first.
    for wanted in (RELEASING, PIPELINED):
        for pod in victims:
            batch = batch_of[pod]
            if columns.status[pod] == wanted and not known[batch]:
                known[batch] = True
                out[found] = batch
                found += 1
    return out[:found].copy()


@kernel
def gather(pods: Int64s, start: Int64s, chosen: Int64s) -> tuple[Int64s, Int64s]:
    """Return the ``chosen`` batches, in their order."""
    total = 0
    for batch in chosen:
        total += start[batch + 1] - start[batch]
    mine = np.empty(total, np.int64)
    begins = np.zeros(chosen.shape[0] + 1, np.int64)
    count = 0
    for at in range(chosen.shape[0]):
        for row in range(start[chosen[at]], start[chosen[at] + 1]):
            mine[count] = pods[row]
            count += 1
        begins[at + 1] = count
    return mine, begins


@kernel
def losing_on(facts: Facts, columns: Columns, recorded: Int64s, potential: Int64s, node: int) -> tuple[Int64s, Int64s]:
    """Return all ``recorded`` and ``potential`` pods of groups that would lose one there, a batch for each group.

    Groups come in the order of their first pods.
    """
    groups = facts.pods.group
    size = np.full(facts.groups.queue.shape[0], -1, np.int64)
    for pod in potential:
        # 0 marks a group that would lose one there, -1 all others. The same cells count pods next, and then hold where
        # the next pod of the group goes.
        if columns.node[pod] == node:
            size[groups[pod]] = 0
    total = recorded.shape[0] + potential.shape[0]
    order = np.empty(total, np.int64)
    count, found = 0, 0
    for at in range(total):
        pod = recorded[at] if at < recorded.shape[0] else potential[at - recorded.shape[0]]
        group = groups[pod]
        if size[group] >= 0:
            if size[group] == 0:
                order[found] = group
                found += 1
            size[group] += 1
            count += 1
    start = np.zeros(found + 1, np.int64)
    for at in range(found):
        start[at + 1] = start[at] + size[order[at]]
        size[order[at]] = start[at]
    pods = np.empty(count, np.int64)
    for at in range(total):
        pod = recorded[at] if at < recorded.shape[0] else potential[at - recorded.shape[0]]
        if size[groups[pod]] >= 0:
            pods[size[groups[pod]]] = pod
            size[groups[pod]] += 1
    return pods, start


WAITING, UNKNOWN, CHANGED = 0, 1, 2


class GroupState(Struct):
    """The states of all groups when they were last described, and the two heaps of them."""

    heap: Heap  # of waiting groups
    victims: Heap  # of groups that may be victims
    queued: Listing  # waiting groups, best first
    losing: Listing  # possible victims, best last
    by_age: Int64s  # [G] all groups, oldest first
    states: Float64s  # [G] elastic state
    wanting: Float64Table  # [G, 3] what the next chunk of each waiting group wants
    holding: Float64Table  # [G, 3] what pods of the group that count as used hold
    requested: Float64Table  # [K, 3] what a pod of each shape is assumed to request when groups are ordered
    waits: Bools  # [G] has a pending pod
    placed: Bools  # [G] has a pod with a place
    waiting: Int64s  # [G] waiting groups, oldest first
    unknown: Int64s  # [G] waiting groups whose request only Python can compute
    seen: Int64s  # [G] the epoch in which each was described
    changed: Int64s  # [G] groups described by the last call
    chunk: Int64s  # [...]
    state: Int64s  # [3] numbers of waiting, unknown and changed groups


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
    """Describe the groups that changed since the last call; if at most ``few`` did, list each anew.

    If more changed, the caller must list all again, and compute the requests of those in ``groups.unknown``.
    Cost: O(G) comparisons, and little more for each changed group.
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
    """Do the same as ``look_again`` if only groups of ``pods`` changed; the pod is the second item of each row."""
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
    """Describe a changed group; return whether it began to wait."""
    groups.seen[group] = columns.epoch[group]
    groups.changed[groups.state[CHANGED]] = group
    groups.state[CHANGED] += 1
    waited = groups.waits[group]
    _look(facts, columns, rules, groups, group)
    return groups.waits[group] and not waited


@inner
def _list_changed(facts: Facts, groups: GroupState, begun: bool, few: int) -> None:
    """Move changed groups to their places in the lists, unless they are more than ``few``; ``begun``: one waits now."""
    # Groups that stopped waiting are removed; a group that began to wait is inserted by its age.
    if begun:
        groups.state[WAITING] = select(groups.by_age, groups.waits, groups.waiting)
    else:
        groups.state[WAITING] = select(groups.waiting[: groups.state[WAITING]], groups.waits, groups.waiting)
    # Each move shifts a queue's list. Beyond a few of them one sort of all is cheaper, which the caller does.
    if groups.state[CHANGED] <= few:
        for group in groups.changed[: groups.state[CHANGED]]:
            list_again(facts, groups.heap, groups.queued, group, groups.waits[group], groups.heap.keys)
            list_again(
                facts, groups.victims, groups.losing, group, _may_lose(facts, groups, group), groups.victims.keys
            )


@kernel
def list_all(facts: Facts, groups: GroupState, ranked: Int64s, victims: Int64s) -> None:
    """List all groups anew; ``ranked`` and ``victims`` [G] are all groups in the order of the two heaps. Cost: O(G)."""
    clear(groups.queued)
    clear(groups.losing)
    count = ranked.shape[0]
    for at in range(count):
        if groups.waits[ranked[at]]:
            list_last(facts, groups.heap, groups.queued, ranked[at])
        # Backwards: a listing for a heap of victims is in reverse order.
        behind = victims[count - 1 - at]
        if _may_lose(facts, groups, behind):
            list_last(facts, groups.victims, groups.losing, behind)


@kernel
def keep_queues(facts: Facts, queues: Bools, member: Bools) -> None:
    """Clear ``member`` [G] for groups whose queue is unknown or not in ``queues`` [Q]."""
    for group in range(member.shape[0]):
        queue = facts.groups.queue[group]
        member[group] = member[group] and queue >= 0 and queues[queue]
