"""Twins of ``kai.kernels.opening``: the first scenario of a search for one pod."""

from collections.abc import Sequence

from kai.model.pod import GpuKind
from kai.model.status import ACTIVE_ALLOCATED, Status
from tests.kernels.naive import booking, victims
from tests.kernels.naive.order import Heap
from tests.kernels.naive.searching import free_gpus
from tests.kernels.naive.victims import Batch
from tests.kernels.naive.world import Group, Pod, World


def propose_first(world: World, heap: Heap, group: Group) -> list[Batch] | None:
    """Return the batches to try first, none if no scenario passes; None for what is only decided the long way."""
    pod = _only_pod(group)
    if pod is None or not group.simple:
        return None
    free = [idle + releasing for idle, releasing in free_gpus(world)]
    reach = [row for row in _open_nodes(world, group) if pod.shape.mask[row]]
    masks = [] if all(pod.shape.mask) or reach else [pod.shape.mask]
    growth = victims.Growth(world, heap, free, [booking.requested_gpu(world, pod.shape)], masks)
    while (ended := victims.grow(growth)) == "accepted":
        potential = [row for batch in growth.batches for row in batch]
        last = world.pods[potential[-1]].group
        nodes = sorted({each.node for leaf in last.leaves() for each in leaf.pods} - {-1}) if last else []
        found = [victims.losing_on(world, [], potential, node) for node in nodes]
        for batches in filter(None, found):
            gone = [world.pods[row].group for batch in batches for row in batch]
            return batches if all(each is not None and each.simple for each in gone) else None
    return [] if ended == "exhausted" else None


def _only_pod(group: Group) -> Pod | None:
    pods = [pod for leaf in group.leaves() for pod in leaf.pods]
    waiting = [pod for pod in pods if pod.status == Status.PENDING]
    others = [pod for pod in pods if pod.is_in(ACTIVE_ALLOCATED)]
    return waiting[0] if len(waiting) == 1 and len(pods) == 1 + len(others) else None


def _open_nodes(world: World, group: Group) -> list[int]:
    """Return the nodes that may have room for the group."""
    shapes = [pod.shape for leaf in group.leaves() for pod in leaf.pods]
    if any(shape.kind == GpuKind.NONE and not shape.claimed for shape in shapes):
        return [node.row for node in world.nodes]
    return [row for row, (idle, releasing) in enumerate(free_gpus(world)) if idle > 0 or releasing > 0]


def is_final(world: World, group: Group, pod: Pod, gone: Sequence[Pod], before: Sequence[tuple[int, int]]) -> bool:
    """Say whether all victims go, and just they would be let pass; ``before``: what nodes had free, and would have."""
    if any(victim.status != Status.RELEASING for victim in gone):
        return False
    held = victims.add_held(world, [victim.row for victim in gone])
    if booking.requested_gpu(world, pod.shape) > max(sum(two) + more for two, more in zip(before, held, strict=True)):
        return False
    anywhere = any(p.shape.kind == GpuKind.NONE and not p.shape.claimed for leaf in group.leaves() for p in leaf.pods)
    reach = {row for row, (idle, releasing) in enumerate(before) if anywhere or idle > 0 or releasing > 0}
    reach |= {victim.node for victim in gone}
    return all(pod.shape.mask) or any(pod.shape.mask[row] for row in reach)
