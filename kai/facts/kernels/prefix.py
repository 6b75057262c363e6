"""Extends a set of victims batch by batch, until the nodes that they free could hold the waiting pods.

The loop pops groups off a heap of victims, takes from each the pods that it gives up first, and applies the filters.
Groups with a tree of sub-groups are handed back to Python, which takes from them and resumes the loop.
"""

import numpy as np

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, Int64s, Struct
from kai.facts.kernels.arrays import falling
from kai.facts.kernels.booking import accepted_gpu
from kai.facts.kernels.columns import ACTIVE_ALLOCATED, COUNTED, CPU, GPU, MEMORY, Columns, Facts
from kai.facts.kernels.fit import Rules, Vectors
from kai.facts.kernels.order import Heap, pop, push

EXHAUSTED, ACCEPTED, NOT_PLAIN, PAUSED = 0, 1, 2, 3
BATCHES, PODS, GROUP, PLACES, LARGE_PLACES = 0, 1, 2, 3, 4
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
    state: Int64s  # [5] batches, pods in them, group to ask about, places for pods of the least and of the largest size


@inner
def _count_places(prefix: Prefix, node: int, sign: int) -> None:
    """Add (``sign`` 1) or subtract (-1) the places on ``node`` for pods of the least and of the largest size."""
    wanted, capacity = prefix.wanted, prefix.capacity[node]
    least, largest = wanted[wanted.shape[0] - 1], wanted[0]
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
        if not prefix.known[pod]:
            prefix.known[pod] = True
            _free(facts, columns, vectors, prefix, pod)


@inner
def _has_too_few_places(prefix: Prefix) -> bool:
    """Return whether places are too few for the pods of the largest size, or for all pods of the least."""
    wanted, large = prefix.wanted, 0
    count = wanted.shape[0]
    while large < count and wanted[large] == wanted[0]:
        large += 1
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
        return True
    if wanted[0] == wanted[count - 1]:
        return prefix.state[PLACES] >= count
    if _has_too_few_places(prefix):
        return False
    sizes = falling(prefix.capacity)[:count]
    left = sizes.copy()
    for amount in wanted:
        if amount <= 0:
            return True
        held = False
        for at in range(sizes.shape[0]):
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
    victims = placed[count - 1 : count] if count > facts.groups.minimum[leaf] else placed[:count]
    for pod in victims:
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
    """Take batches until the filters accept; return why the loop ended.

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
        if _give_up(facts, columns, rules, vectors, prefix, group) and accepts(prefix):
            return ACCEPTED
    return PAUSED


@kernel
def put_back(facts: Facts, columns: Columns, rules: Rules, prefix: Prefix) -> None:
    """Push the rest of the group that was handed back; the caller has set its keys and amounts in the heap."""
    prefix.changed[0] += 1
    push(facts, columns, rules, prefix.heap, prefix.state[GROUP])
