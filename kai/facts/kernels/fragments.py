"""GPU fragmentation: how much of a node's GPUs typical pods cannot use, and how a placement changes that.

Idle resources are worth what can still be placed on them. A ``Mix`` lists the shapes that usually come and how often.
For each of them the module computes how much of a node it could not use. It also computes what pods beyond the next one
will lack, if they want CPU and memory for each GPU as pods of the mix do. The less a placement adds to the sum, the
better it is.

The sum depends only on the node's own numbers, so it holds until these change: it is computed once (``_survey``), and a
placement is rated by the difference. ``Remains`` caches it from pod to pod.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, for what the next pod cannot use. Memory, what later
    pods lack, and the pressure on nodes that few shapes may use are our own.
"""

import math

import numpy as np

from kai.facts.compiled.jit import inner
from kai.facts.compiled.struct import BoolTable, Float64s, Int64s, Int64Table, Struct
from kai.facts.kernels.booking import device_memory, is_shared
from kai.facts.kernels.columns import CPU, GPU, GPU_UNIT, KIND_WHOLE, MEMORY, Columns, Facts
from kai.facts.kernels.slot_booking import whole

STEPS = 1024.0
"""Ratings are rounded to this fraction of a point, so that sums with other scores are exact in any order."""
NONE, FRESH = -1, -2
UNFIT = 1 << 40
"""More MiB than a device has, and more devices than a node has."""

SPARE, USABLE, LEAST, ROOM, SLOT, SUMS, CHOSEN, ROWS = 0, 1, 2, 3, 4, 5, 6, 7
"""Rows of the rest of a node. By typical shape: devices that suit it, beyond the pod's need; MiB on these; the
MiB that a shared device needs to suit it. By shared device: MiB left, slot. Sums. Devices that a pod takes."""
WHOLES, SHARING, TOTAL = 0, 1, 2
"""Idle devices; shared devices; MiB left on both."""


class Mix(Struct):
    """The typical shapes. Shapes: T typical shapes, N nodes. With a ``weight`` of 0 nothing is rated by it."""

    weight: float  # points for each GPU that stays usable
    shapes: Int64s  # [T] rows of shapes that ask for whole GPUs or share some
    shares: Float64s  # [T] how frequent each of them is; together 1
    allowed: BoolTable  # [T, N] where they may run
    gpu_by_cpu: Float64s  # [N] GPUs for each unit of CPU that pods that may run there want on average
    gpu_by_memory: Float64s  # [N] likewise, of memory
    pressure: Float64s  # [N] how often each GPU is asked for, of those who may run there; 1 on average


def no_mix() -> Mix:
    """Return the mix with which nothing is rated."""
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


class Remains(Struct):
    """A cache of the rest of each node and its loss, valid until the node changes. Shapes: N nodes, W columns."""

    left: Int64Table  # [ROWS * N, W] a typical shape, a device or a sum for each column
    lost: Float64s  # [N] in GPUs
    known: Int64s  # [N] how many changes of nodes there had been when this was counted; -1: it was not


def make_remains(mix: Mix, slot_start: Int64s) -> Remains:
    """Return an empty cache; without rows if nothing is rated."""
    nodes = slot_start.shape[0] - 1 if mix.weight > 0.0 else 0
    width = max(int(np.diff(slot_start).max(initial=0)), mix.shapes.shape[0], TOTAL + 1)
    return Remains(
        left=np.empty((ROWS * nodes, width), np.int64),
        lost=np.empty(nodes, np.float64),
        known=np.full(nodes, -1, np.int64),
    )


@inner
def _lost(
    facts: Facts,
    mix: Mix,
    node: int,
    cpu: int,
    memory: int,
    left: Int64Table,
    total: int,
    wholes: int,
    before: int,
    after: int,
) -> float:
    """Return the loss of a node, in GPUs, after something of ``left`` is taken and ``total`` MiB remain.

    ``wholes`` devices are taken, and a device with ``before`` MiB has ``after`` (-1: there is none). The value of free
    GPUs by pressure is subtracted, so the result can be negative; only differences are meaningful.
    """
    device = facts.nodes.gpu_memory[node]
    if total <= 0 or device <= 0:
        return 0.0
    request, shapes, shares = facts.shapes.request, mix.shapes, mix.shares
    lost = 0.0
    for at in range(shapes.shape[0]):
        shape, found = shapes[at], 0
        if request[shape, CPU] <= cpu and request[shape, MEMORY] <= memory:
            spare, usable, least = left[SPARE, at] - wholes, left[USABLE, at] - wholes * device, left[LEAST, at]
            if before >= least:
                spare -= 1
                usable -= before
            if after >= least:
                spare += 1
                usable += after
            if spare >= 0:
                found = usable
        lost += shares[at] * (total - found)
    lost /= device
    gpus = total / device
    reached = max(0.0, min(cpu * mix.gpu_by_cpu[node], memory * mix.gpu_by_memory[node]))
    return lost + max(0.0, gpus - reached) - mix.pressure[node] * gpus


@inner
def _survey(facts: Facts, columns: Columns, mix: Mix, node: int, left: Int64Table) -> float:
    """Compute what is ``left`` of a node, counting resources that are being released; return its loss.

    A device that all its pods are leaving counts as a whole device that is being released.

    Cost: O(typical shapes x shared devices).
    """
    device = facts.nodes.gpu_memory[node]
    wholes = max(0, whole(columns.idle[node, GPU] + columns.releasing[node, GPU]))
    sharing, total = 0, wholes * device
    for slot in range(facts.nodes.slot_start[node], facts.nodes.slot_start[node + 1]):
        if columns.slot_used[slot] > 0 and columns.slot_allocated[slot] != columns.slot_releasing[slot]:
            room = max(0, device - columns.slot_allocated[slot] + columns.slot_releasing[slot])
            left[ROOM, sharing] = room
            left[SLOT, sharing] = slot
            total += room
            sharing += 1
    left[SUMS, WHOLES] = wholes
    left[SUMS, SHARING] = sharing
    left[SUMS, TOTAL] = total
    if total <= 0:
        return 0.0  # a node without GPUs has nothing to lose
    for at in range(mix.shapes.shape[0]):
        shape = mix.shapes[at]
        if facts.shapes.kind[shape] == KIND_WHOLE:
            spare, least = wholes - facts.shapes.request[shape, GPU] // GPU_UNIT, UNFIT
        else:
            spare, least = wholes - facts.shapes.devices[shape], device_memory(facts, shape, node)
            if least > device:
                spare, least = -UNFIT, UNFIT
        if not mix.allowed[at, node]:
            spare, least = -UNFIT, UNFIT
        usable = wholes * device
        for each in range(sharing):
            if left[ROOM, each] >= least:
                spare += 1
                usable += left[ROOM, each]
        left[SPARE, at] = spare
        left[USABLE, at] = usable
        left[LEAST, at] = least
    cpu = columns.idle[node, CPU] + columns.releasing[node, CPU]
    memory = columns.idle[node, MEMORY] + columns.releasing[node, MEMORY]
    return _lost(facts, mix, node, cpu, memory, left, total, 0, -1, -1)


@inner
def _least(
    facts: Facts, mix: Mix, node: int, cpu: int, memory: int, left: Int64Table, wanted: int
) -> tuple[int, float]:
    """Return the device whose use loses least, as its place in ``left``, FRESH, or NONE; and the loss.

    Among equal losses, the device with least left is taken.
    """
    device, total = facts.nodes.gpu_memory[node], left[SUMS, TOTAL] - wanted
    best, least, least_room = NONE, 0.0, 0
    for each in range(left[SUMS, SHARING]):
        room = left[ROOM, each]
        if room < wanted:
            continue
        # Devices with equal room lose the same: the first of them stands for all.
        alike = False
        for earlier in range(each):
            alike = alike or left[ROOM, earlier] == room
        if alike:
            continue
        lost = _lost(facts, mix, node, cpu, memory, left, total, 0, room, room - wanted)
        if best == NONE or lost < least or (lost == least and room < least_room):
            best, least, least_room = each, lost, room
    if left[SUMS, WHOLES] > 0 and wanted <= device:
        lost = _lost(facts, mix, node, cpu, memory, left, total, 1, -1, device - wanted)
        if best == NONE or lost < least:
            best, least = FRESH, lost
    return best, least


@inner
def _take(facts: Facts, mix: Mix, node: int, left: Int64Table, wanted: int, taken: int) -> None:
    """Update ``left`` after ``wanted`` MiB of device ``taken`` are used; no pod takes a device twice."""
    device = facts.nodes.gpu_memory[node]
    wholes, before, after = 0, -1, device - wanted
    if taken == FRESH:
        wholes = 1
    else:
        before = left[ROOM, taken]
        after = before - wanted
        left[ROOM, taken] = NONE
    left[SUMS, WHOLES] -= wholes
    left[SUMS, TOTAL] -= wanted
    for at in range(mix.shapes.shape[0]):
        left[SPARE, at] += int(after >= left[LEAST, at]) - int(before >= left[LEAST, at]) - wholes
        left[USABLE, at] -= wholes * device
        if before >= left[LEAST, at]:
            left[USABLE, at] -= before
        if after >= left[LEAST, at]:
            left[USABLE, at] += after


@inner
def _lost_beside(facts: Facts, columns: Columns, mix: Mix, shape: int, node: int, most: int, left: Int64Table) -> float:
    """Return the loss of a node beside a pod of ``shape``.

    A sharing pod takes at most ``most`` devices: afterwards ``left`` has its devices in CHOSEN, and its other rows are
    only right if the pod takes one device. A pod that does not share takes any whole devices.
    """
    request = facts.shapes.request
    cpu = columns.idle[node, CPU] + columns.releasing[node, CPU] - request[shape, CPU]
    memory = columns.idle[node, MEMORY] + columns.releasing[node, MEMORY] - request[shape, MEMORY]
    wholes, total = left[SUMS, WHOLES], left[SUMS, TOTAL]
    if is_shared(facts, shape):
        wanted, count, found, lost = device_memory(facts, shape, node), min(facts.shapes.devices[shape], most), 0, 0.0
        while found < count:
            best, least = _least(facts, mix, node, cpu, memory, left, wanted)
            if best == NONE:
                break
            left[CHOSEN, found] = FRESH if best == FRESH else left[SLOT, best]
            found, lost = found + 1, least
            if found < count:
                _take(facts, mix, node, left, wanted, best)
        return lost if found > 0 else _lost(facts, mix, node, cpu, memory, left, total, 0, -1, -1)
    taken = 0
    if facts.shapes.kind[shape] == KIND_WHOLE:
        taken = wholes - max(0, wholes - (request[shape, GPU] - facts.shapes.claimed[shape] * GPU_UNIT) // GPU_UNIT)
    left_over = total - taken * facts.nodes.gpu_memory[node]
    return _lost(facts, mix, node, cpu, memory, left, left_over, taken, -1, -1)


@inner
def _slots(facts: Facts, node: int) -> int:
    return facts.nodes.slot_start[node + 1] - facts.nodes.slot_start[node]


@inner
def choose_devices(facts: Facts, columns: Columns, mix: Mix, shape: int, node: int, chosen: Int64s) -> None:
    """Fill ``chosen`` with the devices for a sharing pod of ``shape``: a slot, or FRESH for a whole device.

    A place without a device keeps NONE. A pod gets at most as many devices as ``chosen`` has places.
    """
    width = max(mix.shapes.shape[0], _slots(facts, node), chosen.shape[0], TOTAL + 1)
    left = np.empty((ROWS, width), np.int64)
    _survey(facts, columns, mix, node, left)
    left[CHOSEN, :] = NONE
    _lost_beside(facts, columns, mix, shape, node, chosen.shape[0], left)
    for device in range(chosen.shape[0]):
        chosen[device] = left[CHOSEN, device]


@inner
def _points(mix: Mix, before: float, after: float) -> float:
    return math.floor((before - after) * mix.weight * STEPS) / STEPS


@inner
def saved(facts: Facts, columns: Columns, mix: Mix, shape: int, node: int) -> float:
    """Return the points of ``node`` for a pod of ``shape``: the weight of what stays usable, less the loss.

    Cost: O(typical shapes) for each candidate device, and a survey.
    """
    slots = _slots(facts, node)
    left = np.empty((ROWS, max(mix.shapes.shape[0], slots, TOTAL + 1)), np.int64)
    before = _survey(facts, columns, mix, node, left)
    return _points(mix, before, _lost_beside(facts, columns, mix, shape, node, slots, left))


@inner
def saved_again(
    facts: Facts, columns: Columns, mix: Mix, remains: Remains, shape: int, node: int, changed: int
) -> float:
    """Return the result of ``saved``; repeat the survey only if the node changed since, by its last change ``changed``.

    Cost: O(typical shapes) for each candidate device.
    """
    left = remains.left[node * ROWS : node * ROWS + ROWS]
    # Changes are numbered from 0, so the one with the number `known` came after the survey.
    if remains.known[node] <= changed:
        remains.lost[node] = _survey(facts, columns, mix, node, left)
        remains.known[node] = columns.touches[0]
    if is_shared(facts, shape) and facts.shapes.devices[shape] > 1:
        # A pod of several devices takes them from `left` one by one, and the cache must not lose them.
        left = left.copy()
    after = _lost_beside(facts, columns, mix, shape, node, _slots(facts, node), left)
    return _points(mix, remains.lost[node], after)
