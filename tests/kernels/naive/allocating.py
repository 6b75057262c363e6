"""Twins of ``kai.facts.kernels.score``: whether nodes can be ranked beforehand."""

import math
from collections.abc import Sequence
from itertools import pairwise

from kai.facts.model.axis import CPU, GPU
from kai.facts.model.pod import GpuKind
from tests.kernels.naive.world import Node, Shape, World


def is_orderly(world: World, shape: Shape, ratings: Sequence[float]) -> bool:
    """Say whether nodes can be ranked by tiers.

    Each pod asks for what density goes by, or goes only where there is none of it; static scores are far apart.
    """
    resource = CPU if shape.kind == GpuKind.NONE and not shape.claimed else GPU
    asks = shape.request[resource] > 0 or (shape.shared and resource == GPU)
    takers = [node for node in world.nodes if _takes(world, node, shape)]
    asks = asks or not any(node.allocatable[resource] > 0 for node in takers)
    scores = sorted(score + rating for score, rating in zip(shape.score, ratings, strict=True))
    steps = [right - left for left, right in pairwise(scores)]
    return asks and all(step == 0 or step >= 10 for step in steps) and not any(map(math.isnan, scores[1:]))


def _takes(world: World, node: Node, shape: Shape) -> bool:
    totals = zip(shape.request, node.allocatable, world.claimable, strict=True)
    return all(asked <= total or (claimable and total == 0) for asked, total, claimable in totals)
