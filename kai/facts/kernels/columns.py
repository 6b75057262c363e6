"""What kernels see of a session: tables of facts, columns that change, and the one write.

``Facts`` are tables that placing a pod does not change; what plugins answer about a shape (``mask``, ``score``,
``credit``) is filled in when it is first asked for. ``Columns`` are views into one flat arena of int64, ``Offsets``
says where each column begins in it. The only way to change a column is ``add``: it records (offset, delta) in a
journal, so that undoing is subtraction and exact.

Shapes in this package: N nodes, R resources, S slots, K shapes, P pods, G groups, B sub-groups, Q queues, M models of
GPUs that queues name (mostly none), A accounts of users in queues that limit them (mostly none).
"""

import numpy as np

from kai.facts.compiled.jit import inner, kernel
from kai.facts.compiled.struct import Bools, Float64s, Float64Table, Int64s, Int64Table, Struct

# Statuses and sets of them, as in kai.facts.model.pod (the architecture tests compare the two).
PENDING, GATED, ALLOCATED, PIPELINED, BINDING, BOUND, RUNNING, RELEASING, STUCK = 0, 1, 2, 3, 4, 5, 6, 7, 8
ACTIVE_ALLOCATED = 1 << ALLOCATED | 1 << PIPELINED | 1 << BINDING | 1 << BOUND | 1 << RUNNING
ACTIVE_USED = ACTIVE_ALLOCATED | 1 << RELEASING | 1 << STUCK
COUNTED = 1 << ALLOCATED | 1 << BINDING | 1 << BOUND | 1 << RUNNING

CPU, MEMORY, GPU, PODS = 0, 1, 2, 3
SHARED_RESOURCES = 3
GPU_UNIT = 1000
KIND_NONE, KIND_WHOLE, KIND_FRACTION, KIND_MEMORY, KIND_MIG = 0, 1, 2, 3, 4

OP_ALLOCATE, OP_PIPELINE, OP_EVICT = 0, 1, 2


class NodeFacts(Struct):
    """Columns of nodes; rows are in name order, which is the last tie-break everywhere."""

    allocatable: Int64Table  # [N, R]
    gpu_memory: Int64s  # [N] MiB per device
    gpu_memory_known: Bools  # [N]
    gpu_count: Int64s  # [N] devices
    mig_enabled: Bools  # [N]
    mig_strategy: Int64s  # [N]
    cpu_only: Bools  # [N]
    dra_gpus: Bools  # [N]
    ready: Bools  # [N]
    legacy_mig: Bools  # [N] a legacy MIG pod sits there
    slot_start: Int64s  # [N + 1] slots of node n: slot_start[n] .. slot_start[n + 1]
    slot_named: Bools  # [S] the slot is a shared device that existed when the session opened
    model: Int64s  # [N] the model of its GPUs among those that queues name, -1: another
    gpu_weight: Int64s  # [R] thousandths of a GPU in quota per axis unit
    mig_resource: Int64s  # [R] 1 for MIG profiles
    claimable: Bools  # [R] where a node has none of it, devices allocated to claims serve it instead
    credits: Int64Table  # [2, N] thousandths of a GPU that the pod at hand needs less: of idle, of all free ones
    books_as_peer: bool  # devices in sharing are booked as by the peer, which counts promised ones twice (slot_booking)


class ShapeFacts(Struct):
    """Columns of pod shapes."""

    request: Int64Table  # [K, R]
    kind: Int64s  # [K] KIND_*
    devices: Int64s  # [K] devices a sharing pod asks for
    portion: Float64s  # [K] of one device
    memory: Int64s  # [K] MiB of one device
    claimed: Int64s  # [K] devices asked for through claims
    not_had: Int64s  # [K] thousandths of them that count nothing in quota, as claims have parts of GPUs
    legacy_mig: Bools  # [K]
    mask: Int64s  # [K] row of Vectors.masks
    score: Int64s  # [K] row of Vectors.scores
    credit: Bools  # [K] pods of it may need less; NodeFacts.credits is filled before one is placed


class PodFacts(Struct):
    """Columns of pods that never change in a session."""

    shape: Int64s  # [P]
    group: Int64s  # [P] -1: belongs to no known group
    leaf: Int64s  # [P] sub-group row, -1: none
    reservation: Bools  # [P]


class GroupFacts(Struct):
    """Columns of pod groups and of their sub-groups."""

    queue: Int64s  # [G] -1: unknown
    preemptible: Bools  # [G]
    simple: Bools  # [G] the tree is a root with one leaf and no topology
    first_subgroup: Int64s  # [G + 1]
    minimum: Int64s  # [B] leaf: pods; inner: children, already resolved
    leaf: Bools  # [B]
    parent: Int64s  # [B] -1 for roots
    pod_start: Int64s  # [B + 1] pods of leaf b: pods[pod_start[b] : pod_start[b + 1]] in pod order
    pods: Int64s  # [...]
    bound: Int64s  # [G] the GPU model that all pods of a group with GPUs are bound to, -1: none; see `deserved`
    ahead: Int64s  # [G] falls of quotas, of all queues and in order, that come before a group has ended
    each_leaf: bool  # who comes first goes by the minimum of each leaf, as with the peer, and not by the tree's need


class QueueFacts(Struct):
    """Columns of queues, in axis units."""

    parent: Int64s  # [Q] -1 for top queues
    quota: Float64Table  # [Q, 3] -1: unlimited
    fall_start: Int64s  # [Q + 1] falls of the quota of q: falls[fall_start[q] : fall_start[q + 1]], in order
    falls: Int64s  # [F] the number of the instant, among those of all queues
    fallen: Float64Table  # [F, 3] the least quota so far, from then on
    limit: Float64Table  # [Q, 3] -1: unlimited
    model_limit: Float64Table  # [Q, M] thousandths of GPUs of each model that a queue names, -1: unlimited
    model_quota: Float64Table  # [Q, M] the same, 0: none
    deserved: Int64Table  # [Q, M or 0] what queues are owed of each model; without columns if there are no quotas
    fair_share: Float64Table  # [Q, 3]
    allocatable: Float64Table  # [Q, 3] what the queue may hold before it counts as greedy; -1: unlimited
    priority: Int64s  # [Q]
    rank: Int64s  # [Q] a queue within its quota takes from one of a lower rank what that has within its own
    past_use: Float64s  # [Q] of queues with equal shares, the one with less goes first
    created: Float64s  # [Q]
    leaf: Bools  # [Q]
    total: Float64s  # [3]


class BudgetFacts(Struct):
    """Columns of the budgets that may refuse work, by queue, for B budgets and M GPU models."""

    first: Int64s  # [Q + 1] the budgets of queue q: first[q] .. first[q + 1]
    left: Int64s  # [B] what was not used, in GPU-microseconds
    stops: Bools  # [B] asks only whether something is left
    weights: Int64Table  # [B, M + 1] what a GPU of each model counts, in thousandths; the last is the most
    node_model: Int64s  # [N]
    group_model: Int64s  # [G] M where pods may go to nodes of several models
    duration: Int64s  # [G] milliseconds that pods of a group are charged for; -1: no end, and none may be set


class UserFacts(Struct):
    """Columns of the accounts of users, one for each user of a queue that limits what a user holds.

    An account counts what groups of its user hold in its queue and in the queues below.
    """

    account: Int64s  # [G] that of the group in the nearest such queue, -1: none; empty where no queue limits users
    above: Int64s  # [A] the account of the same user in the next such queue above, -1: none
    queue: Int64s  # [A]
    user: Int64s  # [A] the number of the user, see kai.facts.state.budgets
    limit: Float64Table  # [A, 3] in axis units, -1: unlimited
    binding: Int64s  # [G] the nearest account whose limit all pods of its groups together exceed, -1: none


class Facts(Struct):
    """Everything a kernel may read that does not change during a session."""

    nodes: NodeFacts
    shapes: ShapeFacts
    pods: PodFacts
    groups: GroupFacts
    queues: QueueFacts
    budgets: BudgetFacts
    users: UserFacts


class Columns(Struct):
    """Everything that changes. All down to ``counters`` are views into ``arena``; what follows are logs."""

    arena: Int64s
    idle: Int64Table  # [N, R]
    releasing: Int64Table  # [N, R]
    used: Int64Table  # [N, R]
    slot_used: Int64s  # [S] MiB
    slot_releasing: Int64s  # [S] MiB
    slot_allocated: Int64s  # [S] MiB
    slot_marked: Int64s  # [S] 1: counted as a whole releasing device
    slot_known: Int64s  # [S] how often a pod that is not pipelined was put on it
    queue_used: Int64Table  # [Q, 3] summed up the tree
    queue_fixed: Int64Table  # [Q, 3] the part of it that is not preemptible
    queue_models: Int64Table  # [Q, M] the part of the GPUs in queue_used that is of each model, summed up the tree
    user_used: Int64Table  # [A, 3] what the groups of each account use
    budget_used: Int64s  # [B] what pods that hold GPUs may still cost, in GPU-microseconds
    status: Int64s  # [P]
    node: Int64s  # [P]
    placement: Int64s  # [P] row of placement_slots; 0: no slots
    virtual: Int64s  # [P] 1: changed by the open statement
    evicted_status: Int64s  # [P] 1 + status before the open statement evicted the pod, 0: it did not
    evicted_node: Int64s  # [P]
    evicted_placement: Int64s  # [P]
    left: Int64Table  # [P, 3] 1 + nodes where a releasing copy of the pod stayed behind
    active: Int64s  # [B] active-allocated pods of a leaf
    occupying: Int64s  # [B] active-used pods of a leaf
    pending: Int64s  # [B] pending pods of a leaf
    pipelined: Int64s  # [B] pipelined pods of a leaf
    counted: Int64s  # [G] pods that count as used by the queue
    counters: Int64s  # [2] operations logged, placements made
    journal: Int64Table  # [J, 2]
    cursor: Int64s  # [2] entries in the journal, and how many of these are final
    operations: Int64Table  # [O, 2] (kind, pod) since the last commit
    placement_slots: Int64Table  # [L, D] slots of a placement, -1 fills up
    epoch: Int64s  # [G] grows whenever a pod of the group changes its status; not undone
    touched: Int64s  # [T] ring of the nodes whose numbers changed last, by undoing too
    touches: Int64s  # [1] how many were ever written to the ring
    changed: Int64s  # [T] ring of the groups whose pods changed status last, by undoing too
    changes: Int64s  # [1] how many were ever written to that ring


class Offsets(Struct):
    """Offset of each column in the arena."""

    idle: int
    releasing: int
    used: int
    slot_used: int
    slot_releasing: int
    slot_allocated: int
    slot_marked: int
    slot_known: int
    queue_used: int
    queue_fixed: int
    queue_models: int
    user_used: int
    budget_used: int
    status: int
    node: int
    placement: int
    virtual: int
    evicted_status: int
    evicted_node: int
    evicted_placement: int
    left: int
    active: int
    occupying: int
    pending: int
    pipelined: int
    counted: int
    counters: int


@kernel
def add(columns: Columns, offset: int, delta: int) -> None:
    """Add ``delta`` to one cell of the arena and append it to the journal. All writes go through here.

    Raises: OverflowError when the journal is full; the ledger makes room before it calls a kernel, so this is a bug.
    """
    if delta == 0:
        return
    at = columns.cursor[0]
    if at >= columns.journal.shape[0]:
        raise OverflowError("journal full")
    columns.arena[offset] += delta
    columns.journal[at, 0] = offset
    columns.journal[at, 1] = delta
    columns.cursor[0] = at + 1


@kernel
def add_each(columns: Columns, changes: Int64Table) -> None:
    """Add to cells of the arena what ``changes`` [n, 2] say, cell and amount, in their order.

    Raises: OverflowError as ``add`` does.
    """
    for at in range(changes.shape[0]):
        add(columns, changes[at, 0], changes[at, 1])


@kernel
def touch(columns: Columns, node: int) -> None:
    """Record that the numbers of ``node`` changed, so that values derived from them are stale."""
    at = columns.touches[0]
    columns.touched[at % columns.touched.shape[0]] = node
    columns.touches[0] = at + 1


@inner
def note_change(columns: Columns, group: int) -> None:
    """Record that a pod of ``group`` changed its status."""
    columns.epoch[group] += 1
    at = columns.changes[0]
    columns.changed[at % columns.changed.shape[0]] = group
    columns.changes[0] = at + 1


@inner
def _node_of(facts: Facts, columns: Columns, offsets: Offsets, offset: int) -> int:
    """Return the node that a cell of the arena belongs to, -1 for cells of queues, pods and groups."""
    if offset >= offsets.queue_used:
        return -1
    if offset < offsets.slot_used:
        return offset // columns.idle.shape[1] % columns.idle.shape[0]
    slot = (offset - offsets.slot_used) % columns.slot_used.shape[0]
    return np.searchsorted(facts.nodes.slot_start, slot, side="right") - 1


@kernel
def undo_to(facts: Facts, columns: Columns, offsets: Offsets, mark: int) -> None:
    """Undo every write after ``mark``, newest first.

    Holds: the arena is byte for byte what it was when the journal had ``mark`` entries. Groups whose pods changed
        status get a new epoch, because values memoized in between no longer hold.
    """
    last_status = offsets.status + facts.pods.group.shape[0]
    last = -1
    for at in range(columns.cursor[0] - 1, mark - 1, -1):
        offset = columns.journal[at, 0]
        columns.arena[offset] -= columns.journal[at, 1]
        node = _node_of(facts, columns, offsets, offset)
        # Entries of one booking follow each other: comparing with the last node spares the ring most repetitions.
        if node >= 0 and node != last:
            touch(columns, node)
            last = node
        if offsets.status <= offset < last_status:
            group = facts.pods.group[offset - offsets.status]
            if group >= 0:
                note_change(columns, group)
    columns.cursor[0] = mark


@kernel
def make_final(columns: Columns) -> None:
    """Make all writes so far final: they are not undone while the session lasts."""
    # Written without the journal: what is final is never undone, and the operations of a statement end with it.
    columns.counters[0] = 0
    columns.cursor[1] = columns.cursor[0]


@kernel
def take_back(arena: Int64s, journal: Int64Table, entries: int) -> None:
    """Undo the first ``entries`` of a journal, final or not, after the session has ended."""
    for at in range(entries - 1, -1, -1):
        arena[journal[at, 0]] -= journal[at, 1]
