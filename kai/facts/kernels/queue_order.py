"""The order in which queues are served.

Queues above their share go last. Before them, queues that stay within their entitlement with the next chunk go first,
then higher priority, then the lower share of the allocatable amount. Less past use breaks ties, then age. Before all
of them goes a queue whose next chunk is bound to a GPU model and stays within what the queue is owed of it.

Source: the queue order of the peer's proportion plugin, which knows age alone. Shares are whole GPUs, so queues
    whose past use differs by little have equal shares, and always the older would go first.
"""

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Float64s
from kai.facts.kernels.columns import GPU, GPU_UNIT, SHARED_RESOURCES, Columns, Facts
from kai.facts.kernels.fit import Rules, is_owed

UNSHARED_PENALTY = 1000.0
FIRST_OF_EQUALS, LAST_OF_EQUALS = -2, 2


@inner
def dominant_share(facts: Facts, queue: int, cpu: float, memory: float, gpu: float) -> float:
    """Return the largest ratio of the amounts to what ``queue`` may hold."""
    most = 0.0
    for resource in range(SHARED_RESOURCES):
        held = cpu if resource == 0 else (memory if resource == 1 else gpu)
        share = facts.queues.allocatable[queue, resource]
        if share < 0:
            share = facts.queues.total[resource]
        if share == 0:
            # A queue with no share of a resource is ordered by its amount times the peer's penalty. GPUs are in
            # thousandths here, which is that factor already.
            ratio = held if resource == GPU else held * UNSHARED_PENALTY
        elif resource == GPU:
            # In devices, as the peer divides: 2.4 / 3 is less than 1.6 / 2 in binary fractions, 2400 / 3000 is not.
            ratio = (held / GPU_UNIT) / (share / GPU_UNIT)
        else:
            ratio = held / share
        most = max(most, ratio)
    return most


@inner
def _over_utilised(facts: Facts, columns: Columns, queue: int) -> bool:
    for resource in range(SHARED_RESOURCES):
        if facts.queues.fair_share[queue, resource] >= columns.queue_used[queue, resource]:
            return False
    return True


@inner
def _starved(facts: Facts, columns: Columns, queue: int, wanted: Float64s) -> bool:
    for resource in range(SHARED_RESOURCES):
        quota = facts.queues.quota[queue, resource]
        if quota >= 0 and columns.queue_used[queue, resource] + wanted[resource] > quota:
            return False
    return True


@inner
def _uses_what_it_may_not(facts: Facts, columns: Columns, queue: int, wanted: Float64s) -> bool:
    for resource in range(SHARED_RESOURCES):
        if (
            facts.queues.allocatable[queue, resource] == 0
            and columns.queue_used[queue, resource] + wanted[resource] > 0
        ):
            return True
    return False


@inner
def _weaker(facts: Facts, left: int, right: int) -> bool:
    """Return whether ``left`` may hold no more of any resource, and less of at least one."""
    less = False
    for resource in range(SHARED_RESOURCES):
        mine = facts.queues.allocatable[left, resource]
        theirs = facts.queues.allocatable[right, resource]
        if mine < 0 and theirs < 0:
            continue
        if mine < 0 or (theirs >= 0 and mine > theirs):
            return False
        if theirs < 0 or mine < theirs:
            less = True
    return less


@inner
def _takes_what_it_is_owed(facts: Facts, columns: Columns, queue: int, model: int, gpus: float) -> bool:
    """Return whether ``queue`` is owed ``gpus`` more of ``model``, and may hold as many more of all models."""
    share = facts.queues.allocatable[queue, GPU]
    may_hold = share < 0 or columns.queue_used[queue, GPU] + gpus <= share
    return may_hold and is_owed(facts, columns.queue_models, queue, model, gpus)


@kernel
def compare_queues(
    facts: Facts,
    columns: Columns,
    rules: Rules,
    left: int,
    right: int,
    wanted: Float64s,
    rival: Float64s,
    given: Float64s,
    taken: Float64s,
    group: int,
    rival_group: int,
) -> int:
    """Return a negative number if ``left`` goes before ``right``, else a positive one.

    FIRST_OF_EQUALS or LAST_OF_EQUALS: they differ only in past use or age. Of two queues created at the same instant,
    the right one goes first.

    ``group``, ``rival_group``: the group that each side wants to serve next; -1 for victims.
    Shapes: wanted, rival [3] the next chunk of each side; given, taken [3] what the victims of each side hold.
    """
    if not rules.fair_order:
        if facts.queues.created[left] != facts.queues.created[right]:
            return -1 if facts.queues.created[left] < facts.queues.created[right] else 1
        # The row breaks ties, so that equal times give one answer.
        return -1 if left < right else 1
    # A queue takes a model that it is owed even from one that holds no more than its share, so served later it would
    # find that taken back.
    if facts.queues.deserved.shape[1] > 0 and group >= 0:
        owed = _takes_what_it_is_owed(facts, columns, left, facts.groups.bound[group], wanted[GPU])
        if owed != _takes_what_it_is_owed(facts, columns, right, facts.groups.bound[rival_group], rival[GPU]):
            return -1 if owed else 1
    starved_left, starved_right = _starved(facts, columns, left, wanted), _starved(facts, columns, right, rival)
    rank_left, rank_right = facts.queues.rank[left], facts.queues.rank[right]
    # Ranks come before excess: a queue takes from one that it outranks even within that one's quota, so served later it
    # would take back what was given first.
    if starved_left and starved_right and rank_left != rank_right:
        return -1 if rank_left > rank_right else 1
    over_left, over_right = _over_utilised(facts, columns, left), _over_utilised(facts, columns, right)
    if over_left != over_right:
        return 1 if over_left else -1
    if starved_left != starved_right:
        return -1 if starved_left else 1
    if facts.queues.priority[left] != facts.queues.priority[right]:
        return -1 if facts.queues.priority[left] > facts.queues.priority[right] else 1
    bad_left = _uses_what_it_may_not(facts, columns, left, wanted)
    bad_right = _uses_what_it_may_not(facts, columns, right, rival)
    if bad_left != bad_right:
        return 1 if bad_left else -1
    used_left, used_right = columns.queue_used[left], columns.queue_used[right]
    with_left = dominant_share(
        facts,
        left,
        used_left[0] + wanted[0] - given[0],
        used_left[1] + wanted[1] - given[1],
        used_left[2] + wanted[2] - given[2],
    )
    with_right = dominant_share(
        facts,
        right,
        used_right[0] + rival[0] - taken[0],
        used_right[1] + rival[1] - taken[1],
        used_right[2] + rival[2] - taken[2],
    )
    # With the next chunk and without the victims, so that a queue with a large gang does not overtake one with a small
    # pod just because it holds little now.
    if with_left != with_right:
        return -1 if with_left < with_right else 1
    plain_left = dominant_share(facts, left, float(used_left[0]), float(used_left[1]), float(used_left[2]))
    plain_right = dominant_share(facts, right, float(used_right[0]), float(used_right[1]), float(used_right[2]))
    if plain_left != plain_right:
        return -1 if plain_left < plain_right else 1
    if _weaker(facts, left, right):
        return -1
    if _weaker(facts, right, left):
        return 1
    if facts.queues.past_use[left] != facts.queues.past_use[right]:
        return FIRST_OF_EQUALS if facts.queues.past_use[left] < facts.queues.past_use[right] else LAST_OF_EQUALS
    return FIRST_OF_EQUALS if facts.queues.created[left] < facts.queues.created[right] else LAST_OF_EQUALS
