"""The fairness rules of reclaim: which queue may take what from which.

Two queues are compared at the level where their paths from the root part. The aggressor's queue must stay within its
fair share. A victim's queue must be above its allocatable amount, or above its quota while the aggressor's is within
its own. If the configuration lets priority decide, a victim's queue of lower priority may then be within its quota too.
Afterwards no queue on the aggressor's path may be more saturated than a sibling that lost something.

Source: the peer's plugins/proportion/reclaimable.
"""

import attrs
import numpy as np

from kai.framework import (
    ACCEPTED,
    CPU,
    GPU,
    MEMORY,
    Bools,
    Code,
    Float64s,
    GpuKind,
    GroupRow,
    GroupRows,
    Int64s,
    PodRows,
    Scenario,
    SessionView,
    Verdict,
)
from kai.framework.fairness import (
    BEYOND_QUOTA,
    FAIR,
    NOT_JUSTIFIED,
    TOO_SATURATED,
    Claim,
    Fairness,
    Loss,
    find_greedy,
    find_level_pairs,
    judge,
    lasting_quotas,
)

RULES = {NOT_JUSTIFIED: "strategy", TOO_SATURATED: "saturation", BEYOND_QUOTA: "quota"}


def _fits(amounts: Float64s, bounds: Float64s) -> bool:
    """Return whether no amount exceeds its bound; a negative bound is none."""
    # Three numbers: a loop over them is quicker than four calls for whole arrays.
    return all(bound < 0 or amount <= bound for amount, bound in zip(amounts.tolist(), bounds.tolist(), strict=True))


def fits_share(session: SessionView, group: GroupRow, wanted: Float64s) -> bool:
    """Return whether the group's leaf queue stays within its fair share with ``wanted`` more.

    A group that cannot be taken back must stay within quota, too.

    Resources that the group does not ask for are compared as well: a queue above its share of CPU cannot reclaim GPUs.
    """
    queue = session.queue_of(group)
    if queue < 0:
        return False
    facts, columns = session.facts, session.columns
    if not _fits(columns.queue_used[queue] + wanted, facts.queues.fair_share[queue]):
        return False
    if facts.groups.preemptible[group]:
        return True
    (lasting,) = lasting_quotas(facts, np.array([group], np.int64), np.array([queue], np.int64))
    return _fits(columns.queue_fixed[queue] + wanted, lasting)


@attrs.frozen(eq=False)
class LevelPairs:
    """The pairs of queues in which the path of an aggressor's leaf queue and every other path part; -1: nowhere."""

    takers: Int64s
    givers: Int64s

    @classmethod
    def of(cls, session: SessionView, aggressor: int) -> "LevelPairs":
        """Return the pairs for the leaf queue ``aggressor``; [Q] each."""
        count = len(session.snapshot.queues)
        pairs = cls(np.empty(count, np.int64), np.empty(count, np.int64))
        find_level_pairs(session.facts, aggressor, pairs.takers, pairs.givers)
        return pairs


def greedy_queues(session: SessionView, aggressor: GroupRow, pairs: LevelPairs) -> Bools:
    """Return bool[Q]: which queues are greedy in the present state, so that their pods may be victims."""
    wanted, owner = session.chunk_amounts(aggressor), int(session.queue_of(aggressor))
    return find_greedy(session.facts, session.columns, pairs.takers, pairs.givers, wanted, owner)


def _counts_gpus_exactly(session: SessionView, pods: PodRows) -> bool:
    """Return whether a queue's loss equals its nodes' gain, and the request of ``pods`` their use: whole GPUs only."""
    shapes, nodes = session.facts.shapes, session.facts.nodes
    plain = not (
        shapes.claimed.any() or shapes.credit.any() or nodes.claimable.any() or session.columns.slot_used.any()
    )
    whole = bool((shapes.kind[session.facts.pods.shape[pods]] == GpuKind.WHOLE).all())
    return plain and whole and np.count_nonzero(nodes.gpu_weight > 0) == 1


def is_beyond_reach(
    session: SessionView, aggressor: GroupRow, pods: PodRows, victims: GroupRows, pairs: LevelPairs
) -> bool:
    """Return whether ``pods`` request more GPUs than are free and than queues can lose by the rules together.

    A queue loses pieces while it is above its allocatable amount, so it loses less than its excess plus one piece.
    """
    if not _counts_gpus_exactly(session, pods):
        return False
    facts, columns = session.facts, session.columns
    wanted = session.chunk_amounts(aggressor)
    held = session.placed(np.flatnonzero(np.isin(facts.pods.group, victims)).astype(np.int64))
    pieces = np.bincount(
        facts.pods.group[held], facts.shapes.request[facts.pods.shape[held], GPU], len(facts.groups.queue)
    )
    free = np.maximum(columns.idle[:, GPU] + columns.releasing[:, GPU], 0).sum()
    missing = float(facts.shapes.request[facts.pods.shape[pods], GPU].sum() - free)
    givers = pairs.givers[facts.groups.queue[victims]]
    for giver in np.unique(givers).tolist():
        taker = int(pairs.takers[pairs.givers == giver][0])
        bounds = facts.queues.allocatable[giver].copy()
        bounds[bounds < 0] = np.inf
        quota = facts.queues.quota[giver]
        if _fits(columns.queue_used[taker] + wanted, facts.queues.quota[taker]):
            bounds = np.minimum(bounds, np.where(quota < 0, np.inf, quota))
            if facts.queues.rank[taker] > facts.queues.rank[giver]:
                bounds[:] = 0  # what it has within its quota may go as well
        above = columns.queue_used[giver] - bounds
        if above[CPU] > 0 or above[MEMORY] > 0:
            return False  # it may lose GPUs for having too much of something else
        if above[GPU] > 0:
            missing -= above[GPU] + pieces[victims[givers == giver]].max() - 1
    return bool(missing > 0)


class Judge:
    """Says whether victims may be taken, by what queues used when the search began, not by the simulated state."""

    def __init__(self, session: SessionView, multiplier: float) -> None:
        """Make room; ``multiplier`` makes saturation count for more."""
        self._session = session
        queues = len(session.snapshot.queues)
        self._begun = False
        self._claim = Claim(
            used=np.zeros((queues, 3), np.float64),
            fixed=np.zeros((queues, 3), np.float64),
            wanted=np.zeros(3, np.float64),
            group=np.zeros(1, np.int64),
            movable=session.parameters.allow_consolidating_reclaim,
            multiplier=multiplier,
        )
        self._loss = Loss(
            remaining=np.zeros((queues, 3), np.float64),
            known=np.zeros(queues, np.bool_),
            involved=np.zeros((queues, 3), np.bool_),
            at_fault=np.full(2, -1, np.int64),
        )

    @property
    def fairness(self) -> Fairness:
        """What kernels judge with that ask the rules by themselves."""
        return Fairness(claim=self._claim, loss=self._loss)

    def remember(self, aggressor: GroupRow) -> None:
        """Copy the usage of queues and the request of the ``aggressor``."""
        session, claim = self._session, self._claim
        # In place: kernels that judge by themselves hold these very arrays.
        claim.used[:] = session.columns.queue_used
        claim.fixed[:] = session.columns.queue_fixed
        claim.wanted[:] = session.chunk_amounts(aggressor)
        claim.group[0] = aggressor
        self._begun = True

    def judge(self, scenario: Scenario) -> Verdict:
        """Return whether the victims of ``scenario``, as it ended in simulation, may be taken for its aggressor."""
        session = self._session
        # Scenarios of a search that reclaims nothing are not judged: nothing was remembered for them.
        if not self._begun or len(session.snapshot.queues) == 0:
            return ACCEPTED
        code = judge(session.facts, session.columns, self._claim, self._loss, scenario.victims())
        if code == FAIR:
            return ACCEPTED
        queue, sibling = self._loss.at_fault.tolist()
        return Verdict.refused(Code.NOT_ELIGIBLE, rule=RULES[code], queue=queue, sibling=sibling)
