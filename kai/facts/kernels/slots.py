"""Choosing the devices that a pod shares on a node.

Source: the peer's gpu_sharing.
"""

import numpy as np

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Int64s
from kai.facts.kernels.columns import GPU, Columns, Facts
from kai.facts.kernels.fit import Rules, shortage, slot_fits, slot_has_idle
from kai.facts.kernels.fragments import FRESH, NONE, choose_devices
from kai.facts.kernels.slot_booking import whole

NO_ROOM, IDLE, RELEASING_TOO = -1, 0, 1


@inner
def _slot_score(facts: Facts, columns: Columns, rules: Rules, node: int, slot: int) -> float:
    filled = columns.slot_used[slot] / facts.nodes.gpu_memory[node]
    return rules.pack_slots * filled + rules.spread_slots * (1.0 - filled)


@inner
def _fresh_slot(facts: Facts, columns: Columns, node: int, chosen: Int64s) -> int:
    for slot in range(facts.nodes.slot_start[node], facts.nodes.slot_start[node + 1]):
        if facts.nodes.slot_named[slot] or columns.slot_used[slot] != 0 or columns.slot_known[slot] != 0:
            continue
        taken = False
        for picked in chosen:
            taken = taken or picked == slot
        if not taken:
            return slot
    return -1


@inner
def _best_shared_slot(facts: Facts, columns: Columns, rules: Rules, shape: int, node: int, chosen: Int64s) -> int:
    best = -1
    best_score = 0.0
    for slot in range(facts.nodes.slot_start[node], facts.nodes.slot_start[node + 1]):
        if not slot_fits(facts, columns, shape, node, slot):
            continue
        taken = False
        for picked in chosen:
            taken = taken or picked == slot
        if taken:
            continue
        score = _slot_score(facts, columns, rules, node, slot)
        if best < 0 or score > best_score:
            best = slot
            best_score = score
    return best


@inner
def _choose_by_mix(
    facts: Facts, columns: Columns, rules: Rules, shape: int, node: int, promise: bool, chosen: Int64s
) -> int:
    """Choose devices as ``choose_slots`` does, but by what stays usable."""
    waits = promise or shortage(facts, columns, shape, node, True) != 0
    picked = np.full(facts.shapes.devices[shape], NONE, np.int64)
    choose_devices(facts, columns, rules.mix, shape, node, picked)
    for device in range(picked.shape[0]):
        slot = picked[device]
        if slot == FRESH:
            slot = _fresh_slot(facts, columns, node, chosen)
        elif slot != NONE:
            waits = waits or not slot_has_idle(facts, columns, shape, node, slot)
        if slot < 0:
            return NO_ROOM
        chosen[device] = slot
    return RELEASING_TOO if waits else IDLE


@kernel
def choose_slots(
    facts: Facts, columns: Columns, rules: Rules, shape: int, node: int, promise: bool, chosen: Int64s
) -> int:
    """Choose the devices of a sharing pod on ``node``.

    ``chosen`` [D] receives the slots, padded with -1. Devices are taken by score, shared ones before whole ones on a
    tie, each at most once. Returns NO_ROOM, IDLE, or RELEASING_TOO if any of them is still being released (or
    ``promise`` is set). A pod that requests more than D devices, which is more than any node has, finds no room.
    """
    chosen[:] = -1
    # Compiled code does not check array bounds.
    if facts.shapes.devices[shape] > chosen.shape[0]:
        return NO_ROOM
    if rules.mix.weight > 0.0:
        return _choose_by_mix(facts, columns, rules, shape, node, promise, chosen)
    idle = shortage(facts, columns, shape, node, True) == 0
    wholes = whole(columns.idle[node, GPU]) + whole(columns.releasing[node, GPU])
    waits = promise
    for device in range(facts.shapes.devices[shape]):
        slot = _best_shared_slot(facts, columns, rules, shape, node, chosen)
        if slot >= 0 and (wholes <= 0 or _slot_score(facts, columns, rules, node, slot) >= rules.spread_slots):
            waits = waits or not idle or not slot_has_idle(facts, columns, shape, node, slot)
        elif wholes > 0:
            slot = _fresh_slot(facts, columns, node, chosen)
            wholes -= 1
            waits = waits or not idle
        else:
            return NO_ROOM
        if slot < 0:
            return NO_ROOM
        chosen[device] = slot
    return RELEASING_TOO if waits else IDLE
