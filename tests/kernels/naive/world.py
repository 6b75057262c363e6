"""A session as plain objects: what the twins look at and change.

Nothing is kept that can be worked out: what a node has left is what it can give less the pods that are booked there,
what a queue uses is the sum over its pods. In the peer's books shared devices have a history, as they have in the peer.
"""

from collections.abc import Iterator
from typing import Any

import attrs

from kai.facts.kernels.columns import Columns, Facts
from kai.facts.model.axis import CPU, GPU, MEMORY
from kai.facts.model.pod import ACTIVE_ALLOCATED, ACTIVE_USED, COUNTED, Status, within


@attrs.define
class Device:
    """A shared device. ``known`` counts the pods, promised ones apart, that were ever put there."""

    row: int
    named: bool
    used: int = 0
    releasing: int = 0
    allocated: int = 0
    marked: bool = False
    known: int = 0


@attrs.define
class Booking:
    """A pod on a node, with the status under which it is booked there."""

    pod: "Pod"
    status: int


@attrs.define
class Node:
    """A node with everything that is booked on it."""

    row: int
    allocatable: list[int]
    gpu_memory: int
    gpu_memory_known: bool
    gpu_count: int
    mig_enabled: bool
    mig_strategy: int
    cpu_only: bool
    dra_gpus: bool
    ready: bool
    legacy_mig: bool
    model: int
    credit: tuple[int, int]
    """Thousandths of a GPU that a pod with credit needs less of what is idle, and of all that is free."""
    books_as_peer: bool
    devices: list[Device]
    bookings: list[Booking] = attrs.Factory(list)
    turned_shared: int = 0
    """Thousandths of GPUs that are not idle because their devices are in sharing."""
    shared_releasing: int = 0
    """Thousandths of GPUs that shared devices will give back; promises of whole ones count negative."""

    def wanted(self, pod: "Pod", resource: int) -> int:
        """Return what a pod takes of a resource here; devices in sharing are counted apart."""
        if self.allocatable[resource] == 0 or (resource == GPU and (pod.shape.shared or pod.reservation)):
            return 0
        return pod.shape.request[resource]

    def used(self, resource: int) -> int:
        """Return what everybody who is booked here takes together."""
        return sum(self.wanted(each.pod, resource) for each in self.bookings)

    def idle(self, resource: int) -> int:
        """Return what a pod could take now: promised pods have taken nothing yet."""
        taken = sum(self.wanted(each.pod, resource) for each in self.bookings if each.status != Status.PIPELINED)
        return self.allocatable[resource] - taken - (self.turned_shared if resource == GPU else 0)

    def releasing(self, resource: int) -> int:
        """Return what is being given back and not promised yet; negative when more is promised."""
        total = self.shared_releasing if resource == GPU else 0
        for each in self.bookings:
            if each.status == Status.RELEASING:
                total += self.wanted(each.pod, resource)
            elif each.status == Status.PIPELINED:
                total -= self.wanted(each.pod, resource)
        return total

    def free(self, resource: int, *, idle_only: bool = False) -> int:
        """Return what is idle, and what is being released unless ``idle_only``."""
        return self.idle(resource) + (0 if idle_only else self.releasing(resource))

    def device(self, row: int) -> Device:
        """Return the device in a row of the slot table."""
        return next(each for each in self.devices if each.row == row)


@attrs.frozen
class Shape:
    """What a pod asks for."""

    row: int
    request: list[int]
    kind: int
    devices: int
    portion: float
    memory: int
    claimed: int
    not_had: int
    legacy_mig: bool
    shared: bool
    credit: bool
    mask: list[bool]
    score: list[float]


@attrs.define(eq=False)
class Pod:
    """A pod and where it stands. ``evicted`` is what the open statement took from it: status, node and placement."""

    row: int
    shape: Shape
    group: "Group | None"
    leaf: "SubGroup | None"
    reservation: bool
    status: int
    node: int
    placement: int
    virtual: bool = False
    evicted: tuple[int, int, int] | None = None
    left: list[int] = attrs.Factory(list)

    def is_in(self, statuses: int) -> bool:
        """Say whether the pod has one of these statuses."""
        return within(self.status, statuses)


@attrs.define(eq=False)
class SubGroup:
    """A node of a group's tree, with its pods in pod order if it is a leaf."""

    row: int
    leaf: bool
    minimum: int
    parent: int
    pods: list[Pod] = attrs.Factory(list)

    def count(self, statuses: int) -> int:
        """Return how many pods have one of these statuses."""
        return sum(pod.is_in(statuses) for pod in self.pods)


@attrs.define(eq=False)
class Group:
    """A pod group."""

    row: int
    queue: int
    preemptible: bool
    simple: bool
    subgroups: list[SubGroup]
    bound: int = -1
    """The GPU model that all its pods with GPUs are bound to."""
    ahead: int = 0
    """The number of the first instant at which a quota falls and at which the group has ended."""
    accounts: list[int] = attrs.Factory(list)
    """The accounts of its user, in its queue and in those above."""
    pods: list[Pod] = attrs.Factory(list)

    def leaves(self) -> list[SubGroup]:
        """Return the leaves of the tree."""
        return [each for each in self.subgroups if each.leaf]


@attrs.define
class Queue:
    """A queue; -1 is unlimited in everything but ``fair_share``."""

    row: int
    parent: int
    quota: list[float]
    limit: list[float]
    model_limit: list[float]
    fair_share: list[float]
    allocatable: list[float]
    priority: int
    rank: int
    past_use: float
    created: float
    leaf: bool
    deserved: list[int]
    """What it is owed of each GPU model; empty without quotas of models."""
    falls: list[tuple[int, list[float]]] = attrs.Factory(list)
    """The least quotas to come, each with the number of the instant from which it holds."""

    def lasting(self, group: "Group") -> list[float]:
        """Return the least quota until the group has ended."""
        return [self.quota, *[lower for at, lower in self.falls if at < group.ahead]][-1]


@attrs.define(eq=False)
class World:
    """Everything."""

    nodes: list[Node]
    shapes: list[Shape]
    pods: list[Pod]
    groups: list[Group]
    queues: list[Queue]
    total: list[float]
    gpu_weight: list[int]
    claimable: list[bool]
    """Resources that are had through claims where a node itself has none."""
    placements: list[list[int]]
    """Slots of each placement; the first one is "no slots"."""
    user_limits: list[list[float]] = attrs.Factory(list)
    """What the user of each account may hold."""
    operations: list[tuple[int, int]] = attrs.Factory(list)

    def remember(self) -> Any:
        """Return everything that changes, to be recalled later."""
        pods = [(pod.status, pod.node, pod.placement, pod.virtual, pod.evicted, tuple(pod.left)) for pod in self.pods]
        nodes = [
            (
                [Booking(each.pod, each.status) for each in node.bookings],
                [attrs.evolve(device) for device in node.devices],
                node.turned_shared,
                node.shared_releasing,
            )
            for node in self.nodes
        ]
        return pods, nodes, len(self.placements), tuple(self.operations)

    def recall(self, state: Any) -> None:
        """Be what ``state`` says again."""
        pods, nodes, placements, operations = state
        for pod, (status, node, placement, virtual, evicted, left) in zip(self.pods, pods, strict=True):
            pod.status, pod.node, pod.placement = status, node, placement
            pod.virtual, pod.evicted, pod.left = virtual, evicted, list(left)
        for node, (bookings, devices, turned_shared, shared_releasing) in zip(self.nodes, nodes, strict=True):
            node.bookings = [Booking(each.pod, each.status) for each in bookings]
            node.devices = [attrs.evolve(device) for device in devices]
            node.turned_shared, node.shared_releasing = turned_shared, shared_releasing
        del self.placements[placements:]
        self.operations = list(operations)

    def seal(self) -> None:
        """Make everything so far final: evicted pods are no longer the open statement's."""
        for _, row in self.operations:
            self.pods[row].virtual = False
            self.pods[row].evicted = None
        self.operations.clear()

    def slots(self, placement: int) -> list[int]:
        """Return the slots of a placement."""
        return [slot for slot in self.placements[placement] if slot >= 0]

    def above(self, queue: int) -> Iterator[Queue]:
        """Yield a queue and the queues above it."""
        while queue >= 0:
            yield self.queues[queue]
            queue = self.queues[queue].parent

    def below(self, queue: int) -> Iterator[Pod]:
        """Yield the pods of a queue and of those beneath it that have a place."""
        for group in self.groups:
            if any(each.row == queue for each in self.above(group.queue)):
                yield from (pod for pod in group.pods if pod.is_in(ACTIVE_ALLOCATED))

    def accepted(self, pod: Pod) -> tuple[int, int, int]:
        """Return CPU, memory and GPUs that a pod counts for in quota where it is."""
        gpus = self.booked_gpus(pod.shape)
        if pod.shape.shared and pod.node >= 0:
            gpus = counted_gpus(pod.shape, self.nodes[pod.node])
        return pod.shape.request[CPU], pod.shape.request[MEMORY], gpus

    def booked_gpus(self, shape: Shape) -> int:
        """Return the thousandths of GPUs that a pod which shares none counts for."""
        return sum(self.gpu_weight[at] * shape.request[at] for at in range(len(self.gpu_weight))) - shape.not_had

    def of_model(self, queue: int, model: int) -> int:
        """Return the thousandths of GPUs of a model that a queue uses."""
        pods = [pod for pod in self.below(queue) if pod.node >= 0 and self.nodes[pod.node].model == model]
        return sum(self.accepted(pod)[2] for pod in pods)

    def held(self, account: int) -> list[int]:
        """Return CPU, memory and GPUs that the user of an account holds."""
        total = [0, 0, 0]
        for pod in self.pods:
            if pod.group is not None and account in pod.group.accounts and pod.is_in(ACTIVE_ALLOCATED):
                total = [have + more for have, more in zip(total, self.accepted(pod), strict=True)]
        return total

    def used(self, queue: int, *, fixed: bool = False) -> list[int]:
        """Return CPU, memory and GPUs that a queue uses; ``fixed``: what cannot be taken back alone."""
        total = [0, 0, 0]
        for pod in self.below(queue):
            if pod.group is not None and not (fixed and pod.group.preemptible):
                total = [have + more for have, more in zip(total, self.accepted(pod), strict=True)]
        return total


def counted_gpus(shape: Shape, node: Node) -> int:
    """Return the thousandths of GPUs that a pod which shares devices counts for: memory rounds down, not to nothing."""
    part = max(1, 1000 * shape.memory // node.gpu_memory) if shape.memory else 10 * hundredths(shape, node)
    return part * shape.devices


def hundredths(shape: Shape, node: Node) -> int:
    """Return the hundredths of a device that a pod counts for: memory is rounded up, portions to the nearest."""
    if shape.memory:
        return -(-100 * shape.memory // node.gpu_memory)
    return int(shape.portion * 100 + 0.5)


def world_of(facts: Facts, columns: Columns, masks: list[list[bool]], scores: list[list[float]]) -> World:
    """Return the world of tables in which nobody is booked yet: statuses, nodes and placements as ``columns`` say."""
    nodes = [
        Node(
            row,
            [int(amount) for amount in facts.nodes.allocatable[row]],
            int(facts.nodes.gpu_memory[row]),
            bool(facts.nodes.gpu_memory_known[row]),
            int(facts.nodes.gpu_count[row]),
            bool(facts.nodes.mig_enabled[row]),
            int(facts.nodes.mig_strategy[row]),
            bool(facts.nodes.cpu_only[row]),
            bool(facts.nodes.dra_gpus[row]),
            bool(facts.nodes.ready[row]),
            bool(facts.nodes.legacy_mig[row]),
            int(facts.nodes.model[row]),
            (int(facts.nodes.credits[0, row]), int(facts.nodes.credits[1, row])),
            bool(facts.nodes.books_as_peer),
            [
                Device(slot, bool(facts.nodes.slot_named[slot]))
                for slot in range(int(facts.nodes.slot_start[row]), int(facts.nodes.slot_start[row + 1]))
            ],
        )
        for row in range(len(facts.nodes.gpu_memory))
    ]
    shapes = [_shape(facts, row, masks, scores) for row in range(len(facts.shapes.kind))]
    groups, subgroups = _groups(facts)
    pods = []
    for row in range(len(facts.pods.shape)):
        group, leaf = int(facts.pods.group[row]), int(facts.pods.leaf[row])
        pod = Pod(
            row,
            shapes[facts.pods.shape[row]],
            groups[group] if group >= 0 else None,
            subgroups[leaf] if leaf >= 0 else None,
            bool(facts.pods.reservation[row]),
            int(columns.status[row]),
            int(columns.node[row]),
            int(columns.placement[row]),
        )
        pods.append(pod)
        if pod.group is not None:
            pod.group.pods.append(pod)
    for subgroup in subgroups:
        first, last = (int(facts.groups.pod_start[subgroup.row + step]) for step in (0, 1))
        subgroup.pods = [pods[row] for row in facts.groups.pods[first:last]]
    return World(
        nodes,
        shapes,
        pods,
        groups,
        _queues(facts),
        [float(amount) for amount in facts.queues.total],
        [int(weight) for weight in facts.nodes.gpu_weight],
        [bool(claimable) for claimable in facts.nodes.claimable],
        [[int(slot) for slot in slots] for slots in columns.placement_slots[: int(columns.counters[1]) + 1]],
        facts.users.limit.tolist(),
    )


def _shape(facts: Facts, row: int, masks: list[list[bool]], scores: list[list[float]]) -> Shape:
    table = facts.shapes
    return Shape(
        row,
        [int(amount) for amount in table.request[row]],
        int(table.kind[row]),
        int(table.devices[row]),
        float(table.portion[row]),
        int(table.memory[row]),
        int(table.claimed[row]),
        int(table.not_had[row]),
        bool(table.legacy_mig[row]),
        bool(table.devices[row] > 0),
        bool(table.credit[row]),
        masks[int(table.mask[row])],
        scores[int(table.score[row])],
    )


def _groups(facts: Facts) -> tuple[list[Group], list[SubGroup]]:
    table = facts.groups
    subgroups = [
        SubGroup(row, bool(table.leaf[row]), int(table.minimum[row]), int(table.parent[row]))
        for row in range(len(table.leaf))
    ]
    groups = [
        Group(
            row,
            int(table.queue[row]),
            bool(table.preemptible[row]),
            bool(table.simple[row]),
            subgroups[int(table.first_subgroup[row]) : int(table.first_subgroup[row + 1])],
            int(table.bound[row]),
            int(table.ahead[row]),
            list(_accounts(facts, row)),
        )
        for row in range(len(table.queue))
    ]
    return groups, subgroups


def _accounts(facts: Facts, group: int) -> Iterator[int]:
    account = int(facts.users.account[group]) if len(facts.users.account) else -1
    while account >= 0:
        yield account
        account = int(facts.users.above[account])


def _queues(facts: Facts) -> list[Queue]:
    table = facts.queues
    return [
        Queue(
            row,
            int(table.parent[row]),
            [float(amount) for amount in table.quota[row]],
            [float(amount) for amount in table.limit[row]],
            [float(amount) for amount in table.model_limit[row]],
            [float(amount) for amount in table.fair_share[row]],
            [float(amount) for amount in table.allocatable[row]],
            int(table.priority[row]),
            int(table.rank[row]),
            float(table.past_use[row]),
            float(table.created[row]),
            bool(table.leaf[row]),
            table.deserved[row].tolist(),
            [
                (int(table.falls[at]), [float(amount) for amount in table.fallen[at]])
                for at in range(table.fall_start[row], table.fall_start[row + 1])
            ],
        )
        for row in range(len(table.parent))
    ]


def differences(world: World, columns: Columns) -> list[str]:
    """Say every cell of ``columns`` that is not what ``world`` says; nothing where they agree."""
    out: list[str] = []

    def compare(what: str, found: object, wanted: object) -> None:
        if found != wanted:
            out.append(f"{what}: {found}, the naive twin has {wanted}")

    for node in world.nodes:
        for at in range(len(node.allocatable)):
            place = f"[node {node.row}, resource {at}]"
            compare(f"idle{place}", int(columns.idle[node.row, at]), node.idle(at))
            compare(f"releasing{place}", int(columns.releasing[node.row, at]), node.releasing(at))
            compare(f"used{place}", int(columns.used[node.row, at]), node.used(at))
        for device in node.devices:
            found = [
                int(column[device.row])
                for column in (
                    columns.slot_used,
                    columns.slot_releasing,
                    columns.slot_allocated,
                    columns.slot_marked,
                    columns.slot_known,
                )
            ]
            wanted = [device.used, device.releasing, device.allocated, int(device.marked), device.known]
            compare(f"device {device.row}", found, wanted)
    for queue in world.queues:
        compare(f"queue_used[{queue.row}]", columns.queue_used[queue.row].tolist(), world.used(queue.row))
        models = [world.of_model(queue.row, model) for model in range(columns.queue_models.shape[1])]
        compare(f"queue_models[{queue.row}]", columns.queue_models[queue.row].tolist(), models)
    for account in range(len(world.user_limits)):
        compare(f"user_used[{account}]", columns.user_used[account].tolist(), world.held(account))
    for queue in world.queues:
        compare(f"queue_fixed[{queue.row}]", columns.queue_fixed[queue.row].tolist(), world.used(queue.row, fixed=True))
    for pod in world.pods:
        compare(f"pod {pod.row}", _pod_in(columns, pod.row), _pod_as(pod))
    for group in world.groups:
        compare(f"counted[{group.row}]", int(columns.counted[group.row]), sum(pod.is_in(COUNTED) for pod in group.pods))
        for leaf in group.leaves():
            found = [
                int(column[leaf.row])
                for column in (columns.active, columns.occupying, columns.pending, columns.pipelined)
            ]
            statuses = (ACTIVE_ALLOCATED, ACTIVE_USED, 1 << Status.PENDING, 1 << Status.PIPELINED)
            compare(f"counts of leaf {leaf.row}", found, [leaf.count(each) for each in statuses])
    compare("operations", columns.operations[: int(columns.counters[0])].tolist(), list(map(list, world.operations)))
    made = columns.placement_slots[: int(columns.counters[1]) + 1].tolist()
    compare("placements", made, world.placements)
    return out


def _pod_in(columns: Columns, row: int) -> dict[str, object]:
    evicted = int(columns.evicted_status[row])
    return {
        "status": int(columns.status[row]),
        "node": int(columns.node[row]),
        "placement": int(columns.placement[row]),
        "virtual": bool(columns.virtual[row]),
        "evicted": (evicted - 1, int(columns.evicted_node[row]), int(columns.evicted_placement[row]))
        if evicted
        else None,
        "left": [int(node) - 1 for node in columns.left[row] if node],
    }


def _pod_as(pod: Pod) -> dict[str, object]:
    return {
        "status": pod.status,
        "node": pod.node,
        "placement": pod.placement,
        "virtual": pod.virtual,
        "evicted": pod.evicted,
        "left": pod.left,
    }
