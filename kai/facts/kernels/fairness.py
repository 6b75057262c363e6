"""The rules of reclaim: is it fair that these victims go for the aggressor? Computed in one pass over the victims.

The plugin that divides fair shares answers by these rules. If it allows, searches apply them without a call of Python.

Source: the peer's plugins/proportion/reclaimable.
"""

import numpy as np

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, BoolTable, Float64s, Float64Table, Int64s, Int64Table, Struct
from kai.facts.kernels.arrays import ascending, copy
from kai.facts.kernels.booking import accepted_gpu
from kai.facts.kernels.columns import ACTIVE_ALLOCATED, CPU, GPU, GPU_UNIT, MEMORY, SHARED_RESOURCES, Columns, Facts
from kai.facts.kernels.fit import is_beyond_owed, is_owed, lasting

FAIR, NOT_JUSTIFIED, TOO_SATURATED, BEYOND_QUOTA, MODEL_OWED = 0, 1, 2, 3, 4
OF_MODEL = SHARED_RESOURCES
"""The column of pieces with what they have of the aggressor's GPU model."""


class Claim(Struct):
    """The inputs of validation: the usage of queues before a search, and the request of its aggressor."""

    used: Float64Table  # [Q, 3]
    fixed: Float64Table  # [Q, 3]
    models: Int64Table  # [Q, M] the part of it that is of each GPU model; not filled if no queue has a quota of one
    wanted: Float64s  # [3]
    group: Int64s  # [1]
    model: Int64s  # [1] the GPU model that the aggressor is bound to, -1: none
    movable: bool
    multiplier: float


class Loss(Struct):
    """The remaining amounts of each queue after its losses; memory that is reused."""

    remaining: Float64Table  # [Q, 3]
    of_model: Int64s  # [Q] the same of the aggressor's GPU model
    known: Bools  # [Q]
    involved: BoolTable  # [Q, 3] resources that were taken
    at_fault: Int64s  # [2] the queue, and the sibling, that a refusal is about


class Fairness(Struct):
    """The inputs and working memory of the rules of reclaim."""

    claim: Claim
    loss: Loss


@inner
def _fits(amounts: Float64s, bounds: Float64s) -> bool:
    for resource in range(SHARED_RESOURCES):
        # Written as "not at most" so that a NaN refuses; with `>` it would pass for small enough.
        if bounds[resource] >= 0 and not amounts[resource] <= bounds[resource]:
            return False
    return True


@inner
def fits_quota(facts: Facts, fixed: Int64s | Float64s, wanted: Float64s, group: int, queue: int) -> bool:
    """Return whether ``queue`` may hold ``wanted`` [3] more for ``group``, which cannot be preempted, until it ends."""
    for resource in range(SHARED_RESOURCES):
        quota = lasting(facts, group, queue, resource)
        if quota >= 0 and not fixed[resource] + wanted[resource] <= quota:
            return False
    return True


@inner
def depth_of(facts: Facts, queue: int) -> int:
    """Return how many queues are above ``queue``."""
    depth = 0
    while facts.queues.parent[queue] >= 0:
        queue = facts.queues.parent[queue]
        depth += 1
    return depth


@inner
def ancestor(facts: Facts, queue: int, depth: int) -> int:
    """Return the queue on the path to ``queue`` that has ``depth`` above it."""
    for _ in range(depth_of(facts, queue) - depth):
        queue = facts.queues.parent[queue]
    return queue


@inner
def parting(facts: Facts, left: int, right: int) -> int:
    """Return the first depth at which the paths to two queues differ; the last compared one if a path ends before."""
    # Depth ``last`` need not be compared: it is the answer whether the queues differ there or one is above the other.
    last = min(depth_of(facts, left), depth_of(facts, right))
    for depth in range(last):
        if ancestor(facts, left, depth) != ancestor(facts, right, depth):
            return depth
    return last


@kernel
def find_level_pairs(facts: Facts, aggressor: int, takers: Int64s, givers: Int64s) -> None:
    """Fill ``takers`` and ``givers`` [Q]: where the paths to ``aggressor`` and to each queue part.

    The first two queues that differ, or the last compared pair if one path ends first; -1 without an ``aggressor``.
    """
    takers[:] = -1
    givers[:] = -1
    if aggressor < 0:
        return
    for queue in range(takers.shape[0]):
        depth = parting(facts, aggressor, queue)
        takers[queue] = ancestor(facts, aggressor, depth)
        givers[queue] = ancestor(facts, queue, depth)


@inner
def _is_greedy(facts: Facts, columns: Columns, taker: int, giver: int, wanted: Float64s) -> bool:
    """Return whether the queue ``giver`` holds more than it may while ``taker`` wants that much more."""
    within, above, below, above_share = True, False, False, False
    for resource in range(SHARED_RESOURCES):
        quota, claimed = facts.queues.quota[taker, resource], columns.queue_used[taker, resource] + wanted[resource]
        within = within and (quota < 0 or claimed <= quota)
        used, mine = columns.queue_used[giver, resource], facts.queues.quota[giver, resource]
        share = facts.queues.allocatable[giver, resource]
        above_share = above_share or (share >= 0 and used > share)
        if wanted[resource] > 0 and mine >= 0:
            above = above or used > mine
            below = below or used < mine
    # A taker beyond its own quota asks for surplus, and surplus is owed only by those above their whole share; a quota
    # is owed by any queue above its quota.
    if not within:
        return above_share
    # Wider than the rule by which `judge` accepts: a queue exactly at its quota passes. This only picks the queues
    # where victims are looked for.
    return above or not below or facts.queues.rank[taker] > facts.queues.rank[giver]


@kernel
def find_greedy(
    facts: Facts, columns: Columns, takers: Int64s, givers: Int64s, wanted: Float64s, owner: int, model: int
) -> Bools:
    """Return bool[Q]: which queues besides ``owner`` are greedy, of shared resources or of ``model`` (-1: none).

    Each queue is checked with its pair of ``takers`` and ``givers`` [Q]. Cost: O(Q).
    """
    greedy = np.zeros(takers.shape[0], np.bool_)
    for queue in range(takers.shape[0]):
        taker, giver = takers[queue], givers[queue]
        if queue == owner or giver < 0:
            continue
        greedy[queue] = _is_greedy(facts, columns, taker, giver, wanted)
        if is_owed(facts, columns.queue_models, taker, model, wanted[GPU]):
            greedy[queue] = greedy[queue] or is_beyond_owed(facts, giver, model, columns.queue_models[giver, model])
    return greedy


@kernel
def may_take_by_model(facts: Facts, columns: Columns, queue: int, model: int, wanted: Float64s) -> bool:
    """Return whether ``queue``, or one above it, is owed ``wanted`` [3] more GPUs of ``model`` (-1: none)."""
    while model >= 0 and queue >= 0:
        if is_owed(facts, columns.queue_models, queue, model, wanted[GPU]):
            return True
        queue = facts.queues.parent[queue]
    return False


@inner
def may_reclaim(facts: Facts, columns: Columns, group: int, wanted: Float64s) -> bool:
    """Return whether the group's queue stays in its fair share with ``wanted`` [3] more, or in quota if it is fixed."""
    queue = facts.groups.queue[group]
    if queue < 0 or not _fits(columns.queue_used[queue] + wanted, facts.queues.fair_share[queue]):
        return False
    return facts.groups.preemptible[group] or fits_quota(facts, columns.queue_fixed[queue], wanted, group, queue)


@inner
def mark_greedy(
    facts: Facts, columns: Columns, wanted: Float64s, owner: int, candidates: Int64s, greedy: Bools, pairs: Int64Table
) -> None:
    """Fill ``greedy`` [Q] like ``find_greedy``, for queues with ``candidates`` [Q or more]; others get False.

    Queues that part from the path to ``owner`` at one queue share its answer. ``pairs`` [Q + 1, 2] is memory.
    Cost: O(Q) steps towards the root, and an answer for each queue beside the path.
    """
    parents = facts.queues.parent
    # The queue of the path below each queue of it, and the answers: 0 for not known yet, 1 for no, 2 for yes. The last
    # row, which is also at -1, is for what is above all queues.
    pairs[:, 0] = -1
    pairs[:, 1] = 0
    queue = owner
    while queue >= 0:
        pairs[parents[queue], 0] = queue
        queue = parents[queue]
    for queue in range(greedy.shape[0]):
        # The array is memory that is reused from search to search, so every entry is written.
        greedy[queue] = False
        if queue == owner or candidates[queue] <= 0:
            continue
        giver = queue
        while pairs[parents[giver], 0] < 0:
            giver = parents[giver]
        if pairs[giver, 1] == 0:
            # A queue on the path itself has no other to part from there: then the last compared pair counts.
            taker = pairs[parents[giver], 0]
            pairs[giver, 1] = 1 + int(_is_greedy(facts, columns, taker, giver, wanted))
        greedy[queue] = pairs[giver, 1] == 2


@inner
def remember(facts: Facts, columns: Columns, claim: Claim, group: int, wanted: Float64s) -> None:
    """Store the usage of queues before a search, and the request of its aggressor."""
    # Each look at a field of a struct counts references, which costs more than the copy.
    used, fixed, models = claim.used, claim.fixed, claim.models
    used_now, fixed_now, models_now = columns.queue_used, columns.queue_fixed, columns.queue_models
    owed = facts.queues.deserved.shape[1]
    for queue in range(used.shape[0]):
        for resource in range(SHARED_RESOURCES):
            used[queue, resource] = used_now[queue, resource]
            fixed[queue, resource] = fixed_now[queue, resource]
        for model in range(owed):
            models[queue, model] = models_now[queue, model]
    copy(wanted, claim.wanted)
    claim.group[0] = group
    # A search that may take by model is left to the caller, who knows the model; see `kai.facts.kernels.reclaiming`.
    claim.model[0] = -1


@inner
def _know(claim: Claim, loss: Loss, queue: int) -> None:
    if not loss.known[queue]:
        loss.known[queue] = True
        # Filled on first use: clearing `known` [Q] is cheap, while copying all usage for each scenario would cost more
        # than judging it.
        copy(claim.used[queue], loss.remaining[queue])
        if claim.model[0] >= 0:
            loss.of_model[queue] = claim.models[queue, claim.model[0]]


@inner
def _justify(
    facts: Facts, claim: Claim, loss: Loss, leaf: int, pieces: Float64Table, owner: Int64s, count: int
) -> bool:
    """Return whether each piece that ``leaf`` loses is justified by what it has before; subtract one by one."""
    mine = facts.groups.queue[claim.group[0]]
    depth = parting(facts, mine, leaf)
    taker, giver = ancestor(facts, mine, depth), ancestor(facts, leaf, depth)
    touched = np.zeros(SHARED_RESOURCES, np.bool_)
    # All resources of the leaf's pieces are noted first: the comparison of siblings asks for what a queue lost at all,
    # not piece by piece.
    for at in range(count):
        if owner[at] == leaf:
            for resource in range(SHARED_RESOURCES):
                touched[resource] = touched[resource] or pieces[at, resource] > 0
    # The giver may be far above the leaf that loses, and no piece has been subtracted from it yet when the first is
    # judged.
    _know(claim, loss, giver)
    # By the usage before the search: the state at the end of the simulation already holds the aggressor.
    within = _fits(claim.used[taker] + claim.wanted, facts.queues.quota[taker])
    goes_before = facts.queues.rank[taker] > facts.queues.rank[giver]
    model = claim.model[0]
    takes_by_model = is_owed(facts, claim.models, taker, model, claim.wanted[GPU])
    for at in range(count):
        if owner[at] != leaf:
            continue
        by_model = (
            takes_by_model and pieces[at, OF_MODEL] > 0 and is_beyond_owed(facts, giver, model, loss.of_model[giver])
        )
        above_share = not _fits(loss.remaining[giver], facts.queues.allocatable[giver])
        above_quota = not _fits(loss.remaining[giver], facts.queues.quota[giver])
        # Asked before the piece is subtracted. So a queue may end below its share by part of one piece, else a gang
        # that is larger than the excess could never be taken.
        if not (by_model or above_share or (within and (above_quota or goes_before))):
            return False
        queue = leaf
        while queue >= 0:
            _know(claim, loss, queue)
            for resource in range(SHARED_RESOURCES):
                loss.remaining[queue, resource] -= pieces[at, resource]
                loss.involved[queue, resource] = loss.involved[queue, resource] or touched[resource]
            loss.of_model[queue] -= int(pieces[at, OF_MODEL])
            queue = facts.queues.parent[queue]
    return True


@inner
def _ratio(amount: float, share: float) -> float:
    if share < 0:
        return 0.0
    # No division: infinity compares above every sibling, and 0 of 0 is no saturation at all rather than NaN.
    if share == 0:
        return np.inf if amount > 0 else 0.0
    return amount / share


@inner
def _outdoes(facts: Facts, claim: Claim, loss: Loss, queue: int, sibling: int, amounts: Float64s) -> bool:
    """Return whether ``queue`` with ``amounts`` would be more saturated than a sibling that lost something."""
    for resource in range(SHARED_RESOURCES):
        if not (loss.involved[sibling, resource] or claim.wanted[resource] > 0):
            continue
        # In devices, as the peer divides: shares that are equal in tenths are not always equal in binary.
        unit = float(GPU_UNIT) if resource == GPU else 1.0
        share = facts.queues.fair_share[queue, resource] / unit
        other = facts.queues.fair_share[sibling, resource] / unit
        saturation = _ratio(amounts[resource] / unit, share)
        left = _ratio(loss.remaining[sibling, resource] / unit, other)
        if saturation > 1 and other > 0 and saturation * claim.multiplier >= left:
            return True
    return False


@inner
def _saturate(facts: Facts, claim: Claim, loss: Loss) -> int:
    queue = facts.groups.queue[claim.group[0]]
    known, parents = loss.known, facts.queues.parent
    while queue >= 0:
        loss.at_fault[0] = queue
        if loss.known[queue]:
            loss.remaining[queue, :] += claim.wanted
            amounts = loss.remaining[queue].copy()
        else:
            amounts = claim.used[queue] + claim.wanted
        for sibling in range(known.shape[0]):
            # Only siblings that lost something can complain; the others are as saturated as before the search.
            if not known[sibling] or sibling == queue:
                continue
            if parents[sibling] == parents[queue] and _outdoes(facts, claim, loss, queue, sibling, amounts):
                loss.at_fault[1] = sibling
                return TOO_SATURATED
        fixed = not facts.groups.preemptible[claim.group[0]]
        if fixed and not fits_quota(facts, claim.fixed[queue], claim.wanted, claim.group[0], queue):
            return BEYOND_QUOTA
        queue = facts.queues.parent[queue]
    return FAIR


@inner
def _add_held(facts: Facts, columns: Columns, claim: Claim, pod: int, pieces: Float64Table, at: int) -> int:
    """Add what ``pod`` holds to a piece; return 0 if it lost nothing, because it is to be moved, else 1."""
    if claim.movable and (ACTIVE_ALLOCATED >> columns.status[pod]) & 1:
        return 0
    shape = facts.pods.shape[pod]
    pieces[at, CPU] += facts.shapes.request[shape, CPU]
    pieces[at, MEMORY] += facts.shapes.request[shape, MEMORY]
    gpu, node = accepted_gpu(facts, shape, columns.node[pod]), columns.node[pod]
    pieces[at, GPU] += gpu
    if claim.model[0] >= 0 and node >= 0 and facts.nodes.model[node] == claim.model[0]:
        pieces[at, OF_MODEL] += gpu
    return 1


@inner
def _cut(facts: Facts, columns: Columns, claim: Claim, pods: Int64s, pieces: Float64Table, count: int) -> int:
    """Append what one group loses with ``pods``, in order: surplus pods one by one, the core as one piece."""
    group = facts.pods.group[pods[0]]
    # The first pods of a leaf up to its minimum are the core, whatever their order of eviction: with one of them gone
    # the gang cannot run, so its loss is one loss.
    core = np.zeros(pods.shape[0], np.bool_)
    for leaf in range(facts.groups.first_subgroup[group], facts.groups.first_subgroup[group + 1]):
        left = facts.groups.minimum[leaf]
        for at in range(pods.shape[0]):
            if facts.pods.leaf[pods[at]] != leaf:
                continue
            if left > 0:
                core[at] = True
                left -= 1
            else:
                count += _add_held(facts, columns, claim, pods[at], pieces, count)
    # The core comes after the surplus pods. Its pieces are added up in the row at `count`, which becomes a piece only
    # if some pod lost its place.
    lost = 0
    for at in range(pods.shape[0]):
        if core[at]:
            lost |= _add_held(facts, columns, claim, pods[at], pieces, count)
    return count + lost


@inner
def _lost(
    facts: Facts, columns: Columns, claim: Claim, victims: Int64s, pieces: Float64Table, owner: Int64s, leaves: Int64s
) -> tuple[int, int]:
    """Fill ``pieces`` with the losses of queues, ``owner`` with the queue of each, ``leaves`` with the losing queues.

    Groups come in the order of their first victims. Return the numbers of pieces and queues.
    """
    many = victims.shape[0]
    keys, sorted_victims = np.empty(many, np.float64), np.empty(many, np.int64)
    for at in range(many):
        # Groups are sorted as floats: rows are far below 2**53, so they are exact, and the compiled sort of floats
        # exists already.
        keys[at] = facts.pods.group[victims[at]]
    order = ascending(keys)
    begins = np.empty(many + 1, np.int64)
    segments = 0
    for at in range(many):
        sorted_victims[at] = victims[order[at]]
        if at == 0 or facts.pods.group[sorted_victims[at]] != facts.pods.group[sorted_victims[at - 1]]:
            begins[segments] = at
            keys[segments] = order[at]  # the first victim of the group
            segments += 1
    begins[segments] = many
    count, queues = 0, 0
    for segment in ascending(keys[:segments]):
        mine = sorted_victims[begins[segment] : begins[segment + 1]]
        queue = facts.groups.queue[facts.pods.group[mine[0]]]
        before = count
        count = _cut(facts, columns, claim, mine, pieces, count)
        owner[before:count] = queue
        known = count == before  # a queue all of whose victims are moved loses nothing
        for at in range(queues):
            known = known or leaves[at] == queue
        if not known:
            leaves[queues] = queue
            queues += 1
    return count, queues


@inner
def _keeps_models(facts: Facts, columns: Columns, claim: Claim, loss: Loss) -> bool:
    """Return whether each queue has as much of each GPU model as before the search, or what it deserves of it.

    Asked of the books and not of the pieces: a victim that is moved to another model loses this one, too.
    """
    if facts.queues.deserved.shape[1] == 0:
        return True
    mine, model = facts.groups.queue[claim.group[0]], claim.model[0]
    # A search begins with a part of the aggressor's pods. The queues above it will gain the others as well.
    missing = 0.0
    if model >= 0:
        missing = max(0.0, claim.wanted[GPU] - (columns.queue_models[mine, model] - claim.models[mine, model]))
    for queue in range(facts.queues.deserved.shape[0]):
        for of in range(facts.queues.deserved.shape[1]):
            held = columns.queue_models[queue, of]
            kept = min(claim.models[queue, of], facts.queues.deserved[queue, of])
            if of == model and held < kept and _is_above(facts, queue, mine):
                held += int(missing)
            if held < kept:
                loss.at_fault[0] = queue
                return False
    return True


@inner
def _is_above(facts: Facts, queue: int, leaf: int) -> bool:
    """Return whether ``queue`` is ``leaf`` or a parent of it."""
    while leaf >= 0 and leaf != queue:
        leaf = facts.queues.parent[leaf]
    return leaf == queue


@kernel
def judge(facts: Facts, columns: Columns, claim: Claim, loss: Loss, victims: Int64s) -> int:
    """Return whether ``victims`` may be taken in the state at the end of a simulation: FAIR, or the reason why not.

    ``loss.at_fault`` identifies the queues of a refusal. Each piece is justified before it is subtracted, so the last
    one may take its queue below its share. Cost: O(Q + victims x depth).
    """
    # One piece for each surplus pod, one for the core of each group (there are at most as many groups as victims), and
    # a row for a core that turns out to be empty.
    most = 2 * victims.shape[0] + 1
    pieces = np.zeros((most, SHARED_RESOURCES + 1), np.float64)
    owner = np.empty(most, np.int64)
    leaves = np.empty(most, np.int64)
    count, queues = _lost(facts, columns, claim, victims, pieces, owner, leaves)
    loss.known[:] = False
    loss.involved[:, :] = False
    for at in range(queues):
        loss.at_fault[0] = leaves[at]
        if not _justify(facts, claim, loss, leaves[at], pieces, owner, count):
            return NOT_JUSTIFIED
    return _saturate(facts, claim, loss) if _keeps_models(facts, columns, claim, loss) else MODEL_OWED
