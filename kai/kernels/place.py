"""Placing pods: best node first, devices on it, then the booking; many pods in one call.

Source: the peer's actions/common/allocate and gpu_sharing.
"""

import numpy as np

from kai.kernels._jit import inner, kernel
from kai.kernels.arrays import copy
from kai.kernels.booking import allocate, is_shared, new_placement, pipeline, whole
from kai.kernels.columns import CPU, GPU, Columns, Facts, Offsets
from kai.kernels.fit import Rules, Vectors, refusal, shortage, slot_fits, slot_has_idle
from kai.kernels.fragments import FRESH, NONE, choose_devices
from kai.kernels.score import free_bounds, is_cpu_only, node_score, score_nodes
from kai.kernels.struct import Float64s, Int64s

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
    """Do what ``choose_slots`` does, where devices are chosen by what stays usable."""
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

    ``chosen`` [D] receives the slots, -1 fills up. Shared devices and whole ones are taken by score, shared ones
    first on a tie; every device is a different one. Returns NO_ROOM, IDLE, or RELEASING_TOO if any of them is still
    being released (or ``promise`` says so). A pod that asks for more than D devices, which is more than any node has,
    finds no room.
    """
    chosen[:] = -1
    # Compiled code does not check where it writes.
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


@kernel
def put(facts: Facts, columns: Columns, offsets: Offsets, rules: Rules, pod: int, node: int, promise: bool) -> bool:
    """Place one pod on a node that accepted it.

    On idle resources, or promised if ``promise`` or if something must be released first.

    A victim that is promised the place it was evicted from keeps it. Returns False, with nothing changed, when no
    devices can be found for a sharing pod.
    """
    return _put(facts, columns, offsets, rules, pod, node, promise, promise)


@kernel
def put_anew(facts: Facts, columns: Columns, offsets: Offsets, rules: Rules, pod: int, node: int) -> bool:
    """Promise ``node`` to a pod even if it was evicted from there: something about its place changed."""
    return _put(facts, columns, offsets, rules, pod, node, True, False)


@inner
def _put(
    facts: Facts, columns: Columns, offsets: Offsets, rules: Rules, pod: int, node: int, promise: bool, keep: bool
) -> bool:
    shape = facts.pods.shape[pod]
    if not is_shared(facts, shape):
        if not promise and shortage(facts, columns, shape, node, True) == 0:
            allocate(facts, columns, offsets, pod, node, 0)
        else:
            pipeline(facts, columns, offsets, pod, node, 0, keep)
        return True
    chosen = np.empty(columns.placement_slots.shape[1], np.int64)
    found = choose_slots(facts, columns, rules, shape, node, promise, chosen)
    if found == NO_ROOM:
        return False
    placement = new_placement(columns, offsets)
    copy(chosen, columns.placement_slots[placement])
    if found == IDLE:
        allocate(facts, columns, offsets, pod, node, placement)
    else:
        pipeline(facts, columns, offsets, pod, node, placement, keep)
    return True


@kernel
def best_node(
    facts: Facts,
    columns: Columns,
    rules: Rules,
    vectors: Vectors,
    shape: int,
    group: int,
    nodes: Int64s,
    scores: Float64s,
) -> int:
    """Return the position in ``nodes`` of the best node that accepts the pod, -1 if none does.

    Ties go to the lower position; NaN is out.
    """
    best = -1
    best_score = 0.0
    for at in range(nodes.shape[0]):
        score = scores[at]
        if np.isnan(score) or (best >= 0 and score <= best_score):
            continue
        if refusal(facts, columns, rules, vectors, shape, group, nodes[at]) == 0:
            best = at
            best_score = score
    return best


@inner
def _best_left(
    facts: Facts,
    columns: Columns,
    rules: Rules,
    vectors: Vectors,
    shape: int,
    group: int,
    nodes: Int64s,
    scores: Float64s,
) -> int:
    """Return what ``best_node`` does, and take the nodes that refused on the way out of ``scores``.

    They go on refusing until their numbers change: what a queue uses only grows while pods are placed.
    """
    best = -1
    best_score = 0.0
    for at in range(nodes.shape[0]):
        score = scores[at]
        if np.isnan(score) or (best >= 0 and score <= best_score):
            continue
        if refusal(facts, columns, rules, vectors, shape, group, nodes[at]) == 0:
            best = at
            best_score = score
        else:
            scores[at] = np.nan
    return best


@inner
def _rescore(
    facts: Facts,
    columns: Columns,
    rules: Rules,
    vectors: Vectors,
    shape: int,
    nodes: Int64s,
    extra: Float64s,
    seen: int,
    bounds: tuple[int, int],
    scores: Float64s,
) -> None:
    """Bring ``scores`` up to date for the nodes that changed since change ``seen``."""
    size = columns.touched.shape[0]
    for change in range(seen, columns.touches[0]):
        node = columns.touched[change % size]
        at = np.searchsorted(nodes, node)
        if at < nodes.shape[0] and nodes[at] == node:
            scores[at] = node_score(facts, columns, rules, vectors, shape, node, bounds[0], bounds[1]) + extra[node]


@inner
def _goes_by_bounds(facts: Facts, rules: Rules, shape: int) -> bool:
    """Say whether the score of a node depends on the least and the most that is free on the others."""
    if is_cpu_only(facts, shape):
        return rules.spread_cpu <= 0.0 and rules.binpack_cpu != 0.0
    return rules.spread_gpu <= 0.0 and rules.binpack_gpu != 0.0


@kernel
def place_pods(
    facts: Facts,
    columns: Columns,
    offsets: Offsets,
    rules: Rules,
    vectors: Vectors,
    pods: Int64s,
    nodes: Int64s,
    extra: Float64s,
    promise: bool,
) -> int:
    """Place ``pods`` one after the other until one finds no node; return how many were placed.

    Shapes: pods [n], nodes [m] ascending, extra [N].
    Cost:   O(m) for each shape in a row, then a scan of m scores for each pod. What is changed stays changed, the
        caller decides whether to undo.
    """
    scores = np.empty(nodes.shape[0], np.float64)
    known, owner, seen = -1, -1, 0
    bounds = (0, 0)
    for at in range(pods.shape[0]):
        shape, group = facts.pods.shape[pods[at]], facts.pods.group[pods[at]]
        now = bounds
        if _goes_by_bounds(facts, rules, shape):
            now = free_bounds(facts, columns, CPU if is_cpu_only(facts, shape) else GPU, nodes)
        missed = columns.touches[0] - seen
        if known == shape and owner == group and now == bounds and missed <= columns.touched.shape[0]:
            _rescore(facts, columns, rules, vectors, shape, nodes, extra, seen, bounds, scores)
        else:
            score_nodes(facts, columns, rules, vectors, shape, nodes, extra, scores)
        known, owner, seen, bounds = shape, group, columns.touches[0], now
        while True:
            best = _best_left(facts, columns, rules, vectors, shape, group, nodes, scores)
            if best < 0:
                return at
            if put(facts, columns, offsets, rules, pods[at], nodes[best], promise):
                break
            # No device could be found; that may be different for the next pod.
            scores[best] = np.nan
            known = -1
    return pods.shape[0]


@kernel
def place_rated(
    facts: Facts,
    columns: Columns,
    offsets: Offsets,
    rules: Rules,
    vectors: Vectors,
    pod: int,
    nodes: Int64s,
    extra: Float64s,
    answers: Float64s,
    promise: bool,
    terms: Float64s,
    known: Int64s,
) -> bool:
    """Place one pod where the scores of terms and the ``answers`` [n] of a plugin are best together; NaN is out.

    ``terms`` [n] and ``known`` [3] carry the scores of terms from pod to pod of one shape: the change that they were
    made at (-1: never), and the bounds of what was free. ``nodes`` [n] ascending and ``extra`` [N] stay the same.

    Cost: a few passes over n numbers, and a score for each node that changed.
    """
    shape, group = facts.pods.shape[pod], facts.pods.group[pod]
    bounds = (0, 0)
    if _goes_by_bounds(facts, rules, shape):
        bounds = free_bounds(facts, columns, CPU if is_cpu_only(facts, shape) else GPU, nodes)
    missed = columns.touches[0] - known[0]
    if known[0] >= 0 and known[1] == bounds[0] and known[2] == bounds[1] and missed <= columns.touched.shape[0]:
        _rescore(facts, columns, rules, vectors, shape, nodes, extra, known[0], bounds, terms)
    else:
        score_nodes(facts, columns, rules, vectors, shape, nodes, extra, terms)
    known[0], known[1], known[2] = columns.touches[0], bounds[0], bounds[1]
    scores = terms + answers
    while True:
        best = _best_left(facts, columns, rules, vectors, shape, group, nodes, scores)
        if best < 0:
            return False
        if put(facts, columns, offsets, rules, pod, nodes[best], promise):
            return True
        scores[best] = np.nan


@kernel
def refusals(
    facts: Facts, columns: Columns, rules: Rules, vectors: Vectors, shape: int, group: int, nodes: Int64s, out: Int64s
) -> None:
    """Fill ``out`` [n] with the refusal of each of ``nodes`` [n] for a pod of ``shape``."""
    for at in range(nodes.shape[0]):
        out[at] = refusal(facts, columns, rules, vectors, shape, group, nodes[at])
