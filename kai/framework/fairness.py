"""The rules of reclaim as kernels: which queues are greedy, and whether victims may be taken.

Built-in fair shares answer by them, and give searches the inputs to apply them directly (``Victims.fairness``).
"""

from kai.facts.compiled.struct import Float64s
from kai.facts.kernels.columns import GPU, Facts
from kai.facts.kernels.fairness import (
    BEYOND_QUOTA,
    FAIR,
    MODEL_OWED,
    NOT_JUSTIFIED,
    TOO_SATURATED,
    Claim,
    Fairness,
    Loss,
    find_greedy,
    find_level_pairs,
    judge,
    may_take_by_model,
)
from kai.facts.kernels.fit import is_beyond_owed, is_owed, lasting_quotas
from kai.framework.verdict import Code, Verdict


def used_before(fairness: Fairness) -> Float64s:
    """Return float64[Q, 3]: the usage of queues when the last search by these rules began."""
    return fairness.claim.used


def owed_model(
    facts: Facts, fairness: Fairness, giver: int, taker: int
) -> tuple[int, tuple[int, int], tuple[int, int]] | None:
    """Return the GPU model that queue ``taker`` was owed more of and ``giver`` less when the last search began.

    With it stand what giver and taker used and are owed of it. None: the aggressor is bound to no model, or its queue
    is not owed what it asks for.

    Units: thousandths of GPUs.
    """
    claim = fairness.claim
    model, wanted = int(claim.model[0]), float(claim.wanted[GPU])
    if not is_owed(facts, claim.models, taker, model, wanted):
        return None
    used, owed = claim.models[:, model], facts.queues.deserved[:, model]
    if not is_beyond_owed(facts, giver, model, int(used[giver])):
        return None
    return model, (int(used[giver]), int(owed[giver])), (int(used[taker]), int(owed[taker]))


def refusal(queue: int) -> Verdict:
    """Return the verdict on a group that may not reclaim, because ``queue``, its own, would leave its share."""
    return Verdict.refused(Code.NOT_ELIGIBLE, queue=queue)


__all__ = [
    "BEYOND_QUOTA",
    "FAIR",
    "MODEL_OWED",
    "NOT_JUSTIFIED",
    "TOO_SATURATED",
    "Claim",
    "Fairness",
    "Loss",
    "find_greedy",
    "find_level_pairs",
    "judge",
    "lasting_quotas",
    "may_take_by_model",
    "owed_model",
    "refusal",
    "used_before",
]
