"""Twins of ``kai.facts.kernels.score``: whether nodes can be ranked beforehand."""

import math
from itertools import pairwise

from kai.facts.model.axis import CPU, GPU
from kai.facts.model.pod import GpuKind
from tests.kernels.naive.world import Shape


def is_orderly(shape: Shape) -> bool:
    """Say whether nodes can be ranked by tiers: each asks for what density goes by, static scores are far apart."""
    if shape.kind == GpuKind.NONE and not shape.claimed:
        asks = shape.request[CPU] > 0
    else:
        asks = shape.shared or shape.request[GPU] > 0
    scores = sorted(shape.score)
    steps = [right - left for left, right in pairwise(scores)]
    return asks and all(step == 0 or step >= 10 for step in steps) and not any(map(math.isnan, scores[1:]))
