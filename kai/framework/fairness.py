"""The rules of reclaim as kernels: which queues are greedy, and whether victims may be taken.

Built-in fair shares answer by them, and give searches the inputs to apply them directly (``Victims.fairness``).
"""

from kai.facts.compiled.struct import Float64s
from kai.facts.kernels.fairness import (
    BEYOND_QUOTA,
    FAIR,
    MODEL_OWED,
    NOT_JUSTIFIED,
    TOO_SATURATED,
    Claim,
    Fairness,
    Guarantees,
    Loss,
    find_greedy,
    find_level_pairs,
    is_owed_model,
    judge,
)
from kai.facts.kernels.fit import lasting_quotas


def used_before(fairness: Fairness) -> Float64s:
    """Return float64[Q, 3]: the usage of queues when the last search by these rules began."""
    return fairness.claim.used


__all__ = [
    "BEYOND_QUOTA",
    "FAIR",
    "MODEL_OWED",
    "NOT_JUSTIFIED",
    "TOO_SATURATED",
    "Claim",
    "Fairness",
    "Guarantees",
    "Loss",
    "find_greedy",
    "find_level_pairs",
    "is_owed_model",
    "judge",
    "lasting_quotas",
    "used_before",
]
