"""How much of a node's GPUs the pods that usually come could not use, and by how much a placement changes that.

What is idle on a node is worth what can still be put there. A ``Mix`` says which shapes usually come and how often.
For each of them it is known what it could not use of a node; so is what pods beyond the next one will be short of, if
they want CPU and memory for each GPU as pods of the mix do. A placement is the better, the less it adds to the sum.

It is a function of the node's own numbers, so the rating of a node holds until these change.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, for what the next pod cannot use. Memory, what later
    pods are short of, and the pressure on nodes that few shapes may use are our own.
"""

import math

import numpy as np

from kai.kernels._jit import inner
from kai.kernels.booking import device_memory, is_shared, whole
from kai.kernels.columns import CPU, GPU, GPU_UNIT, KIND_WHOLE, MEMORY, Columns, Facts
from kai.kernels.struct import Bools, BoolTable, Float64s, Int64s, Struct

STEPS = 1024.0
"""Parts of a point that ratings are rounded to: sums with other scores are exact then, in whatever order."""
NONE, FRESH = -1, -2


class Mix(Struct):
    """What usually comes. Shapes: T typical shapes, N nodes. A ``weight`` of 0 says that nothing is rated by it."""

    weight: float  # points for each GPU that stays usable
    shapes: Int64s  # [T] rows of shapes that ask for whole GPUs or share some
    shares: Float64s  # [T] how frequent each of them is; together 1
    allowed: BoolTable  # [T, N] where they may run
    gpu_by_cpu: Float64s  # [N] GPUs for each unit of CPU that pods that may run there want on average
    gpu_by_memory: Float64s  # [N] likewise, of memory
    pressure: Float64s  # [N] how often each GPU is asked for, of those who may run there; 1 on average


def no_mix() -> Mix:
    """Return the mix by which nothing is rated."""
    nothing, none = np.zeros(0, np.float64), np.zeros(0, np.int64)
    return Mix(
        weight=0.0,
        shapes=none,
        shares=nothing,
        allowed=np.zeros((0, 0), np.bool_),
        gpu_by_cpu=nothing,
        gpu_by_memory=nothing,
        pressure=nothing,
    )


@inner
def _unusable_for(
    facts: Facts, mix: Mix, at: int, node: int, cpu: int, memory: int, wholes: int, free: Int64s, count: int, total: int
) -> int:
    """Return the MiB of ``total`` on idle devices that a pod of the typical shape ``at`` could not use."""
    shape = mix.shapes[at]
    request = facts.shapes.request
    if not mix.allowed[at, node] or request[shape, CPU] > cpu or request[shape, MEMORY] > memory:
        return total
    device = facts.nodes.gpu_memory[node]
    if facts.shapes.kind[shape] == KIND_WHOLE:
        return total - wholes * device if wholes >= request[shape, GPU] // GPU_UNIT else total
    wanted = device_memory(facts, shape, node)
    if wanted > device:
        return total
    fitting, usable = wholes, wholes * device
    for each in range(count):
        if free[each] >= wanted:
            fitting += 1
            usable += free[each]
    return total - usable if fitting >= facts.shapes.devices[shape] else total


@inner
def unusable(facts: Facts, mix: Mix, node: int, cpu: int, memory: int, wholes: int, free: Int64s, count: int) -> float:
    """Return what is lost of a node with so much left, in GPUs.

    ``wholes`` devices are idle, ``free`` [count] MiB are left on devices in sharing. What pressure says is worth
    something is taken off, so the result can be negative; only differences mean anything.
    """
    device = facts.nodes.gpu_memory[node]
    total = wholes * device
    for each in range(count):
        total += free[each]
    if total <= 0 or device <= 0:
        return 0.0
    lost = 0.0
    for at in range(mix.shapes.shape[0]):
        lost += mix.shares[at] * _unusable_for(facts, mix, at, node, cpu, memory, wholes, free, count, total)
    lost /= device
    gpus = total / device
    reached = max(0.0, min(cpu * mix.gpu_by_cpu[node], memory * mix.gpu_by_memory[node]))
    return lost + max(0.0, gpus - reached) - mix.pressure[node] * gpus


@inner
def _devices_in_sharing(facts: Facts, columns: Columns, node: int, free: Int64s, slots: Int64s) -> int:
    """Fill what is left on each device in sharing, what is being released there included; return how many there are.

    A device that all its pods are leaving is a whole one that is being released.
    """
    count = 0
    for slot in range(facts.nodes.slot_start[node], facts.nodes.slot_start[node + 1]):
        if columns.slot_used[slot] > 0 and columns.slot_allocated[slot] != columns.slot_releasing[slot]:
            left = facts.nodes.gpu_memory[node] - columns.slot_allocated[slot] + columns.slot_releasing[slot]
            free[count] = max(0, left)
            slots[count] = slot
            count += 1
    return count


@inner
def _whole_devices(columns: Columns, node: int) -> int:
    return max(0, whole(columns.idle[node, GPU] + columns.releasing[node, GPU]))


@inner
def _least(
    facts: Facts,
    mix: Mix,
    node: int,
    wanted: int,
    cpu: int,
    memory: int,
    wholes: int,
    free: Int64s,
    count: int,
    taken: Bools,
    sharing: int,
) -> int:
    """Return the device that is taken with least loss: its place in ``free``, FRESH, or NONE.

    Of those that lose the same, the one with least left is taken. ``sharing`` devices were so before the pod came.
    """
    best, least, room = NONE, 0.0, 0
    for each in range(sharing):
        if taken[each] or free[each] < wanted:
            continue
        alike = False
        for earlier in range(each):
            alike = alike or (free[earlier] == free[each] and not taken[earlier])
        if alike:
            continue
        free[each] -= wanted
        lost = unusable(facts, mix, node, cpu, memory, wholes, free, count)
        free[each] += wanted
        if best == NONE or lost < least or (lost == least and free[each] < room):
            best, least, room = each, lost, free[each]
    if wholes > 0 and wanted <= facts.nodes.gpu_memory[node]:
        free[count] = facts.nodes.gpu_memory[node] - wanted
        lost = unusable(facts, mix, node, cpu, memory, wholes - 1, free, count + 1)
        if best == NONE or lost < least:
            best = FRESH
    return best


@inner
def _lost_with(
    facts: Facts,
    mix: Mix,
    shape: int,
    node: int,
    cpu: int,
    memory: int,
    wholes: int,
    free: Int64s,
    slots: Int64s,
    count: int,
    chosen: Int64s,
) -> float:
    """Return what is lost once a sharing pod has taken its devices, and fill ``chosen`` with them.

    ``chosen`` gets a slot, or FRESH for a whole device; where there is none for the pod, it keeps NONE.
    """
    wanted, sharing = device_memory(facts, shape, node), count
    taken = np.zeros(sharing, np.bool_)
    for device in range(min(facts.shapes.devices[shape], chosen.shape[0])):
        best = _least(facts, mix, node, wanted, cpu, memory, wholes, free, count, taken, sharing)
        if best == NONE:
            break
        if best == FRESH:
            free[count] = facts.nodes.gpu_memory[node] - wanted
            count += 1
            wholes -= 1
        else:
            free[best] -= wanted
            taken[best] = True
        chosen[device] = FRESH if best == FRESH else slots[best]
    return unusable(facts, mix, node, cpu, memory, wholes, free, count)


@inner
def choose_devices(facts: Facts, columns: Columns, mix: Mix, shape: int, node: int, chosen: Int64s) -> float:
    """Fill ``chosen`` with the devices that a pod of ``shape`` takes, and return what is lost then.

    A pod that shares no device takes any whole ones; ``chosen`` is left alone. What a pod asks for beyond the size of
    ``chosen`` it does not get.
    """
    most = facts.nodes.slot_start[node + 1] - facts.nodes.slot_start[node] + chosen.shape[0] + 1
    free, slots = np.zeros(most, np.int64), np.zeros(most, np.int64)
    count = _devices_in_sharing(facts, columns, node, free, slots)
    request = facts.shapes.request
    cpu = columns.idle[node, CPU] + columns.releasing[node, CPU] - request[shape, CPU]
    memory = columns.idle[node, MEMORY] + columns.releasing[node, MEMORY] - request[shape, MEMORY]
    wholes = _whole_devices(columns, node)
    if is_shared(facts, shape):
        return _lost_with(facts, mix, shape, node, cpu, memory, wholes, free, slots, count, chosen)
    if facts.shapes.kind[shape] == KIND_WHOLE:
        wholes = max(0, wholes - (request[shape, GPU] - facts.shapes.claimed[shape] * GPU_UNIT) // GPU_UNIT)
    return unusable(facts, mix, node, cpu, memory, wholes, free, count)


@inner
def saved(facts: Facts, columns: Columns, mix: Mix, shape: int, node: int) -> float:
    """Return the points of ``node`` for a pod of ``shape``: the weight of what stays usable, less what is lost.

    Cost: O(typical shapes x devices) for each device that comes into question.
    """
    most = facts.nodes.slot_start[node + 1] - facts.nodes.slot_start[node]
    free, slots = np.zeros(most, np.int64), np.zeros(most, np.int64)
    count = _devices_in_sharing(facts, columns, node, free, slots)
    cpu = columns.idle[node, CPU] + columns.releasing[node, CPU]
    memory = columns.idle[node, MEMORY] + columns.releasing[node, MEMORY]
    before = unusable(facts, mix, node, cpu, memory, _whole_devices(columns, node), free, count)
    # A pod can ask for more devices than any node has.
    chosen = np.full(min(facts.shapes.devices[shape], most), NONE, np.int64)
    after = choose_devices(facts, columns, mix, shape, node, chosen)
    return math.floor((before - after) * mix.weight * STEPS) / STEPS
