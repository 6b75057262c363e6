"""What nodes and domains of nodes can hold, counting what is being released."""

import numpy as np

from kai.kernels._jit import inner, kernel
from kai.kernels.columns import GPU, GPU_UNIT, PODS, Columns, Facts
from kai.kernels.struct import Float64s, Int64s

NO_ROOM = 1000.0
"""The ratio of something to nothing."""


@inner
def pods_on_node(facts: Facts, columns: Columns, request: Int64s, most: int, node: int) -> int:
    """Return how many pods of ``request`` [R] ``node`` could hold, ``most`` if they ask for nothing but a place.

    A node on which more is held than there is of anything holds none, as in ``fit.shortage``.

    For a request of less than one GPU the free parts of shared devices count as well.
    """
    count, overdrawn = -1, False
    for resource in range(request.shape[0]):
        amount = request[resource]
        if resource == PODS and amount <= 1:
            continue
        free = columns.idle[node, resource] + columns.releasing[node, resource]
        if amount <= 0:
            overdrawn = overdrawn or free < 0
            continue
        if resource == GPU and amount < GPU_UNIT:
            memory = facts.nodes.gpu_memory[node]
            for slot in range(facts.nodes.slot_start[node], facts.nodes.slot_start[node + 1]):
                if columns.slot_used[slot] > 0:
                    left = memory - columns.slot_allocated[slot] + columns.slot_releasing[slot]
                    free += left * GPU_UNIT // memory
        here = free // amount if free >= amount else 0
        count = here if count < 0 else min(count, here)
    if count < 0:
        return most
    if overdrawn:
        return 0
    # Once anything is asked for, a pod's place counts like every other resource.
    return max(0, min(count, columns.idle[node, PODS] + columns.releasing[node, PODS]))


@kernel
def domain_room(
    columns: Columns,
    nodes: Int64s,
    domains: Int64s,
    parents: Int64s,
    wanted: Int64s,
    fitting: Int64s,
    tightness: Float64s,
    held: Int64s,
) -> None:
    """Fill, for each domain, how much of what it has free the pods want together, and how many such pods it holds.

    The former is that of the resource that is shortest: 1 where it just suffices, ``NO_ROOM`` where nothing is free.

    Shapes: nodes [n]; domains [n] of the deepest level; parents [C], each less than its child, the first one -1; wanted
        [R], 0 for what does not count; fitting [n] pods that fit on each node; tightness, held [C].
    """
    tightness[:] = 0.0
    held[:] = 0
    for at in range(nodes.shape[0]):
        held[domains[at]] += fitting[at]
    for domain in range(held.shape[0] - 1, 0, -1):
        held[parents[domain]] += held[domain]
    amounts = np.empty(tightness.shape[0], np.int64)
    for resource in range(wanted.shape[0]):
        if wanted[resource] <= 0:
            continue
        amounts[:] = 0
        for at in range(nodes.shape[0]):
            node = nodes[at]
            amounts[domains[at]] += columns.idle[node, resource] + columns.releasing[node, resource]
        for domain in range(amounts.shape[0] - 1, 0, -1):
            amounts[parents[domain]] += amounts[domain]
        for domain in range(amounts.shape[0]):
            share = wanted[resource] / amounts[domain] if amounts[domain] > 0 else NO_ROOM
            tightness[domain] = max(tightness[domain], share)
