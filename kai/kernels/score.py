"""How good is a node for a pod? The score terms that follow from columns; plugins' own vectors are added to them.

The terms keep the peer's magnitudes: density 0..9, CPU-only 10, availability 1000, sharing 10000, topology and pod
affinity and nomination above. The expressions are the peer's float64 expressions, so that ties and near-ties fall the
same way.

Source: the peer's plugins nodeplacement, resourcetype, nodeavailability, gpusharingorder.
"""

from kai.kernels._jit import inner, kernel
from kai.kernels.columns import CPU, GPU, GPU_UNIT, KIND_NONE, Columns, Facts
from kai.kernels.fit import Rules, Vectors, shortage, slot_fits
from kai.kernels.fragments import saved
from kai.kernels.struct import Float64s, Int64s

DENSEST = 9.0


@inner
def is_cpu_only(facts: Facts, shape: int) -> bool:
    """Say whether pods of ``shape`` want no GPU in any form."""
    return facts.shapes.kind[shape] == KIND_NONE and facts.shapes.claimed[shape] == 0


@inner
def free_bounds(facts: Facts, columns: Columns, resource: int, nodes: Int64s) -> tuple[int, int]:
    """Return the least and the most that is idle or being released of ``resource`` on those ``nodes`` that have any.

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
    """Return 0..9 under binpack (the less is free, the more), the free fraction under spread."""
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

    ``low`` and ``high`` are the bounds of what is free.
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
    """Do what ``score_nodes`` does where the ``bounds`` of what is free are known."""
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

    ``extra`` [N] is added by node row, where it is NaN the score becomes NaN: the node is out.

    Cost: O(n).
    """
    resource = CPU if is_cpu_only(facts, shape) else GPU
    bounds = free_bounds(facts, columns, resource, nodes)
    score_within(facts, columns, rules, vectors, shape, nodes, extra, bounds, scores)
