"""Placing pods: best node first, devices on it, then the booking; many pods in one call.

Source: the peer's actions/common/allocate.
"""

import numpy as np

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Float64s, Float64Table, Int64s, Int64Table, Struct
from kai.facts.kernels.arrays import copy
from kai.facts.kernels.booking import allocate, is_shared, new_placement, pipeline
from kai.facts.kernels.columns import CPU, GPU, GPU_UNIT, KIND_MEMORY, KIND_MIG, MEMORY, Columns, Facts, Offsets, add
from kai.facts.kernels.fit import CODES, SHORT_OF, Rules, Vectors, gpu_on_node, refusal, shortage
from kai.facts.kernels.score import free_bounds, is_cpu_only, node_score, score_nodes, score_within
from kai.facts.kernels.slot_booking import slots_in_use
from kai.facts.kernels.slots import IDLE, NO_ROOM, choose_slots

ABSENT = -(2**62)


@kernel
def put(facts: Facts, columns: Columns, offsets: Offsets, rules: Rules, pod: int, node: int, promise: bool) -> bool:
    """Place one pod on a node that accepted it.

    The pod gets idle resources, or a promise if ``promise`` or if something must be released first.

    A victim that is promised the place it was evicted from keeps it. Returns False, with nothing changed, when no
    devices can be found for a sharing pod.
    """
    return _put(facts, columns, offsets, rules, pod, node, promise, promise)


@kernel
def put_anew(facts: Facts, columns: Columns, offsets: Offsets, rules: Rules, pod: int, node: int) -> bool:
    """Promise ``node`` to a pod as a new place, even if it was evicted from there: a detail of its place changed."""
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
    # Not in the journal: undoing takes the number of the row back, and the next placement writes it anew.
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
        # Scores before the test: comparing two numbers is far cheaper than asking whether a node refuses.
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
    """Return the result of ``best_node``, and set the ``scores`` of nodes that refused on the way to NaN.

    They will refuse until their numbers change, because the usage of a queue only grows while pods are placed.
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
    """Update ``scores`` for the nodes that changed since change ``seen``."""
    size = columns.touched.shape[0]
    for change in range(seen, columns.touches[0]):
        node = columns.touched[change % size]
        # A node may have changed that is not among the candidates, hence the test of what was found.
        at = np.searchsorted(nodes, node)
        if at < nodes.shape[0] and nodes[at] == node:
            scores[at] = node_score(facts, columns, rules, vectors, shape, node, bounds[0], bounds[1]) + extra[node]


@inner
def _goes_by_bounds(facts: Facts, rules: Rules, shape: int) -> bool:
    """Return whether the score of a node depends on the minimum and maximum of free amounts on all nodes."""
    if is_cpu_only(facts, shape):
        return rules.spread_cpu <= 0.0 and rules.binpack_cpu != 0.0
    return rules.spread_gpu <= 0.0 and rules.binpack_gpu != 0.0


@inner
def _read_free(facts: Facts, columns: Columns, resource: int, nodes: Int64s, free: Int64s) -> None:
    """Fill ``free`` [m] with the idle and releasing amount of ``resource`` on ``nodes`` [m]; ABSENT: none.

    ``free_bounds`` excludes such nodes too.
    """
    for at in range(nodes.shape[0]):
        node = nodes[at]
        free[at] = ABSENT
        if facts.nodes.allocatable[node, resource] != 0:
            free[at] = columns.idle[node, resource] + columns.releasing[node, resource]


@inner
def _ends_of(free: Int64s) -> tuple[int, int, int, int]:
    """Return the minimum and maximum of ``free``, and how often each occurs; zeros if ``free`` has no values."""
    low, high, lows, highs = 0, 0, 0, 0
    for amount in free:
        if amount == ABSENT:
            continue
        if lows == 0 or amount < low:
            low, lows = amount, 0
        if highs == 0 or amount > high:
            high, highs = amount, 0
        # Counted, so that a later change knows whether it took away the last node at an end.
        lows += int(amount == low)
        highs += int(amount == high)
    return low, high, lows, highs


@inner
def _follow(
    columns: Columns, resource: int, nodes: Int64s, seen: int, ends: tuple[int, int, int, int], free: Int64s
) -> tuple[int, int, int, int]:
    """Update ``free`` and its ``ends`` for the nodes that changed since change ``seen``.

    Cost: O(log m) for each change; O(m) if the last node at an end left it.
    """
    size = columns.touched.shape[0]
    low, high, lows, highs = ends
    for change in range(seen, columns.touches[0]):
        node = columns.touched[change % size]
        at = np.searchsorted(nodes, node)
        if at >= nodes.shape[0] or nodes[at] != node or free[at] == ABSENT:
            continue
        before, now = free[at], columns.idle[node, resource] + columns.releasing[node, resource]
        if now == before:
            continue
        free[at] = now
        lows -= int(before == low)
        highs -= int(before == high)
        if now < low:
            low, lows = now, 0
        if now > high:
            high, highs = now, 0
        lows += int(now == low)
        highs += int(now == high)
    # Only if the last node at an end moved inwards is the next one unknown.
    return _ends_of(free) if lows <= 0 or highs <= 0 else (low, high, lows, highs)


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
    """Place ``pods`` one after the other until one finds no node; return the number placed.

    Shapes: pods [n], nodes [m] ascending, extra [N].
    Cost:   O(m) for each run of pods of one shape, plus a scan of m scores for each pod. Changes stay; the caller
        decides whether to undo them.
    """
    scores, free = np.empty(nodes.shape[0], np.float64), np.empty(nodes.shape[0], np.int64)
    known, owner, seen, followed = -1, -1, 0, -1
    bounds, ends = (0, 0), (0, 0, 0, 0)
    for at in range(pods.shape[0]):
        shape, group = facts.pods.shape[pods[at]], facts.pods.group[pods[at]]
        resource = CPU if is_cpu_only(facts, shape) else GPU
        # The ring of changed nodes keeps the last ones only: a reader further behind reads all nodes again.
        is_logged = columns.touches[0] - seen <= columns.touched.shape[0]
        if not _goes_by_bounds(facts, rules, shape):
            # Amounts were not followed meanwhile, so all are read when they are needed next.
            now, followed = (0, 0), -1
        else:
            if followed == resource and is_logged:
                ends = _follow(columns, resource, nodes, seen, ends, free)
            else:
                _read_free(facts, columns, resource, nodes, free)
                ends, followed = _ends_of(free), resource
            now = (ends[0], ends[1])
        # The group as well as the shape: nodes that refused for the sake of its queue are NaN in `scores`.
        if known == shape and owner == group and now == bounds and is_logged:
            _rescore(facts, columns, rules, vectors, shape, nodes, extra, seen, bounds, scores)
        else:
            score_within(facts, columns, rules, vectors, shape, nodes, extra, now, scores)
        # Before the pod is placed: its own change counts as missed, so the next pod sees the node with it.
        known, owner, seen, bounds = shape, group, columns.touches[0], now
        while True:
            best = _best_left(facts, columns, rules, vectors, shape, group, nodes, scores)
            if best < 0:
                return at
            if put(facts, columns, offsets, rules, pods[at], nodes[best], promise):
                break
            # The node has no devices for this pod, but may have some for the next.
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
    """Place one pod where scores of terms and the ``answers`` [n] of a plugin have the best sum; NaN excludes a node.

    ``terms`` [n] and ``known`` [3] carry the scores of terms between pods of one shape: the change at which they were
    computed (-1: never), and the bounds of free amounts. ``nodes`` [n] ascending and ``extra`` [N] must stay the same.

    Cost: a few passes over n numbers, and one score for each changed node.
    """
    shape, group = facts.pods.shape[pod], facts.pods.group[pod]
    bounds = (0, 0)
    if _goes_by_bounds(facts, rules, shape):
        bounds = free_bounds(facts, columns, CPU if is_cpu_only(facts, shape) else GPU, nodes)
    missed = columns.touches[0] - known[0]
    if known[0] >= 0 and known[1] == bounds[0] and known[2] == bounds[1] and missed <= columns.touched.shape[0]:
        _rescore(facts, columns, rules, vectors, shape, nodes, extra, known[0], bounds, terms)
    else:
        score_within(facts, columns, rules, vectors, shape, nodes, extra, bounds, terms)
    known[0], known[1], known[2] = columns.touches[0], bounds[0], bounds[1]
    # A new array: nodes that refuse become NaN in the sum, and `terms` must still serve the next pod.
    scores = terms + answers
    while True:
        best = _best_left(facts, columns, rules, vectors, shape, group, nodes, scores)
        if best < 0:
            return False
        if put(facts, columns, offsets, rules, pod, nodes[best], promise):
            return True
        # In the sum alone: the node has no devices for this pod, but may have some for the next.
        scores[best] = np.nan


class TransitionTable(Struct):
    """How a plugin's states of nodes change as pods leave and come, see ``kai.framework.hooks.Transitions``.

    Shapes: K shapes, S states, H holdings, A asks.
    """

    ask: Int64s  # [K] what pods of each shape ask the plugin for, -1: nothing
    left: Int64Table  # [S, H] the state of a node once a pod with this holding is gone, UNSURE or UNKNOWN
    taken: Int64Table  # [S, A] its state once one more pod with this ask is there, REFUSED, UNSURE or UNKNOWN
    given: Int64Table  # [S, A] what that pod holds
    ratings: Float64Table  # [S, A] how the plugin rates a node in this state for the pod
    cells: Int64s  # [2] where in the arena the states of nodes and the holdings of pods (-1: not known) begin
    wanted: Int64Table  # [W, 2] answers that were UNKNOWN: state, and holding or -1 - ask
    wants: Int64s  # [1] how many these are


UNKNOWN, REFUSED, UNSURE = -1, -2, -3
"""No answer yet; the plugin refuses the node; the plugin has to be asked about the pod itself."""
NOT_ANSWERED = -1


@inner
def _want(table: TransitionTable, state: int, move: int) -> None:
    count = table.wants[0]
    if count < table.wanted.shape[0]:
        table.wanted[count, 0] = state
        table.wanted[count, 1] = move
        table.wants[0] = count + 1


@inner
def leave(facts: Facts, columns: Columns, table: TransitionTable, pod: int) -> bool:
    """Have the node of ``pod`` pass into its state without the pod, which is about to be evicted.

    Returns False, with nothing changed, if the table does not say which state that is.
    """
    node = columns.node[pod]
    if table.ask[facts.pods.shape[pod]] < 0 or node < 0:
        return True
    cell = table.cells[0] + node
    state, held = columns.arena[cell], columns.arena[table.cells[1] + pod]
    if held < 0:
        return False
    after = table.left[state, held]
    if after < 0:
        if after == UNKNOWN:
            _want(table, state, held)
        return False
    add(columns, cell, after - state)
    return True


@inner
def _rate(columns: Columns, table: TransitionTable, ask: int, nodes: Int64s, scores: Float64s) -> bool:
    """Add the plugin's ratings to ``scores``, NaN where it refuses; return whether the table has them all."""
    known = True
    for at in range(nodes.shape[0]):
        if np.isnan(scores[at]):
            continue
        state = columns.arena[table.cells[0] + nodes[at]]
        after = table.taken[state, ask]
        if after == UNKNOWN:
            # On through the other nodes: the plugin is asked about all at once.
            _want(table, state, -1 - ask)
            known = False
        elif after == REFUSED:
            scores[at] = np.nan
        else:
            scores[at] += table.ratings[state, ask]
    return known


@inner
def _put_by_table(
    facts: Facts, columns: Columns, offsets: Offsets, rules: Rules, table: TransitionTable, pod: int, node: int
) -> bool:
    """Promise ``pod`` a place on a node that accepted it, and have the node pass into its state with the pod."""
    ask = table.ask[facts.pods.shape[pod]]
    if ask < 0:
        return put(facts, columns, offsets, rules, pod, node, True)
    cell, mine = table.cells[0] + node, table.cells[1] + pod
    state, held = columns.arena[cell], columns.arena[mine]
    given = table.given[state, ask]
    # A victim keeps its place only if it holds there what it held.
    if columns.evicted_status[pod] > 0 and held != given:
        placed = put_anew(facts, columns, offsets, rules, pod, node)
    else:
        placed = put(facts, columns, offsets, rules, pod, node, True)
    if placed:
        add(columns, cell, table.taken[state, ask] - state)
        add(columns, mine, given - held)
    return placed


@inner
def promise_by_table(
    facts: Facts,
    columns: Columns,
    offsets: Offsets,
    rules: Rules,
    vectors: Vectors,
    table: TransitionTable,
    pods: Int64s,
    nodes: Int64s,
    extra: Float64s,
) -> int:
    """Promise ``pods`` places like ``place_pods``, where a plugin filters and rates nodes by their states.

    NOT_ANSWERED: ``table`` lacks an answer; it is among ``table.wanted``, unless only the plugin itself can give it.
    Cost: O(m) for each pod.
    """
    scores = np.empty(nodes.shape[0], np.float64)
    for at in range(pods.shape[0]):
        pod = pods[at]
        shape, group = facts.pods.shape[pod], facts.pods.group[pod]
        ask = table.ask[shape]
        score_nodes(facts, columns, rules, vectors, shape, nodes, extra, scores)
        if ask >= 0 and not _rate(columns, table, ask, nodes, scores):
            return NOT_ANSWERED
        while True:
            best = best_node(facts, columns, rules, vectors, shape, group, nodes, scores)
            if best < 0:
                return at
            if ask >= 0 and table.taken[columns.arena[table.cells[0] + nodes[best]], ask] == UNSURE:
                return NOT_ANSWERED
            if _put_by_table(facts, columns, offsets, rules, table, pod, nodes[best]):
                break
            scores[best] = np.nan
    return pods.shape[0]


@inner
def _count_shortages(facts: Facts, columns: Columns, shape: int, node: int, first: int, counts: Int64s) -> None:
    """Add the shortages of ``node`` to ``counts``; if only the sum exceeds its capacity, count ``first``.

    Pods that are leaving still hold their resources.
    """
    is_short, width = False, facts.shapes.request.shape[1]
    for resource in range(width):
        amount = facts.shapes.request[shape, resource]
        if resource == GPU or (amount <= 0 and resource != CPU and resource != MEMORY):
            continue
        total = facts.nodes.allocatable[node, resource]
        if facts.nodes.claimable[resource] and total == 0:
            continue
        if amount > total - columns.used[node, resource]:
            counts[CODES + resource] += 1
            is_short = True
    kind, device = facts.shapes.kind[shape], facts.nodes.gpu_memory[node]
    if kind != KIND_MIG:
        gpus = facts.shapes.request[shape, GPU] - facts.shapes.claimed[shape] * GPU_UNIT
        if kind == KIND_MEMORY:
            gpus = gpu_on_node(facts, shape, node) if device > 0 else 0
        taken = columns.used[node, GPU] + slots_in_use(facts, columns, node) * GPU_UNIT
        if gpus > facts.nodes.allocatable[node, GPU] - taken:
            counts[CODES + GPU] += 1
            is_short = True
    if kind == KIND_MEMORY and facts.shapes.memory[shape] > device:
        counts[CODES + width] += 1
        is_short = True
    if not is_short:
        counts[CODES + first - SHORT_OF] += 1


@kernel
def refusals(
    facts: Facts,
    columns: Columns,
    rules: Rules,
    vectors: Vectors,
    shape: int,
    group: int,
    nodes: Int64s,
    codes: Int64s,
    counts: Int64s,
) -> None:
    """Fill ``codes`` [n] with the refusal of each of ``nodes`` [n] for a pod of ``shape``, and count the reasons.

    ``counts`` [CODES + R + 1]: nodes by code, nodes that lack each resource, nodes whose devices have less memory than
    the pod requests. A node that lacks several resources counts for each of them.
    """
    counts[:] = 0
    for at in range(nodes.shape[0]):
        code = refusal(facts, columns, rules, vectors, shape, group, nodes[at])
        codes[at] = code
        if code >= SHORT_OF:
            _count_shortages(facts, columns, shape, nodes[at], code, counts)
        else:
            counts[code] += 1
