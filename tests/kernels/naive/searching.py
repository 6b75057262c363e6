"""Twins of ``kai.facts.kernels.victims`` and ``kai.facts.kernels.domains``: what nodes could give."""

from collections.abc import Sequence
from fractions import Fraction

from kai.facts.model.axis import GPU, PODS
from tests.kernels.naive.world import Node, World


def free_gpus(world: World) -> list[tuple[int, int]]:
    """Return idle and releasing GPUs of each node in thousandths, parts of shared devices included."""
    return [(_idle(world, node), _releasing(world, node)) for node in world.nodes]


def _in_hundredths(memory: int, node: Node) -> int:
    return 10 * -(-100 * memory // node.gpu_memory)


def _idle(world: World, node: Node) -> int:
    total = sum(weight * node.idle(resource) for resource, weight in enumerate(world.gpu_weight))
    in_use = [device for device in node.devices if device.allocated > 0]
    return total + sum(1000 - _in_hundredths(device.allocated, node) for device in in_use)


def _releasing(world: World, node: Node) -> int:
    total = sum(weight * node.releasing(resource) for resource, weight in enumerate(world.gpu_weight))
    partly = [each for each in node.devices if each.releasing > 0 and each.used != each.releasing]
    return total + sum(_in_hundredths(device.releasing, node) for device in partly)


def pods_per_node(world: World, request: Sequence[int], most: int, nodes: Sequence[int]) -> list[int]:
    """Return how many pods that ask for ``request`` each node could hold, ``most`` if they ask for nothing."""
    return [_held(world.nodes[row], request, most) for row in nodes]


def _held(node: Node, request: Sequence[int], most: int) -> int:
    asked = {resource: amount for resource, amount in enumerate(request) if amount > 0}
    if asked.get(PODS, 0) <= 1:
        asked.pop(PODS, None)
    if not asked:
        return most
    if any(node.free(resource) < 0 for resource, amount in enumerate(request) if amount <= 0):
        return 0
    asked[PODS] = max(1, request[PODS])
    return min(_times(node, resource, amount) for resource, amount in asked.items())


def _times(node: Node, resource: int, amount: int) -> int:
    free = node.free(resource)
    if resource == GPU and amount < 1000:
        for device in node.devices:
            if device.used > 0:
                left = node.gpu_memory - device.allocated + device.releasing
                # Thousandths of a device, what is less than one dropped.
                free += int(Fraction(1000 * left, node.gpu_memory).__floor__())
    return max(0, free // amount)


def domain_room(
    world: World, domains: Sequence[Sequence[int]], wanted: Sequence[int], fitting: Sequence[int]
) -> list[tuple[float, int]]:
    """Return for each set of nodes what share of its free amounts is wanted, at the tightest, and how many pods fit."""
    out = []
    for rows in domains:
        free = [
            (amount, sum(world.nodes[row].free(resource) for row in rows))
            for resource, amount in enumerate(wanted)
            if amount > 0
        ]
        shares = [amount / there if there > 0 else 1000.0 for amount, there in free]
        out.append((max(shares, default=0.0), sum(fitting[row] for row in rows)))
    return out
