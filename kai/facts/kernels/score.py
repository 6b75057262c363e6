"""How good is a node for a pod? Score terms that follow from columns, and tournaments of nodes by score.

Plugins' own vectors are added to the terms. The terms keep the peer's magnitudes: density 0..9, CPU-only 10,
availability 1000, sharing 10000; topology, pod affinity and nomination are above. The expressions are the peer's
float64 expressions, so that ties and near-ties fall the same way.

A tournament keeps the best node of a shape up to date: after a change, only the changed nodes play again. Every node
has a tier (the sum of all score terms except binpack density; minus infinity where the pod is refused) and a spare
amount, by which binpack density decreases. The order by tier, spare and row equals the order of summed scores as long
as tiers are equal or differ by more than the ten points of density. ``is_orderly`` checks that; other shapes are placed
by the plain kernel, which adds the scores up.

Source: the peer's plugins nodeplacement, resourcetype, nodeavailability, gpusharingorder. The order is the peer's
(score, then name); the class-cached segment tree is our own.
"""

import numpy as np

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, BoolTable, Float64s, Float64Table, Int64s, Int64Table, Struct
from kai.facts.kernels.arrays import ascending
from kai.facts.kernels.booking import is_shared
from kai.facts.kernels.columns import CPU, GPU, GPU_UNIT, KIND_NONE, Columns, Facts, Offsets, add, touch
from kai.facts.kernels.fit import Rules, Vectors, refusal, shortage, slot_fits
from kai.facts.kernels.fragments import Remains, saved, saved_again

DENSEST = 9.0


@inner
def is_cpu_only(facts: Facts, shape: int) -> bool:
    """Return whether pods of ``shape`` want no GPU in any form."""
    return facts.shapes.kind[shape] == KIND_NONE and facts.shapes.claimed[shape] == 0


@inner
def free_bounds(facts: Facts, columns: Columns, resource: int, nodes: Int64s) -> tuple[int, int]:
    """Return the minimum and maximum of the idle and releasing amount of ``resource`` on ``nodes`` that have any.

    (0, 0) if none has.
    """
    low = 0
    high = 0
    first = True
    for node in nodes:
        if facts.nodes.allocatable[node, resource] == 0:
            continue
        free = columns.idle[node, resource] + columns.releasing[node, resource]
        if first:
            low = free
            high = free
            first = False
        low = min(low, free)
        high = max(high, free)
    return low, high


@inner
def density(facts: Facts, columns: Columns, rules: Rules, shape: int, node: int, low: int, high: int) -> float:
    """Return 0..9 under binpack (higher if less is free), the free fraction under spread."""
    resource = CPU if is_cpu_only(facts, shape) else GPU
    free = columns.idle[node, resource] + columns.releasing[node, resource]
    total = facts.nodes.allocatable[node, resource]
    spread = rules.spread_cpu if resource == CPU else rules.spread_gpu
    if spread > 0.0:
        if resource == GPU:
            total = facts.nodes.gpu_count[node] * GPU_UNIT
        return spread * (free / total) if total > 0 else 0.0
    weight = rules.binpack_cpu if resource == CPU else rules.binpack_gpu
    if weight == 0.0 or total == 0 or high == 0:
        return 0.0
    if low == high:
        return weight * DENSEST
    return weight * (DENSEST * (1.0 - (free - low) / (high - low)))


@inner
def node_score(
    facts: Facts, columns: Columns, rules: Rules, vectors: Vectors, shape: int, node: int, low: int, high: int
) -> float:
    """Return the score of ``node`` for ``shape``; higher is better.

    ``low`` and ``high`` are the bounds of the free amounts.
    """
    score = density(facts, columns, rules, shape, node, low, high)
    if rules.cpu_only > 0.0 and facts.nodes.cpu_only[node] and is_cpu_only(facts, shape):
        score += rules.cpu_only
    if rules.availability > 0.0 and shortage(facts, columns, shape, node, True) == 0:
        score += rules.availability
    if rules.sharing > 0.0:
        for slot in range(facts.nodes.slot_start[node], facts.nodes.slot_start[node + 1]):
            if slot_fits(facts, columns, shape, node, slot):
                score += rules.sharing
                break
    if rules.mix.weight > 0.0:
        score += saved(facts, columns, rules.mix, shape, node)
    return score + vectors.scores[facts.shapes.score[shape], node]


@inner
def score_within(
    facts: Facts,
    columns: Columns,
    rules: Rules,
    vectors: Vectors,
    shape: int,
    nodes: Int64s,
    extra: Float64s,
    bounds: tuple[int, int],
    scores: Float64s,
) -> None:
    """Do the same as ``score_nodes`` with known ``bounds`` of the free amounts."""
    for at in range(nodes.shape[0]):
        node = nodes[at]
        scores[at] = node_score(facts, columns, rules, vectors, shape, node, bounds[0], bounds[1]) + extra[node]


@kernel
def score_nodes(
    facts: Facts,
    columns: Columns,
    rules: Rules,
    vectors: Vectors,
    shape: int,
    nodes: Int64s,
    extra: Float64s,
    scores: Float64s,
) -> None:
    """Fill ``scores`` [n] for ``nodes`` [n].

    ``extra`` [N] is added by node row; NaN in it excludes the node.

    Cost: O(n).
    """
    resource = CPU if is_cpu_only(facts, shape) else GPU
    bounds = free_bounds(facts, columns, resource, nodes)
    score_within(facts, columns, rules, vectors, shape, nodes, extra, bounds, scores)


OUT = -np.inf
DENSITY_RANGE = 10.0


class Rooms(Struct):
    """How many more pods nodes take for tournaments for which a plugin counts them, in cells of the arena.

    Shapes: M tournaments, N nodes, B rows of cells.
    """

    start: Int64s  # [M] the first cell of the tournament, -1: no room is counted
    size: Int64s  # [M] how many cells it has
    domain: Int64s  # [M] the row of ``domains`` that holds for the tournament, -1: each node has a cell of its own
    domains: Int64Table  # [B, N] the cell of each node, counted from the first; -1: no pod goes to the node
    refill: Int64s  # [M] the room of cells with the most: once no cell has as much, all get one more; 0: they do not
    independent: Bools  # [M] no other pods change the room
    part: Int64s  # [M] the row of ``parts`` for the first node, -1: pods take of GPUs what they request
    parts: Int64Table  # [A * N, C] what the pod that leaves a room of c takes less of a GPU, in thousandths


class ShapeIndex(Struct):
    """Tournaments of some shapes.

    Shapes: K shapes, M tournaments, N nodes, W leaves (a power of two, at least N), A asks that plugins rate nodes for.
    """

    row: Int64s  # [K] tournament of each shape, -1: none
    tier: Float64Table  # [M, N] minus infinity: refused
    spare: Int64Table  # [M, N]
    winner: Int64Table  # [M, 2 * W] winner[m, 1] is the best node, leaves begin at W; -1: no node
    seen: Int64s  # [M] changes of nodes that were taken into account; -1: the tournament was never played
    changed: Int64s  # [N] the last change of each node, -1 for none
    noticed: Int64s  # [1] the changes that ``changed`` is about
    rooms: Rooms
    rated: Int64s  # [M] the row of ``ratings`` and ``ends`` that counts for the tournament, -1: none
    ratings: Float64Table  # [A, N] what plugins add to scores while they count room
    ends: BoolTable  # [A, N] where the room ends because the rating changes; elsewhere the node is full then
    remains: Remains


@inner
def _cell(rooms: Rooms, row: int, node: int) -> int:
    """Return the cell of the arena with the room of ``node``, -1 if it has none."""
    if rooms.domain[row] < 0:
        return rooms.start[row] + node
    domain = rooms.domains[rooms.domain[row], node]
    return -1 if domain < 0 else rooms.start[row] + domain


@inner
def room_left(columns: Columns, rooms: Rooms, row: int, node: int) -> int:
    """Return how many more pods of tournament ``row`` go to ``node`` by what a plugin counted."""
    cell = _cell(rooms, row, node)
    return 0 if cell < 0 else columns.arena[cell]


@inner
def take_room(columns: Columns, offsets: Offsets, rooms: Rooms, row: int, node: int) -> None:
    """Take one from the room of ``node``. Other nodes whose room ended or began count as changed.

    A pod that takes a part of a GPU gives back the rest of what it requests.

    Cost: O(1) where each node has its own; where nodes share room, O(N) for the last of a cell and for each refill.
    """
    cell = _cell(rooms, row, node)
    add(columns, cell, -1)
    if rooms.part[row] >= 0:
        less, at = rooms.parts[rooms.part[row] + node, columns.arena[cell]], node * columns.idle.shape[1] + GPU
        add(columns, offsets.idle + at, less)
        add(columns, offsets.used + at, -less)
    if rooms.domain[row] < 0:
        return
    first, most, left = rooms.start[row], rooms.refill[row], columns.arena[cell]
    fills = most > 0 and left + 1 >= most
    at = first
    while fills and at < first + rooms.size[row]:
        fills = columns.arena[at] < most
        at += 1
    if fills:
        for each in range(first, first + rooms.size[row]):
            add(columns, each, 1)
    if not fills and left > 0:
        return
    for other in range(rooms.domains.shape[1]):
        at = _cell(rooms, row, other)
        # A refill gives back what was just taken.
        if at >= 0 and ((at != cell and columns.arena[at] == 1) if fills else at == cell):
            touch(columns, other)


@inner
def forget_room(index: ShapeIndex, start: int) -> None:
    """Have tournaments played anew whose room was taken back: undoing it names the nodes of pods alone."""
    for row in range(index.seen.shape[0]):
        if index.rooms.start[row] == start and index.rooms.domain[row] >= 0:
            index.seen[row] = -1


@inner
def _beats(index: ShapeIndex, row: int, left: int, right: int) -> bool:
    if right < 0:
        return True
    if left < 0:
        return False
    if index.tier[row, left] != index.tier[row, right]:
        return index.tier[row, left] > index.tier[row, right]
    if index.spare[row, left] != index.spare[row, right]:
        return index.spare[row, left] < index.spare[row, right]
    return left < right


@inner
def _play(index: ShapeIndex, row: int, at: int) -> None:
    left, right = index.winner[row, 2 * at], index.winner[row, 2 * at + 1]
    index.winner[row, at] = left if _beats(index, row, left, right) else right


@inner
def _rate(
    facts: Facts, columns: Columns, rules: Rules, vectors: Vectors, index: ShapeIndex, shape: int, node: int
) -> None:
    """Compute tier and spare amount of one node, without the capacity of the queue, which is the same on all nodes."""
    row = index.row[shape]
    resource = CPU if is_cpu_only(facts, shape) else GPU
    index.spare[row, node] = 0
    if index.rooms.start[row] >= 0 and room_left(columns, index.rooms, row, node) <= 0:
        index.tier[row, node] = OUT
        return
    if refusal(facts, columns, rules, vectors, shape, -1, node) != 0:
        index.tier[row, node] = OUT
        return
    free = columns.idle[node, resource] + columns.releasing[node, resource]
    tier = vectors.scores[facts.shapes.score[shape], node]
    if index.rated[row] >= 0:
        tier += index.ratings[index.rated[row], node]
    spread = rules.spread_cpu if resource == CPU else rules.spread_gpu
    if spread > 0.0:
        total = facts.nodes.gpu_count[node] * GPU_UNIT if resource == GPU else facts.nodes.allocatable[node, resource]
        tier += spread * (free / total) if total > 0 else 0.0
    elif (rules.binpack_cpu if resource == CPU else rules.binpack_gpu) > 0.0:
        index.spare[row, node] = free if facts.nodes.allocatable[node, resource] > 0 else 0
    if rules.cpu_only > 0.0 and facts.nodes.cpu_only[node] and is_cpu_only(facts, shape):
        tier += rules.cpu_only
    if rules.availability > 0.0 and shortage(facts, columns, shape, node, True) == 0:
        tier += rules.availability
    if rules.sharing > 0.0:
        for slot in range(facts.nodes.slot_start[node], facts.nodes.slot_start[node + 1]):
            if slot_fits(facts, columns, shape, node, slot):
                tier += rules.sharing
                break
    if rules.mix.weight > 0.0:
        tier += saved_again(facts, columns, rules.mix, index.remains, shape, node, index.changed[node])
    index.tier[row, node] = tier


@inner
def _replay(index: ShapeIndex, row: int, node: int) -> None:
    at = (index.winner.shape[1] // 2 + node) // 2
    while at >= 1:
        _play(index, row, at)
        at //= 2


@inner
def _notice(columns: Columns, index: ShapeIndex) -> None:
    """Record the last change of each node; all nodes count as changed if the ring buffer lost some changes."""
    touches, size = columns.touches[0], columns.touched.shape[0]
    if touches - index.noticed[0] > size:
        index.changed[:] = touches - 1
    else:
        for change in range(index.noticed[0], touches):
            index.changed[columns.touched[change % size]] = change
    index.noticed[0] = touches


@inner
def refresh(facts: Facts, columns: Columns, rules: Rules, vectors: Vectors, index: ShapeIndex, shape: int) -> None:
    """Update the tournament of ``shape``: changed nodes are rated and play again, once each.

    Cost: O(log N) for each changed node, O(N) the first time and if many changed.
    """
    _notice(columns, index)
    row = index.row[shape]
    touches, seen = columns.touches[0], index.seen[row]
    size = columns.touched.shape[0]
    nodes = facts.nodes.ready.shape[0]
    leaves = index.winner.shape[1] // 2
    # With many changes, one match at each place costs less than a path to the top for each change.
    if seen < 0 or touches - seen > min(size, nodes // 4 + 8):
        for node in range(nodes):
            # Rating costs far more than a match, so nodes that have not changed keep their tier.
            if seen < 0 or index.changed[node] >= seen:
                _rate(facts, columns, rules, vectors, index, shape, node)
            index.winner[row, leaves + node] = node
        for at in range(leaves - 1, 0, -1):
            _play(index, row, at)
    else:
        for change in range(seen, touches):
            node = columns.touched[change % size]
            # At its last change only: the ring may name a node many times.
            if index.changed[node] == change:
                tier, spare = index.tier[row, node], index.spare[row, node]
                _rate(facts, columns, rules, vectors, index, shape, node)
                # A winner that got no worse still wins every match.
                stays = index.tier[row, node] > tier or (
                    index.tier[row, node] == tier and index.spare[row, node] <= spare
                )
                if not stays or index.winner[row, 1] != node:
                    _replay(index, row, node)
    index.seen[row] = touches


@inner
def best(index: ShapeIndex, shape: int) -> int:
    """Return the best node of an up-to-date tournament, -1 if all nodes refuse."""
    row = index.row[shape]
    node = index.winner[row, 1]
    if node < 0 or index.tier[row, node] == OUT:
        return -1
    return node


@inner
def drop(index: ShapeIndex, shape: int, node: int) -> None:
    """Exclude ``node`` from the tournament of ``shape`` until it is rated again."""
    row = index.row[shape]
    index.tier[row, node] = OUT
    _replay(index, row, node)


@inner
def _has_enough(facts: Facts, shape: int, node: int) -> bool:
    """Return whether ``node`` has all that a pod of ``shape`` requests while no pod is there."""
    for resource in range(facts.shapes.request.shape[1]):
        total = facts.nodes.allocatable[node, resource]
        if facts.shapes.request[shape, resource] > total and not (facts.nodes.claimable[resource] and total == 0):
            return False
    return True


@kernel
def is_orderly(facts: Facts, vectors: Vectors, shape: int, ratings: Float64s) -> bool:
    """Return whether the tournament orders nodes for ``shape`` as summed scores do.

    It does if static scores with ``ratings`` [N] are equal or at least ten points apart, and if of the nodes that can
    take the pod either all or none have the resource of the density term. Without it, as nodes with nothing but MIG
    slices, they all have the density 0.
    """
    resource = CPU if is_cpu_only(facts, shape) else GPU
    if facts.shapes.request[shape, resource] <= 0 and not is_shared(facts, shape):
        for node in range(facts.nodes.ready.shape[0]):
            if facts.nodes.allocatable[node, resource] > 0 and _has_enough(facts, shape, node):
                return False
    scores = vectors.scores[facts.shapes.score[shape]] + ratings
    if np.isnan(scores).any():
        return False
    order = ascending(scores)
    for at in range(1, order.shape[0]):
        if 0.0 < scores[order[at]] - scores[order[at - 1]] < DENSITY_RANGE:
            return False
    return True
