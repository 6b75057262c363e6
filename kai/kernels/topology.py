"""How many pods of one kind fit on each node, counting what is being released."""

from kai.kernels._jit import kernel
from kai.kernels.columns import GPU, GPU_UNIT, PODS, Columns, Facts
from kai.kernels.struct import Int64s


@kernel
def pods_per_node(facts: Facts, columns: Columns, request: Int64s, most: int, nodes: Int64s, out: Int64s) -> None:
    """Fill ``out`` [n] with how many pods of ``request`` [R] each of ``nodes`` [n] could hold.

    ``most`` if they ask for nothing but a pod's place.

    For a request of less than one GPU the free parts of shared devices count as well.
    """
    for at in range(nodes.shape[0]):
        node = nodes[at]
        count = -1
        for resource in range(request.shape[0]):
            amount = request[resource]
            if amount <= 0 or (resource == PODS and amount <= 1):
                continue
            free = columns.idle[node, resource] + columns.releasing[node, resource]
            if resource == GPU and amount < GPU_UNIT:
                memory = facts.nodes.gpu_memory[node]
                for slot in range(facts.nodes.slot_start[node], facts.nodes.slot_start[node + 1]):
                    if columns.slot_used[slot] > 0:
                        left = memory - columns.slot_allocated[slot] + columns.slot_releasing[slot]
                        free += left * GPU_UNIT // memory
            here = free // amount if free >= amount else 0
            count = here if count < 0 else min(count, here)
        if count < 0:
            out[at] = most
        else:
            # Once anything is asked for, a pod's place counts like every other resource.
            places = columns.idle[node, PODS] + columns.releasing[node, PODS]
            out[at] = max(0, min(count, places))
