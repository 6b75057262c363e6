"""The opening accounts of a session: all pods with a node in the snapshot are booked in one pass.

The amounts are sums, so order makes no difference, and loops run over plain columns held in variables: compiled code
would load a column of a struct again after every write. Only shared devices depend on which pod came first.
"""

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Int64s
from kai.facts.kernels.booking import accepted_gpu, device_memory, is_shared
from kai.facts.kernels.columns import (
    ACTIVE_ALLOCATED,
    ACTIVE_USED,
    COUNTED,
    CPU,
    GPU,
    MEMORY,
    PENDING,
    PIPELINED,
    RELEASING,
    SHARED_RESOURCES,
    Columns,
    Facts,
    Offsets,
)
from kai.facts.kernels.slot_booking import book_slot


@inner
def _book_nodes(facts: Facts, columns: Columns, first: int, last: int, sign: int) -> None:
    """Add (``sign`` 1) or subtract (-1) what pods of some rows take of nodes, except shared devices."""
    shapes, reservation = facts.pods.shape, facts.pods.reservation
    request, allocatable = facts.shapes.request, facts.nodes.allocatable
    statuses, nodes = columns.status, columns.node
    idle, releasing, used = columns.idle, columns.releasing, columns.used
    width = used.shape[1]
    for pod in range(first, last):
        status, node = statuses[pod], nodes[pod]
        if node < 0 or not (ACTIVE_USED >> status) & 1:
            continue
        shape = shapes[pod]
        for resource in range(width):
            amount = request[shape, resource] * sign
            if amount == 0 or allocatable[node, resource] == 0:
                continue
            if resource == GPU and (reservation[pod] or is_shared(facts, shape)):
                continue
            used[node, resource] += amount
            if status == PIPELINED:
                releasing[node, resource] -= amount
            else:
                idle[node, resource] -= amount
                if status == RELEASING:
                    releasing[node, resource] += amount


@inner
def _share(facts: Facts, columns: Columns, offsets: Offsets, pod: int) -> None:
    """Book the devices that a pod shares."""
    status, node, shape = columns.status[pod], columns.node[pod], facts.pods.shape[pod]
    if node < 0 or not (ACTIVE_USED >> status) & 1 or not is_shared(facts, shape):
        return
    memory = device_memory(facts, shape, node)
    for device in range(columns.placement_slots.shape[1]):
        slot = columns.placement_slots[columns.placement[pod], device]
        if slot >= 0:
            book_slot(facts, columns, offsets, node, slot, status, memory)
    # Booking a slot writes to the journal. The opening is no change, so nothing of it may be undone.
    columns.cursor[0] = 0


@inner
def _count_members(facts: Facts, columns: Columns, first: int, last: int, sign: int) -> None:
    """Add (``sign`` 1) or subtract (-1) pods of rows ``first`` to ``last`` in the counts of their leaves and groups."""
    leaves, groups, statuses = facts.pods.leaf, facts.pods.group, columns.status
    active, occupying, pending, pipelined = columns.active, columns.occupying, columns.pending, columns.pipelined
    counted = columns.counted
    for pod in range(first, last):
        status, group, leaf = statuses[pod], groups[pod], leaves[pod]
        if group < 0:
            continue
        if (COUNTED >> status) & 1:
            counted[group] += sign
        if leaf < 0:
            continue
        # Skip the columns that do not change: most pods run, and each column is memory of its own.
        if (ACTIVE_ALLOCATED >> status) & 1:
            active[leaf] += sign
        if (ACTIVE_USED >> status) & 1:
            occupying[leaf] += sign
        if status == PENDING:
            pending[leaf] += sign
        if status == PIPELINED:
            pipelined[leaf] += sign


@inner
def _charge_owners(facts: Facts, columns: Columns, first: int, last: int, sign: int) -> None:
    """Charge (``sign`` 1) or credit (-1) pods of some rows to the queues of their groups, without the queues above.

    Accounts of users are charged with those above.
    """
    shapes, groups, statuses, nodes = facts.pods.shape, facts.pods.group, columns.status, columns.node
    queues, preemptible = facts.groups.queue, facts.groups.preemptible
    request, total, fixed = facts.shapes.request, columns.queue_used, columns.queue_fixed
    models, model_of, counts_models = columns.queue_models, facts.nodes.model, columns.queue_models.shape[1] > 0
    users, account_of, above = columns.user_used, facts.users.account, facts.users.above
    counts_users = users.shape[0] > 0
    known, gpu = -1, 0
    for pod in range(first, last):
        group = groups[pod]
        if group < 0 or not (COUNTED >> statuses[pod]) & 1 or queues[group] < 0:
            continue
        queue, shape = queues[group], shapes[pod]
        if shape != known:
            gpu = accepted_gpu(facts, shape, nodes[pod]) * sign
            known = -1 if is_shared(facts, shape) else shape  # for pods that share, it depends on the node
        cpu, memory = request[shape, CPU] * sign, request[shape, MEMORY] * sign
        total[queue, CPU] += cpu
        total[queue, MEMORY] += memory
        total[queue, GPU] += gpu
        if not preemptible[group]:
            fixed[queue, CPU] += cpu
            fixed[queue, MEMORY] += memory
            fixed[queue, GPU] += gpu
        if counts_models and nodes[pod] >= 0 and model_of[nodes[pod]] >= 0:
            models[queue, model_of[nodes[pod]]] += gpu
        # Up to the top at once: a user has few accounts above each other, and most groups have none.
        account = account_of[group] if counts_users else -1
        while account >= 0:
            users[account, CPU] += cpu
            users[account, MEMORY] += memory
            users[account, GPU] += gpu
            account = above[account]


@inner
def _charge_above(facts: Facts, columns: Columns) -> None:
    """Add the charges of each queue to the queues above it."""
    own_used, own_fixed = columns.queue_used.copy(), columns.queue_fixed.copy()
    own_models = columns.queue_models.copy()
    for queue in range(own_used.shape[0]):
        above = facts.queues.parent[queue]
        while above >= 0:
            for resource in range(SHARED_RESOURCES):
                columns.queue_used[above, resource] += own_used[queue, resource]
                columns.queue_fixed[above, resource] += own_fixed[queue, resource]
            for model in range(own_models.shape[1]):
                columns.queue_models[above, model] += own_models[queue, model]
            above = facts.queues.parent[above]


@kernel
def open_accounts(facts: Facts, columns: Columns, offsets: Offsets) -> None:
    """Book every pod that has a node when the snapshot is made.

    Shared devices are booked in row order, reservation pods first, because they hold devices for others. Sums are
    written directly without the journal, because facts are never undone.

    Cost: O(P R + Q).
    """
    count = facts.pods.shape.shape[0]
    sharing = False
    for shape in range(facts.shapes.kind.shape[0]):
        sharing = sharing or is_shared(facts, shape)
    if not sharing:
        _book_nodes(facts, columns, 0, count, 1)
    else:
        for first in (True, False):
            for pod in range(count):
                if facts.pods.reservation[pod] == first:
                    _book_nodes(facts, columns, pod, pod + 1, 1)
                    _share(facts, columns, offsets, pod)
    _count_members(facts, columns, 0, count, 1)
    _charge_owners(facts, columns, 0, count, 1)
    _charge_above(facts, columns)


@inner
def _account(facts: Facts, columns: Columns, pod: int, sign: int) -> None:
    """Add (``sign`` 1) or subtract (-1) a pod's booking and counts, except queues above and shared devices."""
    _book_nodes(facts, columns, pod, pod + 1, sign)
    _count_members(facts, columns, pod, pod + 1, sign)
    _charge_owners(facts, columns, pod, pod + 1, sign)


@kernel
def reopen_accounts(before: Facts, facts: Facts, columns: Columns, pods: Int64s, status: Int64s, node: Int64s) -> None:
    """Turn the accounts of ``before`` into the opening accounts of ``facts``.

    ``status`` [n] and ``node`` [n] are the present state of ``pods`` [n]. Holds: the result equals new accounts if the
        two differ only in these pods and no devices are shared.
    Cost: O(n R + Q).
    """
    used, fixed, models = columns.queue_used.copy(), columns.queue_fixed.copy(), columns.queue_models.copy()
    columns.queue_used[:] = 0
    columns.queue_fixed[:] = 0
    columns.queue_models[:] = 0
    for at in range(pods.shape[0]):
        pod = pods[at]
        _account(before, columns, pod, -1)
        columns.status[pod], columns.node[pod] = status[at], node[at]
        _account(facts, columns, pod, 1)
    _charge_above(facts, columns)
    # Charges are sums, so their difference can be summed up the tree alone.
    columns.queue_used[:] += used
    columns.queue_fixed[:] += fixed
    columns.queue_models[:] += models
