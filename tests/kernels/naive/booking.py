"""Twins of ``kai.facts.kernels.booking``: bookings as a list of who is where.

Shared devices are counted anew after each change, or by the peer's rules.
"""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

from kai.facts.kernels.columns import OP_ALLOCATE, OP_EVICT, OP_PIPELINE, BudgetFacts
from kai.facts.model.axis import GPU, GPU_UNIT
from kai.facts.model.pod import ACTIVE_USED, COUNTED, Status, within
from tests.kernels.naive.world import Booking, Device, Node, Pod, Shape, World, counted_gpus, hundredths


def portion_on_node(world: World, shape: Shape, node: int) -> int:
    """Return the hundredths of a device that a sharing pod counts for on a node."""
    return hundredths(shape, world.nodes[node])


def requested_gpu(world: World, shape: Shape) -> int:
    """Return the thousandths of GPUs that a pod asks for by the books: slices by their size, memory not at all."""
    return sum(weight * amount for weight, amount in zip(world.gpu_weight, shape.request, strict=True))


def accepted_gpu(world: World, shape: Shape, node: int) -> int:
    """Return the thousandths of GPUs that a pod counts for once it is on a node."""
    if shape.shared and node >= 0:
        return counted_gpus(shape, world.nodes[node])
    return requested_gpu(world, shape)


def book_budgets(world: World, budgets: BudgetFacts, gpus: Sequence[int]) -> list[int]:
    """Return what all pods that count may still cost each budget; ``gpus`` are the thousandths that each holds."""
    used = [0] * len(budgets.left)
    for pod in world.pods:
        if pod.group is None or not within(pod.status, COUNTED):
            continue
        model = budgets.node_model[pod.node] if pod.node >= 0 else budgets.group_model[pod.group.row]
        for queue in world.above(pod.group.queue):
            for budget in range(budgets.first[queue.row], budgets.first[queue.row + 1]):
                weighted = math.ceil(Fraction(gpus[pod.row] * int(budgets.weights[budget, model]), GPU_UNIT))
                used[budget] += weighted * max(0, int(budgets.duration[pod.group.row]))
    return used


def memory_on(shape: Shape, node: Node) -> int:
    """Return the MiB that a sharing pod takes of each of its devices; parts of a MiB are dropped."""
    return shape.memory or int(shape.portion * node.gpu_memory)


def truncated(amount: int) -> int:
    """Return whole devices in thousandths of GPUs, towards zero."""
    return int(amount / GPU_UNIT)


def is_spoken_for(node: Node) -> bool:
    """Say whether idle and used devices are more than the node has: then one that counts as idle went into sharing."""
    in_sharing = sum(device.used > 0 for device in node.devices)
    return node.gpu_count < truncated(node.idle(GPU)) + truncated(node.used(GPU)) + in_sharing


def part_of(device: Device, status: int, memory: int) -> None:
    """Add what a pod holds of a shared device, or was promised of it; negative: take it away."""
    device.used += memory
    device.allocated += 0 if status == Status.PIPELINED else memory
    device.releasing += {Status.PIPELINED: -memory, Status.RELEASING: memory}.get(Status(status), 0)


def count_devices(node: Node) -> None:
    """Work out from the pods on shared devices which devices are not idle, and which become free."""
    held = [device for device in node.devices if device.allocated]
    beyond = max(0, node.gpu_count - truncated(node.allocatable[GPU]))
    node.turned_shared = GPU_UNIT * max(0, len(held) - beyond)
    for device in node.devices:
        device.marked = bool(device.allocated) and device.allocated == device.used == device.releasing
    promised = sum(device.used > 0 and not device.allocated for device in node.devices)
    node.shared_releasing = GPU_UNIT * (sum(device.marked for device in node.devices) - promised)


def put_on_device(node: Node, device: Device, status: int, memory: int) -> None:
    """Add a pod's part to a shared device; in the peer's books by the rules of its AddTask."""
    if not node.books_as_peer:
        part_of(device, status, memory)
        device.known += status != Status.PIPELINED
        count_devices(node)
        return
    device.used += memory
    match status:
        case Status.RELEASING:
            device.releasing += memory
            device.allocated += memory
            device.known += 1
            if device.used == device.releasing:
                if not device.marked:
                    node.shared_releasing += GPU_UNIT
                    device.marked = True
                if is_spoken_for(node):
                    node.turned_shared += GPU_UNIT
        case Status.PIPELINED:
            was_used, was_releasing = device.used - memory, device.releasing
            device.releasing -= memory
            if was_used == was_releasing:
                node.shared_releasing -= GPU_UNIT
        case _:
            device.allocated += memory
            device.known += 1
            if device.allocated == memory and is_spoken_for(node):
                node.turned_shared += GPU_UNIT
                if device.used > memory:
                    # Unlike the peer: the first one on a device that was promised whole shares it with the promised.
                    node.shared_releasing += GPU_UNIT
            if device.marked:
                node.shared_releasing -= GPU_UNIT
                device.marked = False


def take_off_device(node: Node, device: Device, status: int, memory: int) -> None:
    """Take a pod's part off a shared device; in the peer's books by the rules of its RemoveTask."""
    if not node.books_as_peer:
        part_of(device, status, -memory)
        count_devices(node)
        return
    was_used, was_releasing = device.used, device.releasing
    device.used -= memory
    match status:
        case Status.RELEASING:
            device.releasing -= memory
            device.allocated -= memory
            if device.used <= 0:
                if not is_spoken_for(node):
                    node.turned_shared -= GPU_UNIT
                if device.marked:
                    node.shared_releasing -= GPU_UNIT
                    device.marked = False
        case Status.PIPELINED:
            device.releasing += memory
            if was_used == was_releasing or (device.used == 0 and device.releasing == 0):
                node.shared_releasing += GPU_UNIT
        case _:
            device.allocated -= memory
            if device.used <= 0 and not is_spoken_for(node):
                node.turned_shared -= GPU_UNIT
            if device.used > 0 and device.releasing == device.used and not device.marked:
                node.shared_releasing += GPU_UNIT
                device.marked = True


def book(world: World, pod: Pod, node: int, status: int, placement: int) -> None:
    """Put a pod on a node."""
    here = world.nodes[node]
    here.bookings.append(Booking(pod, status))
    if pod.shape.shared:
        for slot in world.slots(placement):
            put_on_device(here, here.device(slot), status, memory_on(pod.shape, here))


def unbook(world: World, pod: Pod, node: int, status: int, placement: int) -> None:
    """Take a pod off a node where it is booked with ``status``."""
    here = world.nodes[node]
    here.bookings.remove(next(each for each in here.bookings if each.pod is pod and each.status == status))
    if pod.shape.shared:
        for slot in world.slots(placement):
            take_off_device(here, here.device(slot), status, memory_on(pod.shape, here))


def set_status(world: World, pod: Pod, status: int) -> None:
    """Give a pod a status; whatever counts pods by status is worked out when it is asked for."""
    if pod.node >= 0 and within(pod.status, COUNTED) and within(status, COUNTED):
        # Allocated, binding, bound and running are booked alike; the book says which all the same.
        booked = next(each for each in world.nodes[pod.node].bookings if each.pod is pod and each.status == pod.status)
        booked.status = status
    pod.status = status


def settle(world: World) -> None:
    """Bind everybody who was allocated and still is."""
    for verb, row in world.operations:
        if verb == OP_ALLOCATE and world.pods[row].status == Status.ALLOCATED:
            set_status(world, world.pods[row], Status.BINDING)


def new_placement(world: World) -> int:
    """Return a fresh placement without slots."""
    world.placements.append([-1] * len(world.placements[0]))
    return len(world.placements) - 1


def open_accounts(world: World) -> None:
    """Book everybody who stands on a node: pods that hold devices for others first, then by row."""
    for pod in sorted(world.pods, key=lambda each: (not each.reservation, each.row)):
        if pod.node >= 0 and pod.is_in(ACTIVE_USED):
            book(world, pod, pod.node, pod.status, pod.placement)


def reopen_accounts(world: World, moved: Mapping[int, tuple[int, int]]) -> None:
    """Open the books of a world in which some pods, by row, have another status and are on another node."""
    for row, (status, node) in moved.items():
        world.pods[row].status, world.pods[row].node = status, node
    for node in world.nodes:
        node.bookings.clear()
    open_accounts(world)


def allocate(world: World, pod: Pod, node: int, placement: int) -> None:
    """Give a waiting pod idle resources."""
    book(world, pod, node, Status.ALLOCATED, placement)
    pod.node, pod.placement, pod.status = node, placement, Status.ALLOCATED
    world.operations.append((OP_ALLOCATE, pod.row))


def unallocate(world: World, pod: Pod) -> None:
    """Take an allocated pod off its node."""
    unbook(world, pod, pod.node, Status.ALLOCATED, pod.placement)
    pod.node, pod.placement, pod.status = -1, 0, Status.PENDING


def evict(world: World, pod: Pod) -> None:
    """Let a pod go, and remember where it was."""
    pod.evicted = (pod.status, pod.node, pod.placement)
    if pod.node >= 0:
        unbook(world, pod, pod.node, pod.status, pod.placement)
        book(world, pod, pod.node, Status.RELEASING, pod.placement)
        if pod.status == Status.PIPELINED:  # it never was there
            for slot in world.slots(pod.placement):
                world.nodes[pod.node].device(slot).known -= 1
    pod.status, pod.virtual = Status.RELEASING, True
    world.operations.append((OP_EVICT, pod.row))


def unevict(world: World, pod: Pod) -> None:
    """Let an evicted pod stay where it was after all."""
    assert pod.evicted is not None
    status, node, placement = pod.evicted
    if node >= 0:
        unbook(world, pod, node, Status.RELEASING, placement)
        book(world, pod, node, status, placement)
    pod.status, pod.node, pod.placement = status, node, placement
    pod.virtual, pod.evicted = False, None


def pipeline(world: World, pod: Pod, node: int, placement: int, *, keep: bool) -> None:
    """Promise a pod a node; with ``keep`` a victim that comes back to its place on its devices simply stays."""
    _, before, devices = pod.evicted or (None, None, 0)
    if keep and before == node and (placement == 0 or world.placements[placement] == world.placements[devices]):
        unevict(world, pod)
        return
    if pod.status == Status.RELEASING:
        pod.left.append(pod.node)
    book(world, pod, node, Status.PIPELINED, placement)
    pod.node, pod.placement, pod.status, pod.virtual = node, placement, Status.PIPELINED, True
    world.operations.append((OP_PIPELINE, pod.row))
