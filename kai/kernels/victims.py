"""Sums that searches for victims choose by; sets of victims as arrays: pods, and where each batch of them begins."""

import numpy as np

from kai.kernels._jit import inner, kernel
from kai.kernels.booking import accepted_gpu
from kai.kernels.columns import GPU_UNIT, PIPELINED, RELEASING, Columns, Facts
from kai.kernels.struct import Bools, Int64s

HUNDREDTH = GPU_UNIT // 100


@inner
def free_gpus_of(facts: Facts, columns: Columns, node: int, idle: Int64s, releasing: Int64s) -> None:
    """Fill the cells of one node, see ``free_gpus``."""
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
            idle[node] += GPU_UNIT - (100 * allocated + memory - 1) // memory * HUNDREDTH
        leaving = columns.slot_releasing[slot]
        if leaving > 0 and not (columns.slot_used[slot] != 0 and columns.slot_used[slot] == leaving):
            releasing[node] += (100 * leaving + memory - 1) // memory * HUNDREDTH


@kernel
def free_gpus(facts: Facts, columns: Columns, idle: Int64s, releasing: Int64s) -> None:
    """Fill ``idle`` and ``releasing`` [N] with thousandths of GPUs; parts of shared devices are rounded to hundredths.

    A shared device that is wholly being released already counts as a whole one. What was promised beyond what is
    released counts negative.
    """
    for node in range(idle.shape[0]):
        free_gpus_of(facts, columns, node, idle, releasing)


@inner
def refresh_free_gpus(facts: Facts, columns: Columns, seen: Int64s, idle: Int64s, releasing: Int64s) -> None:
    """Do what ``free_gpus`` does, but for nodes without changes since change ``seen[0]`` (-1: it was never done)."""
    size, last = columns.touched.shape[0], columns.touches[0]
    if seen[0] < 0 or last - seen[0] > size:
        free_gpus(facts, columns, idle, releasing)
    else:
        for change in range(seen[0], last):
            free_gpus_of(facts, columns, columns.touched[change % size], idle, releasing)
    seen[0] = last


@kernel
def add_held(facts: Facts, columns: Columns, pods: Int64s, out: Int64s) -> None:
    """Add to ``out`` [N] the thousandths of GPUs that ``pods`` hold on each node."""
    for pod in pods:
        node = columns.node[pod]
        if node >= 0:
            out[node] += accepted_gpu(facts, facts.pods.shape[pod], node)


@kernel
def select(order: Int64s, member: Bools, out: Int64s) -> int:
    """Fill ``out`` with those of ``order`` that are in ``member``; return how many."""
    count = 0
    for row in order:
        if member[row]:
            out[count] = row
            count += 1
    return count


@kernel
def distinct(pods: Int64s, count: int) -> Int64s:
    """Return each of ``pods``, rows below ``count``, once, where it comes first."""
    seen = np.zeros(count, np.bool_)
    out = np.empty(pods.shape[0], np.int64)
    found = 0
    for pod in pods:
        if not seen[pod]:
            seen[pod] = True
            out[found] = pod
            found += 1
    return out[:found].copy()


@kernel
def losing(columns: Columns, pods: Int64s, start: Int64s, victims: Int64s) -> Int64s:
    """Return which batches have an evicted or a moved pod, in the order of ``victims``, those with evicted ones first.

    A pod of several batches counts for the first.
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
    """Return, as one batch for each group, all ``recorded`` and ``potential`` pods of groups that would lose one there.

    Groups in the order of their first pods.
    """
    groups = facts.pods.group
    size = np.full(facts.groups.queue.shape[0], -1, np.int64)
    for pod in potential:
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
