"""Does a pod fit a node? First amounts are compared, then all other objections that follow from columns.

A refusal is a small integer (``REFUSED_*``, or ``SHORT_OF + resource``); 0 means accepted. Messages are made from it
at the edge.

Source: the peer's node_info fit tests, its predicates and nodes-with-enough-resources checks, in their order.
"""

import numpy as np

from kai.facts.compiled.jit import for_each_number, inner, kernel
from kai.facts.compiled.struct import BoolTable, Float64Table, Int64s, Int64Table, Struct
from kai.facts.kernels.booking import accepted_gpu, device_memory, is_over_budget, is_shared, portion_on_node
from kai.facts.kernels.columns import (
    CPU,
    GPU,
    GPU_UNIT,
    KIND_MEMORY,
    KIND_MIG,
    KIND_NONE,
    KIND_WHOLE,
    MEMORY,
    PODS,
    SHARED_RESOURCES,
    Columns,
    Facts,
)
from kai.facts.kernels.fragments import Mix

ACCEPTED = 0
REFUSED_OVER_LIMIT = 1
REFUSED_OVER_QUOTA = 2
REFUSED_LEGACY_MIG = 3
REFUSED_SHARING_ON_DRA = 4
REFUSED_NOT_MIG = 5
REFUSED_MIG_SINGLE = 6
REFUSED_MIG_MIXED = 7
REFUSED_MEMORY_UNKNOWN = 8
REFUSED_PODS = 9
REFUSED_NOT_READY = 10
REFUSED_MASK = 11
REFUSED_OUTSIDE = 12
REFUSED_HOOK = 13
REFUSED_LEGACY_MIG_PRESENT = 14
REFUSED_OVER_MODEL = 15
REFUSED_OVER_BUDGET = 16
REFUSED_OVER_USER = 17
CODES = 18
"""The number of codes below SHORT_OF."""
SHORT_OF = 1000

MIG_SINGLE, MIG_MIXED = 1, 2


class Rules(Struct):
    """The plugins' settings for kernels: weights of the score terms and switches of the checks.

    0 switches a term off.
    """

    binpack_cpu: float
    binpack_gpu: float
    spread_cpu: float
    spread_gpu: float
    cpu_only: float
    availability: float
    sharing: float
    pack_slots: float
    spread_slots: float
    limits: bool
    fair_order: bool
    elastic_key: int
    mix: Mix


class Vectors(Struct):
    """Static answers of plugins by shape: ``ShapeFacts.mask`` and ``.score`` say which row is a shape's.

    Row 0 refuses nothing and scores 0.
    """

    masks: BoolTable  # [M, N]
    scores: Float64Table  # [V, N]


@inner
def slot_fits(facts: Facts, columns: Columns, shape: int, node: int, slot: int) -> bool:
    """Return whether a pod of ``shape`` would fit on a shared device, counting resources that are being released.

    A pod that shares nothing needs one device per requested whole GPU, and none if it requests none; the peer
    rates nodes by this test for such pods too.
    """
    if columns.slot_used[slot] == 0:
        return False
    allocated = columns.slot_allocated[slot]
    releasing = columns.slot_releasing[slot]
    # All pods on it are leaving, so it counts as a whole device that becomes free. As a shared one it would count
    # twice.
    if allocated == releasing:
        return False
    if is_shared(facts, shape):
        memory = device_memory(facts, shape, node)
    elif facts.shapes.kind[shape] == KIND_WHOLE:
        memory = facts.nodes.gpu_memory[node]
    else:
        memory = 0
    return facts.nodes.gpu_memory[node] - allocated + releasing - memory >= 0


@inner
def slot_has_idle(facts: Facts, columns: Columns, shape: int, node: int, slot: int) -> bool:
    """Return whether a shared device has room for the pod now; a device with nothing but promised pods has none."""
    free = facts.nodes.gpu_memory[node] - columns.slot_allocated[slot]
    return columns.slot_known[slot] > 0 and free - device_memory(facts, shape, node) >= 0


@kernel
@for_each_number
def shortage(facts: Facts, columns: Columns, shape: int, node: int, idle_only: bool) -> int:
    """Return 0 if the pod's request is idle (or being released) on ``node``, else SHORT_OF + the short resource.

    An overcommitted node takes no pod, whatever it requests: the peer compares vectors, and a negative free amount
    is less than a request of zero.
    """
    shared = is_shared(facts, shape)
    for resource in range(columns.idle.shape[1]):
        # For a shared pod the GPU is left to the devices below: its request does not say where a device has room.
        amount = facts.shapes.request[shape, resource]
        if shared and resource == GPU:
            continue
        free = columns.idle[node, resource]
        if not idle_only:
            # May lower the amount: what is promised beyond the released resources counts negative there.
            free += columns.releasing[node, resource]
        if amount <= 0 and free >= 0:
            continue
        # The node offers the resource through claims alone; whether a device is left is for the plugin that assigns
        # devices.
        if facts.nodes.claimable[resource] and facts.nodes.allocatable[node, resource] == 0:
            continue
        if resource == GPU and facts.shapes.credit[shape]:
            # What the pod asks for and already has there, such as a claim that it shares with a running pod.
            free += facts.nodes.credits[0 if idle_only else 1, node]
        if amount > free:
            return SHORT_OF + resource
    if shared:
        if facts.shapes.kind[shape] == KIND_MEMORY and portion_on_node(facts, shape, node) > 100:
            return SHORT_OF + GPU
        free = columns.idle[node, GPU]
        if not idle_only:
            free += columns.releasing[node, GPU]
        # Room on shared devices does not make up for more promised devices than the node has.
        missing = facts.shapes.devices[shape] - free // GPU_UNIT
        if missing > facts.shapes.devices[shape]:
            return SHORT_OF + GPU
        for slot in range(facts.nodes.slot_start[node], facts.nodes.slot_start[node + 1]):
            if missing <= 0:
                break
            if slot_fits(facts, columns, shape, node, slot):
                missing -= 1
        if missing > 0:
            return SHORT_OF + GPU
    return ACCEPTED


@inner
def gpu_on_node(facts: Facts, shape: int, node: int) -> int:
    """Return the GPUs in thousandths that a node's capacity check counts for a pod.

    Claimed devices count nothing here.
    """
    if facts.shapes.kind[shape] == KIND_MIG:
        total = 0
        for resource in range(facts.shapes.request.shape[1]):
            if resource != GPU:
                total += facts.nodes.gpu_weight[resource] * facts.shapes.request[shape, resource]
        return total
    if is_shared(facts, shape):
        # Rounded up to hundredths of a device, the unit in which shares are asked for: no limit is passed by rounding.
        per_device = facts.nodes.gpu_memory[node]
        memory = device_memory(facts, shape, node)
        return facts.shapes.devices[shape] * ((100 * memory + per_device - 1) // per_device) * (GPU_UNIT // 100)
    return facts.shapes.request[shape, GPU] - facts.shapes.claimed[shape] * GPU_UNIT


@inner
def lasting(facts: Facts, group: int, queue: int, resource: int) -> float:
    """Return the least quota of ``queue`` until ``group`` has ended: it must fit if it cannot be preempted.

    Cost: a step for each fall of the quota before that end, none where quotas do not follow the clock.
    """
    quota = float(facts.queues.quota[queue, resource])
    for at in range(facts.queues.fall_start[queue], facts.queues.fall_start[queue + 1]):
        # Falls are sorted by time, each lower than the one before, so the last one before the end is the least.
        if facts.queues.falls[at] >= facts.groups.ahead[group]:
            break
        quota = float(facts.queues.fallen[at, resource])
    return quota


@kernel
def lasting_quotas(facts: Facts, groups: Int64s, queues: Int64s) -> Float64Table:
    """Return the same for pairs of groups and queues; unlimited where a queue is -1.

    Shapes: groups [n], queues [n] → [n, 3].
    """
    found = np.full((groups.shape[0], SHARED_RESOURCES), -1.0)
    for at in range(groups.shape[0]):
        if queues[at] >= 0:
            for resource in range(SHARED_RESOURCES):
                found[at, resource] = lasting(facts, groups[at], queues[at], resource)
    return found


@inner
def is_over_user(facts: Facts, columns: Columns, group: int, cpu: float, memory: float, gpu: float) -> bool:
    """Return whether the user of ``group`` would hold more than some queue lets it hold, with the amounts."""
    # Accounts below the first that may bind let everything pass.
    account = facts.users.binding[group]
    while account >= 0:
        for resource in range(3):
            amount = cpu if resource == CPU else (memory if resource == MEMORY else gpu)
            limit = facts.users.limit[account, resource]
            if amount > 0 and limit >= 0 and limit < columns.user_used[account, resource] + amount:
                return True
        account = facts.users.above[account]
    return False


@kernel
@for_each_number
def over_capacity(
    facts: Facts, columns: Columns, group: int, cpu: float, memory: float, gpu: float, fixed_only: bool
) -> int:
    """Return 0 if the queue of ``group`` and all above it may take the amounts, else the refusal code.

    Limits, those of users and budgets apply to every pod, quota only to non-preemptible ones: the least that holds
    until they have ended. ``fixed_only`` checks quota alone. Resources that are not requested are skipped.
    """
    queue = facts.groups.queue[group]
    if not fixed_only:
        while queue >= 0:
            for resource in range(3):
                amount = cpu if resource == CPU else (memory if resource == MEMORY else gpu)
                limit = facts.queues.limit[queue, resource]
                if amount > 0 and limit >= 0 and limit < columns.queue_used[queue, resource] + amount:
                    return REFUSED_OVER_LIMIT
            queue = facts.queues.parent[queue]
        # After the queue's own limits: a user has no part in a queue that is full for all.
        if facts.users.limit.shape[0] > 0 and is_over_user(facts, columns, group, cpu, memory, gpu):
            return REFUSED_OVER_USER
    if not facts.groups.preemptible[group]:
        queue = facts.groups.queue[group]
        while queue >= 0:
            for resource in range(3):
                amount = cpu if resource == CPU else (memory if resource == MEMORY else gpu)
                quota = lasting(facts, group, queue, resource)
                if amount > 0 and quota >= 0 and quota < columns.queue_fixed[queue, resource] + amount:
                    return REFUSED_OVER_QUOTA
            queue = facts.queues.parent[queue]
    # The number of budgets first, since few clusters have any and the test of one walks the queues again.
    asks = gpu > 0 and not fixed_only and facts.budgets.left.shape[0] > 0
    if asks and is_over_budget(facts, columns, group, int(gpu)):
        return REFUSED_OVER_BUDGET
    return ACCEPTED


@kernel
def over_model(facts: Facts, columns: Columns, shape: int, group: int, node: int) -> bool:
    """Return whether a pod of ``shape`` on ``node`` would exceed what a queue above ``group`` may use of its model.

    The amount is the one that will be booked, so use by model never exceeds a limit.
    """
    model = facts.nodes.model[node]
    if model < 0:
        return False
    gpu = accepted_gpu(facts, shape, node)
    if gpu <= 0:
        return False
    queue = facts.groups.queue[group]
    while queue >= 0:
        if 0 <= facts.queues.model_limit[queue, model] < columns.queue_models[queue, model] + gpu:
            return True
        queue = facts.queues.parent[queue]
    return False


@inner
def is_owed(facts: Facts, models: Int64Table, queue: int, model: int, gpus: float) -> bool:
    """Return whether ``queue``, which uses ``models`` [Q, M], is owed thousandths of ``gpus`` more of ``model``.

    False for no model (-1).
    """
    return model >= 0 and models[queue, model] + gpus <= facts.queues.deserved[queue, model]


@inner
def is_beyond_owed(facts: Facts, queue: int, model: int, held: int) -> bool:
    """Return whether ``held`` thousandths of GPUs of ``model`` are more than ``queue`` is owed."""
    return held > facts.queues.deserved[queue, model]


@inner
def _mig_objection(facts: Facts, shape: int, node: int) -> int:
    kind = facts.shapes.kind[shape]
    if facts.shapes.legacy_mig[shape]:
        return REFUSED_LEGACY_MIG
    if kind == KIND_NONE and facts.shapes.claimed[shape] == 0:
        return ACCEPTED
    if facts.nodes.dra_gpus[node] and is_shared(facts, shape):
        return REFUSED_SHARING_ON_DRA
    if not facts.nodes.mig_enabled[node]:
        return REFUSED_NOT_MIG if kind == KIND_MIG else ACCEPTED
    if kind == KIND_MIG and facts.nodes.legacy_mig[node]:
        return REFUSED_LEGACY_MIG_PRESENT
    # A pod with nothing but claimed devices counts as one that requests whole devices.
    if facts.nodes.mig_strategy[node] == MIG_SINGLE and kind != KIND_WHOLE and kind != KIND_NONE:
        return REFUSED_MIG_SINGLE
    if facts.nodes.mig_strategy[node] == MIG_MIXED and kind != KIND_MIG:
        return REFUSED_MIG_MIXED
    return ACCEPTED


@inner
def objection(facts: Facts, columns: Columns, rules: Rules, vectors: Vectors, shape: int, group: int, node: int) -> int:
    """Return 0 if ``node`` takes a pod of ``shape`` whose amounts fit, else the first objection."""
    if rules.limits and group >= 0:
        refused = over_capacity(
            facts,
            columns,
            group,
            float(facts.shapes.request[shape, CPU]),
            float(facts.shapes.request[shape, MEMORY]),
            float(gpu_on_node(facts, shape, node)),
            False,
        )
        if refused:
            return refused
    # The order of objections is the peer's: a node with several faults is counted under the first of them in messages.
    refused = _mig_objection(facts, shape, node)
    if refused:
        return refused
    if facts.shapes.kind[shape] == KIND_MEMORY and not facts.nodes.gpu_memory_known[node]:
        return REFUSED_MEMORY_UNKNOWN
    # A sharing pod that opens a device brings a reservation pod with it. Its devices are not chosen yet, so the
    # check requires two pod slots.
    places = columns.idle[node, PODS] + columns.releasing[node, PODS]
    if places < (2 if is_shared(facts, shape) else 1):
        return REFUSED_PODS
    if not facts.nodes.ready[node]:
        return REFUSED_NOT_READY
    if not vectors.masks[facts.shapes.mask[shape], node]:
        return REFUSED_MASK
    # It comes last, so that only nodes that would take the pod are said to be of a model that is used up.
    if rules.limits and group >= 0 and over_model(facts, columns, shape, group, node):
        return REFUSED_OVER_MODEL
    return ACCEPTED


@kernel
def refusal(facts: Facts, columns: Columns, rules: Rules, vectors: Vectors, shape: int, group: int, node: int) -> int:
    """Return 0 if a pod of ``shape`` may go to ``node``, now or after pending releases, else the refusal code."""
    short = shortage(facts, columns, shape, node, False)
    if short:
        return short
    return objection(facts, columns, rules, vectors, shape, group, node)
