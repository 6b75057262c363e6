"""Booking of device parts: what pods hold of a shared device, and its effect on the count of whole devices.

Source: the peer's gpu_sharing_node_info.
"""

from kai.facts.compiled.jit import inner
from kai.facts.kernels.columns import GPU, GPU_UNIT, PIPELINED, RELEASING, Columns, Facts, Offsets, add


@inner
def whole(amount: int) -> int:
    """Return the whole devices in ``amount`` thousandths, rounded towards zero."""
    return amount // GPU_UNIT if amount >= 0 else -((-amount) // GPU_UNIT)


@inner
def slots_in_use(facts: Facts, columns: Columns, node: int) -> int:
    """Return the number of shared devices of ``node`` that hold at least one pod."""
    count = 0
    for slot in range(facts.nodes.slot_start[node], facts.nodes.slot_start[node + 1]):
        if columns.slot_used[slot] > 0:
            count += 1
    return count


@inner
def _devices_spoken_for(facts: Facts, columns: Columns, node: int) -> int:
    """Return idle whole devices + used whole devices + shared devices in use.

    More than the node has means one idle device turned shared.
    """
    return whole(columns.idle[node, GPU]) + whole(columns.used[node, GPU]) + slots_in_use(facts, columns, node)


@inner
def book_slot(facts: Facts, columns: Columns, offsets: Offsets, node: int, slot: int, status: int, memory: int) -> None:
    """Book ``memory`` MiB of a pod with ``status`` on a shared device, and the effect on whole devices."""
    width = columns.idle.shape[1]
    idle = offsets.idle + node * width + GPU
    releasing = offsets.releasing + node * width + GPU
    count = facts.nodes.gpu_count[node]
    add(columns, offsets.slot_used + slot, memory)
    used = columns.slot_used[slot]
    if status == RELEASING:
        add(columns, offsets.slot_releasing + slot, memory)
        add(columns, offsets.slot_allocated + slot, memory)
        add(columns, offsets.slot_known + slot, 1)
        if used == columns.slot_releasing[slot]:
            if columns.slot_marked[slot] == 0:
                add(columns, releasing, GPU_UNIT)
                add(columns, offsets.slot_marked + slot, 1)
            if count < _devices_spoken_for(facts, columns, node):
                add(columns, idle, -GPU_UNIT)
    elif status == PIPELINED:
        before = columns.slot_releasing[slot]
        add(columns, offsets.slot_releasing + slot, -memory)
        if used - memory == before:
            add(columns, releasing, -GPU_UNIT)
    else:
        add(columns, offsets.slot_allocated + slot, memory)
        add(columns, offsets.slot_known + slot, 1)
        if columns.slot_allocated[slot] <= memory and count < _devices_spoken_for(facts, columns, node):
            add(columns, idle, -GPU_UNIT)
            if used > memory:
                # The device counted as one to be released for the promised pods; now they share it with a pod that is
                # there.
                add(columns, releasing, GPU_UNIT)
        if columns.slot_marked[slot] > 0:
            add(columns, releasing, -GPU_UNIT)
            add(columns, offsets.slot_marked + slot, -1)


@inner
def unbook_slot(
    facts: Facts, columns: Columns, offsets: Offsets, node: int, slot: int, status: int, memory: int
) -> None:
    """Undo ``book_slot``; the effect on whole devices follows from the remaining pods, not from the former state."""
    width = columns.idle.shape[1]
    idle = offsets.idle + node * width + GPU
    releasing = offsets.releasing + node * width + GPU
    count = facts.nodes.gpu_count[node]
    add(columns, offsets.slot_used + slot, -memory)
    used = columns.slot_used[slot]
    if status == RELEASING:
        add(columns, offsets.slot_releasing + slot, -memory)
        add(columns, offsets.slot_allocated + slot, -memory)
        if used <= 0:
            if count >= _devices_spoken_for(facts, columns, node):
                add(columns, idle, GPU_UNIT)
            if columns.slot_marked[slot] > 0:
                add(columns, releasing, -GPU_UNIT)
                add(columns, offsets.slot_marked + slot, -1)
    elif status == PIPELINED:
        before = columns.slot_releasing[slot]
        add(columns, offsets.slot_releasing + slot, memory)
        if used + memory == before or (used == 0 and columns.slot_releasing[slot] == 0):
            add(columns, releasing, GPU_UNIT)
    else:
        add(columns, offsets.slot_allocated + slot, -memory)
        if used <= 0 and count >= _devices_spoken_for(facts, columns, node):
            add(columns, idle, GPU_UNIT)
        if used > 0 and columns.slot_releasing[slot] == used and columns.slot_marked[slot] == 0:
            add(columns, releasing, GPU_UNIT)
            add(columns, offsets.slot_marked + slot, 1)
