"""Twins of ``kai.facts.kernels.fit``: what a node, or a queue, objects to."""

from collections.abc import Sequence

from kai.facts.kernels import fit as codes
from kai.facts.kernels.fit import Rules
from kai.facts.model.axis import CPU, GPU, MEMORY, PODS
from kai.facts.model.pod import GpuKind, MigStrategy
from tests.kernels.naive.booking import memory_on, portion_on_node
from tests.kernels.naive.world import Device, Group, Node, Shape, World, counted_gpus


def device_takes(shape: Shape, node: Node, device: Device) -> bool:
    """Say whether a device in sharing has room, counting what leaves it; one that everybody leaves is whole."""
    if device.used == 0 or device.allocated == device.releasing:
        return False
    wanted = 0
    if shape.shared:
        wanted = memory_on(shape, node)
    elif shape.kind == GpuKind.WHOLE:
        wanted = node.gpu_memory
    return node.gpu_memory - device.allocated + device.releasing >= wanted


def device_has_idle(shape: Shape, node: Node, device: Device) -> bool:
    """Say whether a device has room now. One that pods were only ever promised is no device yet."""
    return device.known > 0 and node.gpu_memory - device.allocated >= memory_on(shape, node)


def shortage(world: World, shape: Shape, node: Node, *, idle_only: bool) -> int:
    """Return the code of the first resource that is short, 0 if none is."""
    for resource, amount in enumerate(shape.request):
        if resource == GPU and shape.shared:
            continue
        if world.claimable[resource] and not node.allocatable[resource]:
            continue
        credit = node.credit[0 if idle_only else 1] if resource == GPU and shape.credit else 0
        if amount > node.free(resource, idle_only=idle_only) + credit:
            return codes.SHORT_OF + resource
    if shape.shared:
        if shape.kind == GpuKind.MEMORY and portion_on_node(world, shape, node.row) > 100:
            return codes.SHORT_OF + GPU
        wholes = node.free(GPU, idle_only=idle_only) // 1000
        in_sharing = sum(device_takes(shape, node, device) for device in node.devices)
        if wholes + min(in_sharing, shape.devices) < shape.devices:
            return codes.SHORT_OF + GPU
    return codes.ACCEPTED


def lasting_quotas(world: World, groups: Sequence[int], queues: Sequence[int]) -> list[list[float]]:
    """Return the least quota of each queue until its group has ended; unlimited for no queue."""
    return [
        world.queues[queue].lasting(world.groups[group])[:3] if queue >= 0 else [-1.0, -1.0, -1.0]
        for group, queue in zip(groups, queues, strict=True)
    ]


def over_capacity(world: World, group: Group, wanted: Sequence[float], *, fixed_only: bool = False) -> int:
    """Return why the queues above a group may not take the amounts, 0 if they may."""
    if not fixed_only:
        for queue in world.above(group.queue):
            used = world.used(queue.row)
            for resource in (CPU, MEMORY, GPU):
                if wanted[resource] > 0 and 0 <= queue.limit[resource] < used[resource] + wanted[resource]:
                    return codes.REFUSED_OVER_LIMIT
        for account in group.accounts:
            for limit, held, amount in zip(world.user_limits[account], world.held(account), wanted, strict=True):
                if amount > 0 and 0 <= limit < held + amount:
                    return codes.REFUSED_OVER_USER
    if not group.preemptible:
        for queue in world.above(group.queue):
            fixed = world.used(queue.row, fixed=True)
            for resource in (CPU, MEMORY, GPU):
                if wanted[resource] > 0 and 0 <= queue.lasting(group)[resource] < fixed[resource] + wanted[resource]:
                    return codes.REFUSED_OVER_QUOTA
    return codes.ACCEPTED


def over_model(world: World, shape: Shape, group: Group, node: Node) -> bool:
    """Say whether a queue above a group may use no such pod more on GPUs of the node's model."""
    amount = counted_gpus(shape, node) if shape.shared else world.booked_gpus(shape)
    return (
        node.model >= 0
        and amount > 0
        and any(
            0 <= queue.model_limit[node.model] < world.of_model(queue.row, node.model) + amount
            for queue in world.above(group.queue)
        )
    )


def _gpus_on(world: World, shape: Shape, node: Node) -> int:
    if shape.kind == GpuKind.MIG:
        return (
            sum(weight * amount for weight, amount in zip(world.gpu_weight, shape.request, strict=True))
            - (shape.request[GPU])
        )
    if shape.shared:
        per_device = -(-100 * memory_on(shape, node) // node.gpu_memory)
        return shape.devices * per_device * 10
    return shape.request[GPU] - 1000 * shape.claimed


def _kind_objection(shape: Shape, node: Node) -> int:
    if shape.legacy_mig:
        return codes.REFUSED_LEGACY_MIG
    if shape.kind == GpuKind.NONE and not shape.claimed:
        return codes.ACCEPTED
    if node.dra_gpus and shape.shared:
        return codes.REFUSED_SHARING_ON_DRA
    if not node.mig_enabled:
        return codes.REFUSED_NOT_MIG if shape.kind == GpuKind.MIG else codes.ACCEPTED
    if shape.kind == GpuKind.MIG and node.legacy_mig:
        return codes.REFUSED_LEGACY_MIG_PRESENT
    match node.mig_strategy:
        case MigStrategy.SINGLE:
            return codes.ACCEPTED if shape.kind == GpuKind.WHOLE else codes.REFUSED_MIG_SINGLE
        case MigStrategy.MIXED:
            return codes.ACCEPTED if shape.kind == GpuKind.MIG else codes.REFUSED_MIG_MIXED
        case _:
            return codes.ACCEPTED


def refusal(world: World, rules: Rules, shape: Shape, group: Group | None, node: Node) -> int:
    """Return why a node does not take a pod, 0 if it does."""
    short = shortage(world, shape, node, idle_only=False)
    if short:
        return short
    if rules.limits and group is not None:
        wanted = (float(shape.request[CPU]), float(shape.request[MEMORY]), float(_gpus_on(world, shape, node)))
        over = over_capacity(world, group, wanted)
        if over:
            return over
    kind = _kind_objection(shape, node)
    if kind:
        return kind
    if shape.kind == GpuKind.MEMORY and not node.gpu_memory_known:
        return codes.REFUSED_MEMORY_UNKNOWN
    if node.free(PODS) < (2 if shape.shared else 1):
        return codes.REFUSED_PODS
    if not node.ready:
        return codes.REFUSED_NOT_READY
    if not shape.mask[node.row]:
        return codes.REFUSED_MASK
    if rules.limits and group is not None and over_model(world, shape, group, node):
        return codes.REFUSED_OVER_MODEL
    return codes.ACCEPTED
