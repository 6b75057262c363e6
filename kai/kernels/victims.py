"""Sums that searches for victims choose by."""

from kai.kernels._jit import kernel
from kai.kernels.columns import GPU_UNIT, Columns, Facts
from kai.kernels.struct import Int64s

HUNDREDTH = GPU_UNIT // 100


@kernel
def free_gpus(facts: Facts, columns: Columns, idle: Int64s, releasing: Int64s) -> None:
    """Fill ``idle`` and ``releasing`` [N] with thousandths of GPUs; parts of shared devices are rounded to hundredths.

    A shared device that is wholly being released already counts as a whole one. What was promised beyond what is
    released counts negative.
    """
    for node in range(idle.shape[0]):
        idle[node] = 0
        releasing[node] = 0
        for resource in range(columns.idle.shape[1]):
            weight = facts.nodes.gpu_weight[resource]
            if weight > 0:
                idle[node] += weight * columns.idle[node, resource]
                releasing[node] += weight * columns.releasing[node, resource]
        memory = facts.nodes.gpu_memory[node]
        for slot in range(facts.nodes.slot_start[node], facts.nodes.slot_start[node + 1]):
            allocated = columns.slot_allocated[slot]
            if allocated > 0:
                idle[node] += GPU_UNIT - (100 * allocated + memory - 1) // memory * HUNDREDTH
            leaving = columns.slot_releasing[slot]
            if leaving > 0 and not (columns.slot_used[slot] != 0 and columns.slot_used[slot] == leaving):
                releasing[node] += (100 * leaving + memory - 1) // memory * HUNDREDTH
