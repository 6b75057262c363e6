"""Booking pods on nodes, slots and queues: one transition function for everything that follows from a pod's status.

A booking belongs to a (pod, node) pair, not to a pod: a pod that was evicted from one node and promised another is
booked on both, releasing here and pipelined there.

A pod is charged to the budgets of its queue and of the queues above: what it holds times the time for which its group
may run. The charge goes back with the pod, so several starts of one cycle never share a remainder. What a budget has
left is a fact, ``BudgetFacts.left``, and what pods may still cost a column, ``Columns.budget_used``.

Source: the peer's pkg/scheduler/api/node_info (AddTask, RemoveTask), gpu_sharing_node_info and the
    allocate/deallocate handlers of its proportion plugin. Where the peer undoes by inverse operations, which drifts
    for shared devices, we subtract what was added.
"""

from kai.facts.compiled.jit import for_each_number, inner, kernel
from kai.facts.compiled.struct import Int64s
from kai.facts.kernels.columns import (
    ACTIVE_ALLOCATED,
    ACTIVE_USED,
    ALLOCATED,
    BINDING,
    COUNTED,
    CPU,
    GPU,
    GPU_UNIT,
    KIND_FRACTION,
    KIND_MEMORY,
    MEMORY,
    OP_ALLOCATE,
    OP_EVICT,
    OP_PIPELINE,
    PENDING,
    PIPELINED,
    RELEASING,
    SHARED_RESOURCES,
    Columns,
    Facts,
    Offsets,
    add,
    make_final,
    note_change,
    touch,
)
from kai.facts.kernels.slot_booking import book_slot, unbook_slot


@kernel
def is_shared(facts: Facts, shape: int) -> bool:
    """Return whether pods of ``shape`` share devices."""
    kind = facts.shapes.kind[shape]
    return kind == KIND_FRACTION or kind == KIND_MEMORY


@inner
def device_memory(facts: Facts, shape: int, node: int) -> int:
    """Return the MiB that a pod of ``shape`` takes of each of its devices on ``node``."""
    if facts.shapes.kind[shape] == KIND_MEMORY:
        return facts.shapes.memory[shape]
    return int(facts.shapes.portion[shape] * facts.nodes.gpu_memory[node])


@kernel
def portion_on_node(facts: Facts, shape: int, node: int) -> int:
    """Return hundredths of a device that a sharing pod counts for on ``node``; memory requests round up."""
    if facts.shapes.kind[shape] == KIND_MEMORY:
        per_device = facts.nodes.gpu_memory[node]
        return (100 * facts.shapes.memory[shape] + per_device - 1) // per_device
    return int(facts.shapes.portion[shape] * 100 + 0.5)


@kernel
def requested_gpu(facts: Facts, shape: int) -> int:
    """Return the raw GPU request in thousandths, with MIG slices and claimed devices; a request by memory counts 0.

    A device that a claim has in part counts in part.
    """
    total = -facts.shapes.not_had[shape]
    for resource in range(facts.shapes.request.shape[1]):
        weight = facts.nodes.gpu_weight[resource]
        if weight > 0:
            total += weight * facts.shapes.request[shape, resource]
    return total


@kernel
def accepted_gpu(facts: Facts, shape: int, node: int) -> int:
    """Return the thousandths of GPUs that quota counts for a pod of ``shape`` on ``node`` (-1: no node).

    Memory rounds down, so that pods that fit on a device fit in a limit of one GPU; but each counts at least something.
    """
    if node < 0 or not is_shared(facts, shape):
        return requested_gpu(facts, shape)
    if facts.shapes.kind[shape] == KIND_MEMORY:
        part = GPU_UNIT * facts.shapes.memory[shape] // facts.nodes.gpu_memory[node]
        return max(1, part) * facts.shapes.devices[shape]
    return portion_on_node(facts, shape, node) * facts.shapes.devices[shape] * (GPU_UNIT // 100)


@inner
@for_each_number
def book(
    facts: Facts, columns: Columns, offsets: Offsets, pod: int, node: int, status: int, placement: int, sign: int
) -> None:
    """Put a pod with ``status`` on ``node`` (sign 1) or take that very booking away (sign -1).

    Holds: idle + releasing + used move as the peer's node arithmetic says; dimensions that the node lacks stay
        untouched.
    """
    shape = facts.pods.shape[pod]
    shared = is_shared(facts, shape)
    width = columns.idle.shape[1]
    touch(columns, node)
    for resource in range(width):
        amount = facts.shapes.request[shape, resource] * sign
        # Claims serve what a node has none of, and a device plugin may be gone: booked, such an amount would turn idle
        # negative.
        if amount == 0 or facts.nodes.allocatable[node, resource] == 0:
            continue
        # A shared device is booked by its slot, and its reservation pod holds that same device.
        if resource == GPU and (shared or facts.pods.reservation[pod]):
            continue
        cell = node * width + resource
        add(columns, offsets.used + cell, amount)
        if status == PIPELINED:
            add(columns, offsets.releasing + cell, -amount)
        else:
            add(columns, offsets.idle + cell, -amount)
            if status == RELEASING:
                add(columns, offsets.releasing + cell, amount)
    if shared:
        memory = device_memory(facts, shape, node)
        for device in range(columns.placement_slots.shape[1]):
            slot = columns.placement_slots[placement, device]
            if slot >= 0:
                if sign > 0:
                    book_slot(facts, columns, offsets, node, slot, status, memory)
                else:
                    unbook_slot(facts, columns, offsets, node, slot, status, memory)


@inner
def weight_on(facts: Facts, budget: int, group: int, node: int) -> int:
    """Return what a GPU counts at a budget in thousandths: on ``node``, or the most for the group if it has none."""
    model = facts.budgets.group_model[group] if node < 0 else facts.budgets.node_model[node]
    return facts.budgets.weights[budget, model]


@inner
def charge_of(facts: Facts, budget: int, group: int, node: int, gpu: int) -> int:
    """Return what thousandths of GPUs of a group cost at a budget; work without an end and without slices costs 0."""
    # Rounded up, so that a charge is never below what the pod costs.
    weighted = (gpu * weight_on(facts, budget, group, node) + GPU_UNIT - 1) // GPU_UNIT
    return weighted * max(0, facts.budgets.duration[group])


@inner
def charge_budgets(
    facts: Facts, columns: Columns, offsets: Offsets, queue: int, group: int, node: int, gpu: int, sign: int
) -> None:
    """Add (``sign`` 1) or subtract (-1) what a pod costs to the budgets of one queue."""
    for budget in range(facts.budgets.first[queue], facts.budgets.first[queue + 1]):
        add(columns, offsets.budget_used + budget, sign * charge_of(facts, budget, group, node, gpu))


@inner
def is_over_budget(facts: Facts, columns: Columns, group: int, gpu: int) -> bool:
    """Return whether a budget of the queue of ``group``, or of a queue above it, does not allow ``gpu`` thousandths.

    A budget that stops asks only whether something is left. Work without an end must be preemptible.
    """
    queue = facts.groups.queue[group]
    while queue >= 0:
        for budget in range(facts.budgets.first[queue], facts.budgets.first[queue + 1]):
            left = facts.budgets.left[budget]
            if facts.budgets.stops[budget]:
                if left <= 0:
                    return True
                continue
            # Before the pod has a node, its models may differ in weight: the heaviest counts, so a start never exceeds
            # the remainder.
            cost = charge_of(facts, budget, group, -1, gpu)
            if facts.budgets.duration[group] < 0 or left < columns.budget_used[budget] + cost:
                return True
        queue = facts.queues.parent[queue]
    return False


@kernel
def book_budgets(facts: Facts, columns: Columns, gpus: Int64s) -> None:
    """Charge all pods that count, from scratch. ``gpus`` [P] are the thousandths of GPUs that each holds."""
    columns.budget_used[:] = 0
    for pod in range(facts.pods.group.shape[0]):
        group = facts.pods.group[pod]
        if group < 0 or gpus[pod] == 0 or not (COUNTED >> columns.status[pod]) & 1:
            continue
        queue = facts.groups.queue[group]
        while queue >= 0:
            for budget in range(facts.budgets.first[queue], facts.budgets.first[queue + 1]):
                columns.budget_used[budget] += charge_of(facts, budget, group, columns.node[pod], gpus[pod])
            queue = facts.queues.parent[queue]


@inner
@for_each_number
def charge(facts: Facts, columns: Columns, offsets: Offsets, pod: int, node: int, sign: int) -> None:
    """Add (or subtract) what a pod on ``node`` counts for in quota to its queue and every queue above it."""
    group = facts.pods.group[pod]
    if group < 0:
        return
    shape = facts.pods.shape[pod]
    cpu = facts.shapes.request[shape, CPU] * sign
    memory = facts.shapes.request[shape, MEMORY] * sign
    gpu = accepted_gpu(facts, shape, node) * sign
    model = facts.nodes.model[node] if node >= 0 else -1
    queue = facts.groups.queue[group]
    budgets = facts.budgets.left.shape[0] > 0
    while queue >= 0:
        if budgets:
            charge_budgets(facts, columns, offsets, queue, group, node, gpu * sign, sign)
        cell = queue * SHARED_RESOURCES
        add(columns, offsets.queue_used + cell + CPU, cpu)
        add(columns, offsets.queue_used + cell + MEMORY, memory)
        add(columns, offsets.queue_used + cell + GPU, gpu)
        if not facts.groups.preemptible[group]:
            add(columns, offsets.queue_fixed + cell + CPU, cpu)
            add(columns, offsets.queue_fixed + cell + MEMORY, memory)
            add(columns, offsets.queue_fixed + cell + GPU, gpu)
        if model >= 0:
            add(columns, offsets.queue_models + queue * columns.queue_models.shape[1] + model, gpu)
        queue = facts.queues.parent[queue]
    if facts.users.limit.shape[0] > 0:
        account = facts.users.account[group]
        while account >= 0:
            cell = offsets.user_used + account * SHARED_RESOURCES
            add(columns, cell + CPU, cpu)
            add(columns, cell + MEMORY, memory)
            add(columns, cell + GPU, gpu)
            account = facts.users.above[account]


@kernel
def set_status(facts: Facts, columns: Columns, offsets: Offsets, pod: int, status: int) -> None:
    """Set the status of a pod, and update the counts of its leaf and group."""
    before = columns.status[pod]
    # A status that is set again must not end what is memoized for the group.
    if before == status:
        return
    add(columns, offsets.status + pod, status - before)
    group = facts.pods.group[pod]
    if group < 0:
        return
    note_change(columns, group)
    add(columns, offsets.counted + group, (COUNTED >> status & 1) - (COUNTED >> before & 1))
    leaf = facts.pods.leaf[pod]
    if leaf >= 0:
        add(columns, offsets.active + leaf, (ACTIVE_ALLOCATED >> status & 1) - (ACTIVE_ALLOCATED >> before & 1))
        add(columns, offsets.occupying + leaf, (ACTIVE_USED >> status & 1) - (ACTIVE_USED >> before & 1))
        add(columns, offsets.pending + leaf, int(status == PENDING) - int(before == PENDING))
        add(columns, offsets.pipelined + leaf, int(status == PIPELINED) - int(before == PIPELINED))


@inner
def _move(columns: Columns, offsets: Offsets, pod: int, node: int, placement: int) -> None:
    add(columns, offsets.node + pod, node - columns.node[pod])
    add(columns, offsets.placement + pod, placement - columns.placement[pod])


@inner
def _log(columns: Columns, offsets: Offsets, kind: int, pod: int) -> None:
    at = columns.counters[0]
    if at >= columns.operations.shape[0]:
        raise OverflowError("operation log full")
    # The log itself is not undone, only its length, which is a column: entries beyond the length are garbage.
    columns.operations[at, 0] = kind
    columns.operations[at, 1] = pod
    add(columns, offsets.counters, 1)


@kernel
def allocate(facts: Facts, columns: Columns, offsets: Offsets, pod: int, node: int, placement: int) -> None:
    """Give a pending pod idle resources of ``node``."""
    book(facts, columns, offsets, pod, node, ALLOCATED, placement, 1)
    _move(columns, offsets, pod, node, placement)
    set_status(facts, columns, offsets, pod, ALLOCATED)
    charge(facts, columns, offsets, pod, node, 1)
    _log(columns, offsets, OP_ALLOCATE, pod)


@kernel
def unallocate(facts: Facts, columns: Columns, offsets: Offsets, pod: int) -> None:
    """Take an allocated pod off its node; afterwards it is pending and has no trace of the place."""
    node = columns.node[pod]
    charge(facts, columns, offsets, pod, node, -1)
    book(facts, columns, offsets, pod, node, ALLOCATED, columns.placement[pod], -1)
    set_status(facts, columns, offsets, pod, PENDING)
    _move(columns, offsets, pod, -1, 0)


@inner
def _forget(columns: Columns, offsets: Offsets, placement: int) -> None:
    """Drop the slots of a lost nomination, so that they no longer count as devices that pods share."""
    for device in range(columns.placement_slots.shape[1]):
        slot = columns.placement_slots[placement, device]
        if slot >= 0:
            add(columns, offsets.slot_known + slot, -1)


@kernel
def evict(facts: Facts, columns: Columns, offsets: Offsets, pod: int) -> None:
    """Release the resources of a pod that has a place."""
    node = columns.node[pod]
    status = columns.status[pod]
    placement = columns.placement[pod]
    add(columns, offsets.evicted_status + pod, status + 1 - columns.evicted_status[pod])
    add(columns, offsets.evicted_node + pod, node - columns.evicted_node[pod])
    add(columns, offsets.evicted_placement + pod, placement - columns.evicted_placement[pod])
    if node >= 0:
        # Two bookings and not one of the difference: slots of shared devices depend on the status under which a pod is
        # booked.
        book(facts, columns, offsets, pod, node, status, placement, -1)
        book(facts, columns, offsets, pod, node, RELEASING, placement, 1)
        if status == PIPELINED:
            _forget(columns, offsets, placement)
    # Queues count it as gone at once, though it holds its node until it ends: else more victims would be searched for.
    charge(facts, columns, offsets, pod, node, -1)
    set_status(facts, columns, offsets, pod, RELEASING)
    add(columns, offsets.virtual + pod, 1 - columns.virtual[pod])
    _log(columns, offsets, OP_EVICT, pod)


@kernel
def unevict(facts: Facts, columns: Columns, offsets: Offsets, pod: int) -> None:
    """Take back the eviction of a pod by the open statement, wherever in the statement it happened."""
    status = columns.evicted_status[pod] - 1
    node = columns.evicted_node[pod]
    placement = columns.evicted_placement[pod]
    if node >= 0:
        book(facts, columns, offsets, pod, node, RELEASING, placement, -1)
        book(facts, columns, offsets, pod, node, status, placement, 1)
    _move(columns, offsets, pod, node, placement)
    set_status(facts, columns, offsets, pod, status)
    add(columns, offsets.virtual + pod, -columns.virtual[pod])
    add(columns, offsets.evicted_status + pod, -columns.evicted_status[pod])
    charge(facts, columns, offsets, pod, node, 1)


@inner
def _same_slots(columns: Columns, left: int, right: int) -> bool:
    for device in range(columns.placement_slots.shape[1]):
        if columns.placement_slots[left, device] != columns.placement_slots[right, device]:
            return False
    return True


@kernel
def pipeline(facts: Facts, columns: Columns, offsets: Offsets, pod: int, node: int, placement: int, keep: bool) -> None:
    """Promise a pod the resources of ``node``, idle or being released.

    ``keep``: a victim put back where it was evicted from keeps its place, unless its devices changed. Then both
    bookings stay, as they do when a victim moves to another node: its releasing copy is still there.
    """
    # A pod that an earlier statement moved still has a copy on its old node. If it is put there, it does not return to
    # the place that this statement took from it, and another pod may have that place by now.
    returns = columns.evicted_status[pod] > 0 and columns.evicted_node[pod] == node
    # Equal nodes are not enough: other devices of the same node mean that the containers have to start again.
    if keep and returns and (placement == 0 or _same_slots(columns, placement, columns.evicted_placement[pod])):
        unevict(facts, columns, offsets, pod)
        return
    # The victim moves: it leaves a copy behind that still releases its old node.
    if columns.status[pod] == RELEASING:
        for copy in range(columns.left.shape[1]):
            if columns.left[pod, copy] == 0:
                add(columns, offsets.left + pod * columns.left.shape[1] + copy, columns.node[pod] + 1)
                break
    book(facts, columns, offsets, pod, node, PIPELINED, placement, 1)
    _move(columns, offsets, pod, node, placement)
    set_status(facts, columns, offsets, pod, PIPELINED)
    add(columns, offsets.virtual + pod, 1 - columns.virtual[pod])
    charge(facts, columns, offsets, pod, node, 1)
    _log(columns, offsets, OP_PIPELINE, pod)


@kernel
def settle(facts: Facts, columns: Columns, offsets: Offsets) -> None:
    """Treat the allocations of the open statement as binding from now on."""
    for at in range(columns.counters[0]):
        pod = columns.operations[at, 1]
        if columns.operations[at, 0] == OP_ALLOCATE and columns.status[pod] == ALLOCATED:
            set_status(facts, columns, offsets, pod, BINDING)


@kernel
def seal(columns: Columns, offsets: Offsets) -> None:
    """Make all changes so far final; evictions no longer belong to the open statement."""
    for at in range(columns.counters[0]):
        pod = columns.operations[at, 1]
        add(columns, offsets.virtual + pod, -columns.virtual[pod])
        add(columns, offsets.evicted_status + pod, -columns.evicted_status[pod])
        add(columns, offsets.evicted_node + pod, -columns.evicted_node[pod])
        add(columns, offsets.evicted_placement + pod, -columns.evicted_placement[pod])
    make_final(columns)


@kernel
def new_placement(columns: Columns, offsets: Offsets) -> int:
    """Return a new row of the placement table with all slots empty."""
    row = columns.counters[1] + 1
    if row >= columns.placement_slots.shape[0]:
        raise OverflowError("placement table full")
    add(columns, offsets.counters + 1, 1)
    for device in range(columns.placement_slots.shape[1]):
        columns.placement_slots[row, device] = -1
    return row
