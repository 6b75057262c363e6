"""Extends a set of victims batch by batch, until the nodes that they free could hold the waiting pods; the first probe.

The loop pops groups off a heap of victims, takes from each the pods that it gives up first, and applies the filters.
Groups with a tree of sub-groups are handed back to Python, which takes from them and resumes the loop.

The first probe: most searches are for one pod, and their first set of victims will do. One kernel finds the victims of
one node, another judges them. Then extending the victims, choosing one of their nodes and checking the result need no
Python. Less simple cases are left to the plain form.
"""

import numpy as np

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, Int64s, Struct
from kai.facts.kernels.arrays import copy, falling
from kai.facts.kernels.booking import accepted_gpu, requested_gpu
from kai.facts.kernels.columns import (
    ACTIVE_ALLOCATED,
    COUNTED,
    CPU,
    GPU,
    KIND_NONE,
    KIND_WHOLE,
    MEMORY,
    PENDING,
    PIPELINED,
    RELEASING,
    Columns,
    Facts,
)
from kai.facts.kernels.fit import Rules, Vectors
from kai.facts.kernels.order import Heap, pop, push
from kai.facts.kernels.trying import Aggressor
from kai.facts.kernels.victims import GroupState, losing_on, refresh_free_gpus

EXHAUSTED, ACCEPTED, NOT_PLAIN, PAUSED = 0, 1, 2, 3
BATCHES, PODS, GROUP, PLACES, LARGE_PLACES, BY_NODE, EACH, PLACES_BEFORE = 0, 1, 2, 3, 4, 5, 6, 7
AT_A_TIME = 512
"""The number of batches after which a caller may end the loop."""


class Prefix(Struct):
    """The victims taken so far, and the capacity that they free."""

    heap: Heap
    removed: Bools  # [P] pods that are no longer what their entry in the heap stands for
    known: Bools  # [P] victims of an easier problem
    pods: Int64s  # [P] pods that were taken, in order
    start: Int64s  # [P + 1] where each batch begins
    capacity: Int64s  # [N] thousandths of GPUs that are free or would be
    wanted: Int64s  # [n] what each waiting pod asks for, largest first
    masks: Int64s  # [m] rows of Vectors.masks that some node in reach must satisfy
    reached: Bools  # [m] whether one does
    changed: Int64s  # [1] entries of the heap that are another part of their group since this was set to 0
    before: Int64s  # [N] ``capacity`` without any batch
    spread: Bools  # [N] nodes of groups that gave a batch and have pods on several nodes
    useless: Bools  # [N] nodes whose victims alone cannot serve
    # [8] batches, pods in them, group to ask about, places for pods of the least and of the largest size; whether
    # victims come from one node at a time, what every waiting pod asks for if sums decide (else 0), places before
    state: Int64s


@inner
def _count_places(prefix: Prefix, node: int, sign: int) -> None:
    """Add (``sign`` 1) or subtract (-1) the places on ``node`` for pods of the least and of the largest size."""
    wanted, capacity = prefix.wanted, prefix.capacity[node]
    least, largest = wanted[wanted.shape[0] - 1], wanted[0]
    # A request of 0 would divide by zero, and needs no place.
    if 0 < least <= capacity:
        prefix.state[PLACES] += sign * (capacity // least)
    if 0 < largest <= capacity:
        prefix.state[LARGE_PLACES] += sign * (capacity // largest)


@inner
def _free(facts: Facts, columns: Columns, vectors: Vectors, prefix: Prefix, pod: int) -> None:
    """Count the resources of ``pod`` as free."""
    node = columns.node[pod]
    if node < 0:
        return
    # Taken off and added again around the change: the sums over nodes stay right without a pass over them.
    _count_places(prefix, node, -1)
    prefix.capacity[node] += accepted_gpu(facts, facts.pods.shape[pod], node)
    _count_places(prefix, node, 1)
    for at in range(prefix.masks.shape[0]):
        prefix.reached[at] = prefix.reached[at] or vectors.masks[prefix.masks[at], node]


@kernel
def begin(facts: Facts, columns: Columns, vectors: Vectors, prefix: Prefix, known: Int64s) -> None:
    """Begin with only the ``known`` pods taken, in addition to the free ``prefix.capacity``."""
    prefix.removed[:] = False
    prefix.known[:] = False
    prefix.state[:] = 0
    prefix.start[0] = 0
    for node in range(prefix.capacity.shape[0]):
        _count_places(prefix, node, 1)
    for pod in known:
        # A pod may be in several recorded batches, but frees its resources once.
        if not prefix.known[pod]:
            prefix.known[pod] = True
            _free(facts, columns, vectors, prefix, pod)


@kernel
def choose_by_node(prefix: Prefix, each: int) -> None:
    """Leave out sets whose part on the last node cannot serve; call it right after `begin`.

    ``each``: thousandths of GPUs that every waiting pod asks for, if places for that many prove something; else 0.
    """
    prefix.before[:] = prefix.capacity
    prefix.spread[:] = False
    prefix.useless[:] = False
    prefix.state[BY_NODE] = 1
    prefix.state[EACH] = each
    prefix.state[PLACES_BEFORE] = prefix.state[PLACES]


@inner
def _note_spread(facts: Facts, columns: Columns, prefix: Prefix, group: int) -> None:
    """Mark the nodes of ``group`` if its pods are on several: where one of them goes, pods elsewhere may go too."""
    first = facts.groups.pod_start[facts.groups.first_subgroup[group]]
    last = facts.groups.pod_start[facts.groups.first_subgroup[group + 1]]
    only, several = -1, False
    for at in range(first, last):
        node = columns.node[facts.groups.pods[at]]
        several = several or (node >= 0 and only >= 0 and node != only)
        only = max(only, node)
    if not several:
        return
    for at in range(first, last):
        node = columns.node[facts.groups.pods[at]]
        if node >= 0:
            prefix.spread[node] = True


@inner
def _is_useless(columns: Columns, prefix: Prefix) -> bool:
    """Return whether the set that would go on the node of the last batch cannot serve.

    Unless a group is spread over nodes, it consists of the pods on this node that were taken, and of known victims.
    """
    node = columns.node[prefix.pods[prefix.state[PODS] - 1]]
    if prefix.state[BY_NODE] == 0 or node < 0 or prefix.spread[node]:
        return False
    each = prefix.state[EACH]
    if prefix.useless[node] or each == 0:
        return prefix.useless[node]
    freed = max(prefix.capacity[node], 0) // each - max(prefix.before[node], 0) // each
    return prefix.state[PLACES_BEFORE] + freed < prefix.wanted.shape[0]


@inner
def _has_too_few_places(prefix: Prefix) -> bool:
    """Return whether places are too few for the pods of the largest size, or for all pods of the least."""
    wanted, large = prefix.wanted, 0
    count = wanted.shape[0]
    while large < count and wanted[large] == wanted[0]:
        large += 1
    # Both bounds hold for any way of placing the pods: each large one takes a large place, and each of all takes one of
    # the least.
    return prefix.state[LARGE_PLACES] < large or (wanted[count - 1] > 0 and prefix.state[PLACES] < count)


@kernel
def accepts(prefix: Prefix) -> bool:
    """Return whether the waiting pods might fit: largest pod first, each into the largest holder with enough left.

    Cost: O(N log N) if pods differ in their requests; O(n) if places are too few for the largest pods or for all.
    """
    for at in range(prefix.reached.shape[0]):
        if not prefix.reached[at]:
            return False
    wanted = prefix.wanted
    count = wanted.shape[0]
    if wanted[0] <= 0:
        # Sorted, so the first amount of 0 means that all are 0: pods that ask for no GPU fit as far as GPUs go.
        return True
    if wanted[0] == wanted[count - 1]:
        return prefix.state[PLACES] >= count
    if _has_too_few_places(prefix):
        return False
    # More nodes than pods are never needed, and the largest are tried first.
    sizes = falling(prefix.capacity)[:count]
    left = sizes.copy()
    for amount in wanted:
        if amount <= 0:
            return True
        held = False
        for at in range(sizes.shape[0]):
            # By the size before anything was placed: holders come largest first, so none after this one could ever hold
            # the pod.
            if sizes[at] < amount:
                return False
            if left[at] >= amount:
                left[at] -= amount
                held = True
                break
        if not held:
            return False
    return True


@kernel
def take(facts: Facts, columns: Columns, vectors: Vectors, prefix: Prefix, pods: Int64s) -> None:
    """Add ``pods`` as one batch."""
    batches, count = prefix.state[BATCHES], prefix.state[PODS]
    for pod in pods:
        prefix.pods[count] = pod
        prefix.removed[pod] = True
        count += 1
        _free(facts, columns, vectors, prefix, pod)
    if prefix.state[BY_NODE] and pods.shape[0]:
        _note_spread(facts, columns, prefix, facts.pods.group[pods[0]])
    prefix.state[BATCHES] = batches + 1
    prefix.state[PODS] = count
    prefix.start[batches + 1] = count


@inner
def _push_rest(facts: Facts, columns: Columns, rules: Rules, prefix: Prefix, group: int) -> None:
    """Push the rest of a group back into the heap, if there is any."""
    heap = prefix.heap
    leaf = facts.groups.first_subgroup[group] + 1
    active, left = 0, 0
    heap.amounts[group, :] = 0.0
    # Counted, because a listing fills the heap with whole groups alone: once some entry stands for a part, the heap
    # must be filled anew.
    prefix.changed[0] += 1
    for at in range(facts.groups.pod_start[leaf], facts.groups.pod_start[leaf + 1]):
        pod = facts.groups.pods[at]
        if prefix.removed[pod]:
            continue
        left += 1
        active += (ACTIVE_ALLOCATED >> columns.status[pod]) & 1
        if (COUNTED >> columns.status[pod]) & 1:
            shape = facts.pods.shape[pod]
            heap.amounts[group, CPU] += facts.shapes.request[shape, CPU]
            heap.amounts[group, MEMORY] += facts.shapes.request[shape, MEMORY]
            heap.amounts[group, GPU] += accepted_gpu(facts, shape, columns.node[pod])
    if left == 0:
        return
    if rules.elastic_key >= 0:
        minimum = facts.groups.minimum[leaf]
        heap.keys[group, rules.elastic_key] = 0.0 if active < minimum else (1.0 if active == minimum else 2.0)
    push(facts, columns, rules, heap, group)


@inner
def _give_up(facts: Facts, columns: Columns, rules: Rules, vectors: Vectors, prefix: Prefix, group: int) -> bool:
    """Take a pod above the minimum of a group of one leaf, else all its placed pods; return whether any was.

    From a group with known victims, the rest is taken later.
    """
    leaf = facts.groups.first_subgroup[group] + 1
    first, last = facts.groups.pod_start[leaf], facts.groups.pod_start[leaf + 1]
    placed = np.empty(last - first, np.int64)
    count = 0
    for at in range(first, last):
        pod = facts.groups.pods[at]
        if not prefix.removed[pod] and (ACTIVE_ALLOCATED >> columns.status[pod]) & 1:
            placed[count] = pod
            count += 1
    if count == 0:
        return False
    # The last pod first: pods are in their order of placement, so the one that would be placed last is given up first.
    # At its minimum a gang goes as a whole.
    victims = placed[count - 1 : count] if count > facts.groups.minimum[leaf] else placed[:count]
    for pod in victims:
        # Known victims count as free since `begin`. The entry goes back as the rest of its group without them.
        if prefix.known[pod]:
            for at in range(first, last):
                mine = facts.groups.pods[at]
                prefix.removed[mine] = prefix.removed[mine] or prefix.known[mine]
            _push_rest(facts, columns, rules, prefix, group)
            return False
    take(facts, columns, vectors, prefix, victims)
    if count > victims.shape[0]:
        _push_rest(facts, columns, rules, prefix, group)
    return True


@kernel
def extend(facts: Facts, columns: Columns, rules: Rules, vectors: Vectors, prefix: Prefix) -> int:
    """Take batches until the filters accept, and some victims might serve; return why the loop ended.

    EXHAUSTED: no victim is left. ACCEPTED: the caller may try the set. NOT_PLAIN: ``prefix.state[GROUP]`` was popped
    and needs Python. PAUSED: time for a caller with a budget to ask it; call again.
    Cost: two pops and little more for each batch, and the cost of ``accepts``.
    """
    for _ in range(AT_A_TIME):
        group = pop(facts, columns, rules, prefix.heap)
        if group < 0:
            return EXHAUSTED
        prefix.state[GROUP] = group
        if not facts.groups.simple[group]:
            return NOT_PLAIN
        gave = _give_up(facts, columns, rules, vectors, prefix, group)
        if gave and not _is_useless(columns, prefix) and accepts(prefix):
            return ACCEPTED
    # A kernel cannot ask for the time. The loop comes back after a number of batches, so that a search through a large
    # cluster still keeps its budget.
    return PAUSED


@kernel
def put_back(facts: Facts, columns: Columns, rules: Rules, prefix: Prefix) -> None:
    """Push the rest of the group that was handed back; the caller has set its keys and amounts in the heap."""
    prefix.changed[0] += 1
    push(facts, columns, rules, prefix.heap, prefix.state[GROUP])


UNSUITED, NONE_PASSES, PROPOSED = 0, 1, 2
VICTIMS, PARTS, CHANGES, PAUSES = 0, 1, 2, 3


class FirstProbe(Struct):
    """The inputs for first scenarios, and the scenario that was found."""

    prefix: Prefix  # of one waiting pod and one mask
    aggressor: Aggressor  # of one pod
    exact: Bools  # [G] groups of one leaf whose whole request the engine books itself
    plain: Bools  # [G] groups of one leaf that no plugin is asked about
    prepared: Bools  # [K] shapes for which ``vectors`` hold the answers
    idle: Int64s  # [N] thousandths of GPUs that are free
    releasing: Int64s  # [N] thousandths of GPUs that are being released
    seen: Int64s  # [1] the change of nodes up to which these are up to date, -1: never
    victims: Int64s  # [P] pods that would go
    start: Int64s  # [P + 1] where each batch of them begins
    state: Int64s  # [4] victims, batches, changes that trying them can make at most, pauses while they were found


@inner
def only_pod(facts: Facts, columns: Columns, group: int) -> int:
    """Return the only waiting pod of a group of one leaf whose other pods all have places; -1 otherwise."""
    leaf = facts.groups.first_subgroup[group] + 1
    first, last = facts.groups.pod_start[leaf], facts.groups.pod_start[leaf + 1]
    if columns.pending[leaf] != 1 or columns.active[leaf] + 1 != last - first:
        return -1
    for at in range(first, last):
        if columns.status[facts.groups.pods[at]] == PENDING:
            return facts.groups.pods[at]
    return -1


@inner
def _needs_no_gpu(facts: Facts, group: int) -> bool:
    """Return whether some pod of a group of one leaf requests no device."""
    leaf = facts.groups.first_subgroup[group] + 1
    for at in range(facts.groups.pod_start[leaf], facts.groups.pod_start[leaf + 1]):
        shape = facts.pods.shape[facts.groups.pods[at]]
        if facts.shapes.kind[shape] == KIND_NONE and facts.shapes.claimed[shape] == 0:
            return True
    return False


@inner
def _describe(
    facts: Facts, columns: Columns, vectors: Vectors, groups: GroupState, probe: FirstProbe, group: int, pod: int
) -> None:
    """Store the aggressor and the capacity of nodes, and begin without victims."""
    aggressor, prefix = probe.aggressor, probe.prefix
    aggressor.group[0] = group
    aggressor.pods[0] = pod
    aggressor.elastic[0] = groups.states[group]
    copy(groups.wanting[group], aggressor.amounts)
    refresh_free_gpus(facts, columns, probe.seen, probe.idle, probe.releasing)
    anywhere = _needs_no_gpu(facts, group)
    shape = facts.pods.shape[pod]
    mask = vectors.masks[facts.shapes.mask[shape]]
    everywhere, somewhere = True, False
    for node in range(probe.idle.shape[0]):
        aggressor.feasible[node] = anywhere or probe.idle[node] > 0 or probe.releasing[node] > 0
        prefix.capacity[node] = probe.idle[node] + probe.releasing[node]
        everywhere = everywhere and mask[node]
        somewhere = somewhere or (mask[node] and aggressor.feasible[node])
    prefix.wanted[0] = requested_gpu(facts, shape)
    prefix.masks[0] = facts.shapes.mask[shape]
    prefix.reached[0] = everywhere or somewhere
    # An empty slice: the kernel takes an array, and a new one would be an allocation in every search.
    begin(facts, columns, vectors, prefix, probe.victims[:0])


@inner
def _next_node(facts: Facts, columns: Columns, group: int, after: int) -> int:
    """Return the first node after ``after`` that a pod of the group is on; -1 if there is none."""
    found = -1
    first = facts.groups.pod_start[facts.groups.first_subgroup[group]]
    last = facts.groups.pod_start[facts.groups.first_subgroup[group + 1]]
    for at in range(first, last):
        node = columns.node[facts.groups.pods[at]]
        if node > after and (found < 0 or node < found):
            found = node
    return found


@inner
def _adopt(facts: Facts, probe: FirstProbe, pods: Int64s, start: Int64s) -> bool:
    """Store the victims that were found; return whether all are of plain groups."""
    changes = 0
    for batch in range(start.shape[0] - 1):
        group = facts.pods.group[pods[start[batch]]]
        if not probe.plain[group]:
            return False
        leaf = facts.groups.first_subgroup[group] + 1
        changes += facts.groups.pod_start[leaf + 1] - facts.groups.pod_start[leaf]
    copy(pods, probe.victims)
    copy(start, probe.start)
    probe.state[VICTIMS] = pods.shape[0]
    probe.state[PARTS] = start.shape[0] - 1
    # Each pod of these groups may lose its place and get one, and so may the aggressor's: the journal needs room for
    # both before the kernel begins.
    probe.state[CHANGES] = 2 * (pods.shape[0] + changes + 1)
    return True


@kernel
def propose_first(
    facts: Facts, columns: Columns, rules: Rules, vectors: Vectors, groups: GroupState, probe: FirstProbe, group: int
) -> int:
    """Return which first scenario there is for ``group``; victims come from ``groups.victims``, which alone changes.

    PROPOSED: ``probe`` has the victims: all batches of groups that would lose a pod on the first node of the group
    that was added last. NONE_PASSES: no scenario passes the filters. UNSUITED: the case is not for a kernel.
    """
    if not probe.plain[group]:
        return UNSUITED
    pod = only_pod(facts, columns, group)
    if pod < 0 or not probe.prepared[facts.pods.shape[pod]]:
        return UNSUITED
    _describe(facts, columns, vectors, groups, probe, group, pod)
    # The first set that is accepted has room on the node of its last batch, if none had before: this leaves out later
    # ones alone.
    shape = facts.pods.shape[pod]
    choose_by_node(probe.prefix, probe.prefix.wanted[0] if facts.shapes.kind[shape] == KIND_WHOLE else 0)
    probe.state[PAUSES] = 0
    return _propose(facts, columns, rules, vectors, probe)


@inner
def _propose(facts: Facts, columns: Columns, rules: Rules, vectors: Vectors, probe: FirstProbe) -> int:
    prefix = probe.prefix
    while True:
        ended = extend(facts, columns, rules, vectors, prefix)
        if ended == PAUSED:  # one pod costs too little to ask the budget
            probe.state[PAUSES] += 1
            continue
        if ended == EXHAUSTED:
            return NONE_PASSES
        if ended == NOT_PLAIN:
            return UNSUITED
        count = prefix.state[PODS]
        last = facts.pods.group[prefix.pods[count - 1]]
        # The group that was added last made the filters accept, so its nodes are where room appeared.
        node = _next_node(facts, columns, last, -1)
        while node >= 0:
            pods, start = losing_on(facts, columns, probe.victims[:0], prefix.pods[:count], node)
            if pods.shape[0] > 0:
                return PROPOSED if _adopt(facts, probe, pods, start) else UNSUITED
            node = _next_node(facts, columns, last, node)


@inner
def propose_next(facts: Facts, columns: Columns, rules: Rules, vectors: Vectors, probe: FirstProbe) -> int:
    """Return which scenario comes after the one of ``probe``, like ``propose_first``.

    UNSUITED also where the group that was added last is on several nodes, for each of them has a scenario of its own,
    and where the loop has paused, for then the budget has to be asked.
    """
    last = facts.pods.group[probe.prefix.pods[probe.prefix.state[PODS] - 1]]
    if _next_node(facts, columns, last, _next_node(facts, columns, last, -1)) >= 0:
        return UNSUITED
    ended = _propose(facts, columns, rules, vectors, probe)
    return ended if probe.state[PAUSES] == 0 else UNSUITED


@inner
def all_lose(columns: Columns, probe: FirstProbe) -> bool:
    """Return whether every victim loses its place."""
    for pod in probe.victims[: probe.state[VICTIMS]]:
        if columns.status[pod] != RELEASING:
            return False
    return True


@inner
def is_kept(columns: Columns, probe: FirstProbe) -> bool:
    """Return whether every victim got back the place that it had.

    Then the last probe knows no victims and tries the very same again.
    """
    for pod in probe.victims[: probe.state[VICTIMS]]:
        if columns.status[pod] == RELEASING or columns.status[pod] == PIPELINED:
            return False
    return True


@kernel
def is_final(facts: Facts, columns: Columns, vectors: Vectors, probe: FirstProbe) -> bool:
    """Return whether every victim goes, and the filters would accept exactly these victims.

    Call it once the aggressor has its place. Then trying them again would have the same result.
    """
    prefix = probe.prefix
    if probe.state[VICTIMS] == prefix.state[PODS]:
        # These are all victims that were taken when the filters accepted.
        return all_lose(columns, probe)
    reached = False
    mask = vectors.masks[prefix.masks[0]]
    everywhere = True
    for node in range(mask.shape[0]):
        prefix.capacity[node] = probe.idle[node] + probe.releasing[node]
        everywhere = everywhere and mask[node]
        reached = reached or (mask[node] and probe.aggressor.feasible[node])
    most = prefix.capacity.max()
    for at in range(probe.state[VICTIMS]):
        pod = probe.victims[at]
        node = columns.node[pod]
        if columns.status[pod] != RELEASING:
            return False
        prefix.capacity[node] += accepted_gpu(facts, facts.pods.shape[pod], node)
        most = max(most, prefix.capacity[node])
        reached = reached or mask[node]
    return (everywhere or reached) and (prefix.wanted[0] == 0 or most >= prefix.wanted[0])
