"""Booking of device parts: what pods hold of a shared device, and its effect on the count of whole devices.

A shared device is not idle while a pod is on it. It counts as a whole device that becomes free while all pods on it are
leaving and no other pod is promised a part of it. A pod that is promised a part of a device without pods takes one of
the devices that become free. So all that counts follows from the pods on the device.

With ``books_as_peer`` counts change as the peer's do, step by step. The peer compares idle devices, used ones and those
in sharing with what the node has, to find out whether an idle device turned shared. A device that is promised to one
pod while others are leaving it counts twice there, and the next device that becomes free makes up for it: victims on
two devices go for one whole GPU. Before anything is promised, the books are the same.

Source: the peer's gpu_sharing_node_info, for ``books_as_peer``.
"""

from kai.facts.compiled.jit import inner
from kai.facts.kernels.columns import GPU, GPU_UNIT, PIPELINED, RELEASING, Columns, Facts, Offsets, add


@inner
def whole(amount: int) -> int:
    """Return the whole devices in ``amount`` thousandths, rounded towards zero."""
    # Python and numba round down, the peer's integers towards zero. Idle amounts are negative on overcommitted nodes.
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
def _is_offered(facts: Facts, columns: Columns, node: int) -> bool:
    """Return whether the last of the shared devices with pods is one that ``node`` offers.

    Devices that the node has but does not offer are shared first.
    """
    count = 0
    for slot in range(facts.nodes.slot_start[node], facts.nodes.slot_start[node + 1]):
        if columns.slot_allocated[slot] > 0:
            count += 1
    return count > facts.nodes.gpu_count[node] - whole(facts.nodes.allocatable[node, GPU])


@inner
def _released(columns: Columns, slot: int) -> int:
    """Return 1 for a device that all pods leave and no pod is promised, -1 for one with promises alone, else 0."""
    allocated = columns.slot_allocated[slot]
    promised = columns.slot_used[slot] - allocated
    if allocated == 0:
        return -1 if promised > 0 else 0
    return 1 if promised == 0 and columns.slot_releasing[slot] == allocated else 0


@inner
def _change_slot(
    facts: Facts, columns: Columns, offsets: Offsets, node: int, slot: int, status: int, memory: int, sign: int
) -> None:
    """Put a pod with ``memory`` MiB on a shared device (sign 1) or take it off (sign -1), and count devices anew."""
    cell = node * columns.idle.shape[1] + GPU
    was_used = columns.slot_allocated[slot] > 0
    # Asked before anything is booked: afterwards the device itself no longer counts among those with pods.
    was_offered = was_used and _is_offered(facts, columns, node)
    before = _released(columns, slot)
    add(columns, offsets.slot_used + slot, sign * memory)
    if status == PIPELINED:
        add(columns, offsets.slot_releasing + slot, -sign * memory)
    else:
        add(columns, offsets.slot_allocated + slot, sign * memory)
        if status == RELEASING:
            add(columns, offsets.slot_releasing + slot, sign * memory)
        # Never counted down: a device that a pod was really on stays known, also after that pod has left.
        if sign > 0:
            add(columns, offsets.slot_known + slot, 1)
    after = _released(columns, slot)
    # By the difference of two states and not by cases of what happened: so putting a pod on and taking it off again
    # restores the count exactly, in whatever order pods come and go.
    add(columns, offsets.releasing + cell, GPU_UNIT * (after - before))
    # Only a device that becomes free is marked. One with promises alone counts negative above: it takes a device that
    # becomes free elsewhere.
    add(columns, offsets.slot_marked + slot, max(0, after) - max(0, before))
    is_used = columns.slot_allocated[slot] > 0
    if was_used and not is_used and was_offered:
        add(columns, offsets.idle + cell, GPU_UNIT)
    elif is_used and not was_used and _is_offered(facts, columns, node):
        add(columns, offsets.idle + cell, -GPU_UNIT)


@inner
def book_slot(facts: Facts, columns: Columns, offsets: Offsets, node: int, slot: int, status: int, memory: int) -> None:
    """Book ``memory`` MiB of a pod with ``status`` on a shared device, and the effect on whole devices."""
    if not facts.nodes.books_as_peer:
        _change_slot(facts, columns, offsets, node, slot, status, memory, 1)
        return
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
    if not facts.nodes.books_as_peer:
        _change_slot(facts, columns, offsets, node, slot, status, memory, -1)
        return
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
