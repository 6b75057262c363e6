"""Twins of ``kai.facts.kernels.score``: the table of score terms."""

import math
from collections.abc import Sequence

from kai.facts.kernels.fit import Rules
from kai.facts.model.axis import CPU, GPU
from kai.facts.model.pod import GpuKind
from tests.kernels.naive.fit import device_takes, shortage
from tests.kernels.naive.fragments import saved
from tests.kernels.naive.world import Node, Shape, World


def score_nodes(world: World, rules: Rules, shape: Shape, nodes: Sequence[int], extra: Sequence[float]) -> list[float]:
    """Return the score of each of ``nodes``; NaN where ``extra`` is."""
    return [_score(world, rules, shape, world.nodes[row], nodes) + extra[row] for row in nodes]


def _score(world: World, rules: Rules, shape: Shape, node: Node, nodes: Sequence[int]) -> float:
    without_gpus = shape.kind == GpuKind.NONE and not shape.claimed
    total = _density(world, rules, node, nodes, CPU if without_gpus else GPU)
    if rules.cpu_only and without_gpus and node.cpu_only:
        total += rules.cpu_only
    if rules.availability and not shortage(world, shape, node, idle_only=True):
        total += rules.availability
    if rules.sharing and any(device_takes(shape, node, device) for device in node.devices):
        total += rules.sharing
    if rules.mix.weight:
        total += saved(world, rules.mix, shape, node)
    return total + shape.score[node.row]


def _density(world: World, rules: Rules, node: Node, nodes: Sequence[int], resource: int) -> float:
    free, total = node.free(resource), node.allocatable[resource]
    binpack, spread = (
        (rules.binpack_cpu, rules.spread_cpu) if resource == CPU else (rules.binpack_gpu, rules.spread_gpu)
    )
    if spread:
        whole = 1000 * node.gpu_count if resource == GPU else total
        return spread * (free / whole) if whole > 0 else 0.0
    amounts = [world.nodes[row].free(resource) for row in nodes if world.nodes[row].allocatable[resource]]
    if not binpack or not total or not amounts or max(amounts) == 0:
        return 0.0
    if min(amounts) == max(amounts):
        return binpack * 9.0
    return binpack * (9.0 * (1 - (free - min(amounts)) / (max(amounts) - min(amounts))))


def same(left: float, right: float) -> bool:
    """Say whether two scores are the same bit for bit, NaN being itself."""
    return left == right or (math.isnan(left) and math.isnan(right))
