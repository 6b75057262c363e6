"""Twins of ``kai.facts.kernels.fragments``: what is left of a node as a list of devices, tried in every way."""

import math

import attrs

from kai.facts.kernels.fragments import Mix
from kai.facts.model.axis import CPU, GPU, MEMORY
from kai.facts.model.pod import GpuKind
from tests.kernels.naive.booking import memory_on
from tests.kernels.naive.world import Node, Shape, World


@attrs.frozen
class Left:
    """What is left of a node: amounts, whole devices, and the MiB on each device in sharing by its slot."""

    cpu: int
    memory: int
    wholes: int
    sharing: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, node: Node) -> "Left":
        """Return what is idle or being released."""
        sharing = tuple(
            (each.row, max(0, node.gpu_memory - each.allocated + each.releasing))
            for each in node.devices
            if each.used > 0 and each.allocated != each.releasing
        )
        return cls(node.free(CPU), node.free(MEMORY), max(0, int(node.free(GPU) / 1000)), sharing)

    def less(self, shape: Shape) -> "Left":
        """Return what is left without the amounts of a pod; its devices are another matter."""
        return attrs.evolve(self, cpu=self.cpu - shape.request[CPU], memory=self.memory - shape.request[MEMORY])


def lost(world: World, mix: Mix, node: Node, left: Left) -> float:
    """Return what of a node's GPUs is lost, less what pressure says it is worth."""
    rooms = [node.gpu_memory] * left.wholes + [room for _, room in left.sharing]
    total = sum(rooms)
    if total <= 0 or node.gpu_memory <= 0:
        return 0.0
    unusable = 0.0
    for at, (row, share) in enumerate(zip(mix.shapes.tolist(), mix.shares.tolist(), strict=True)):
        usable = _usable(world.shapes[row], node, left, rooms) if mix.allowed[at, node.row] else 0
        unusable += share * (total - usable)
    gpus = total / node.gpu_memory
    by_cpu, by_memory = left.cpu * float(mix.gpu_by_cpu[node.row]), left.memory * float(mix.gpu_by_memory[node.row])
    short = max(0.0, gpus - max(0.0, min(by_cpu, by_memory)))
    return unusable / node.gpu_memory + short - float(mix.pressure[node.row]) * gpus


def _usable(shape: Shape, node: Node, left: Left, rooms: list[int]) -> int:
    """Return the MiB of all devices that a pod could take its share of; none unless it fits."""
    if shape.request[CPU] > left.cpu or shape.request[MEMORY] > left.memory:
        return 0
    whole = shape.kind == GpuKind.WHOLE
    wanted, count = (node.gpu_memory, shape.request[GPU] // 1000) if whole else (memory_on(shape, node), shape.devices)
    fitting = [room for room in (rooms[: left.wholes] if whole else rooms) if room >= wanted]
    return sum(fitting) if len(fitting) >= count else 0


def with_pod(world: World, mix: Mix, shape: Shape, node: Node) -> tuple[Left, list[int | None]]:
    """Return what is left beside a pod, and the slots that it takes, None for whole devices, if it shares any."""
    left = Left.of(node).less(shape)
    if not shape.shared:
        whole = (shape.request[GPU] - 1000 * shape.claimed) // 1000 if shape.kind == GpuKind.WHOLE else 0
        return attrs.evolve(left, wholes=max(0, left.wholes - whole)), []
    wanted, chosen = memory_on(shape, node), list[int | None]()
    for _ in range(shape.devices):
        options = [
            ((lost(world, mix, node, after), room, at), slot, after)
            for at, (slot, room) in enumerate(left.sharing)
            if room >= wanted and slot not in chosen and slot >= 0
            for after in [_taking(left, at, wanted)]
        ]
        if left.wholes > 0 and wanted <= node.gpu_memory:
            opened = (*left.sharing, (-1, node.gpu_memory - wanted))
            after = attrs.evolve(left, wholes=left.wholes - 1, sharing=opened)
            options.append(((lost(world, mix, node, after), math.inf, 0), None, after))
        if not options:
            break
        _, slot, left = min(options, key=lambda option: option[0])
        chosen.append(slot)
    return left, chosen


def _taking(left: Left, at: int, wanted: int) -> Left:
    slot, room = left.sharing[at]
    return attrs.evolve(left, sharing=(*left.sharing[:at], (slot, room - wanted), *left.sharing[at + 1 :]))


def saved(world: World, mix: Mix, shape: Shape, node: Node) -> float:
    """Return the points of a node for a pod."""
    before = lost(world, mix, node, Left.of(node))
    after = lost(world, mix, node, with_pod(world, mix, shape, node)[0])
    return math.floor((before - after) * mix.weight * 1024) / 1024
