"""Who may take what from whom: the fairness rules of reclaim.

Two queues are compared at the level where their paths from the root part. An aggressor must fit its fair share; a
victim must sit above what its queue may hold, or above its quota while the aggressor is within its own; and
afterwards no queue on the aggressor's path may be more saturated than a sibling that lost something.

Source: the peer's plugins/proportion/reclaimable.
"""

import attrs
import numpy as np

from kai.framework.scenario import Scenario
from kai.framework.verdict import ACCEPTED, Code, Verdict
from kai.framework.view import SessionView
from kai.kernels.booking import accepted_gpu
from kai.model.axis import CPU, GPU, GPU_UNIT, MEMORY
from kai.model.rows import Bools, Float64s, GroupRow, GroupRows, Int64s
from kai.model.status import ACTIVE_ALLOCATED, within


def _fits(amounts: Float64s, bounds: Float64s) -> bool:
    """Say whether no amount exceeds its bound; a negative bound is none."""
    return bool(np.all((bounds < 0) | (amounts <= bounds)))


def level_pair(session: SessionView, aggressor: int, victim: int) -> tuple[int, int]:
    """Return the first two queues in which the paths to two leaf queues differ.

    The last compared pair if one path ends first.
    """
    pair = (-1, -1)
    for left, right in zip(session.path_to(aggressor), session.path_to(victim), strict=False):
        pair = (left, right)
        if left != right:
            break
    return pair


def fits_share(session: SessionView, group: GroupRow, wanted: Float64s) -> bool:
    """Say whether the group's leaf queue stays within its fair share with ``wanted`` more.

    And within quota, if it could not be taken back.

    Resources that the group does not ask for are compared as well: a queue above its share of CPU cannot reclaim GPUs.
    """
    queue = session.queue_of(group)
    if queue < 0:
        return False
    facts, columns = session.facts, session.columns
    if not _fits(columns.queue_used[queue] + wanted, facts.queues.fair_share[queue]):
        return False
    return bool(facts.groups.preemptible[group]) or _fits(
        columns.queue_fixed[queue] + wanted, facts.queues.quota[queue]
    )


@attrs.frozen(eq=False)
class LevelPairs:
    """The pairs of queues in which the path of an aggressor's leaf queue and every other path part; -1: nowhere."""

    takers: Int64s
    givers: Int64s

    @classmethod
    def of(cls, session: SessionView, aggressor: int) -> "LevelPairs":
        """Return the pairs for the leaf queue ``aggressor``; [Q] each."""
        pairs = [level_pair(session, aggressor, queue) for queue in range(len(session.snapshot.queues))]
        return cls(np.array([pair[0] for pair in pairs], np.int64), np.array([pair[1] for pair in pairs], np.int64))


def candidates(session: SessionView, aggressor: GroupRow, victims: GroupRows, pairs: LevelPairs) -> Bools:
    """Return bool[n]: whose queue is greedy enough, as things stand, for its pods to be looked at.

    The answer is one for each queue. Cost: O(Q + n).
    """
    facts, columns = session.facts.queues, session.columns
    wanted = session.chunk_amounts(aggressor)
    takers, givers = pairs.takers, pairs.givers
    quota = facts.quota[takers]
    within = np.all((quota < 0) | (columns.queue_used[takers] + wanted <= quota), axis=1)
    used, share = columns.queue_used[givers], facts.allocatable[givers]
    above_share = np.any((share >= 0) & (used > share), axis=1)
    asked = (wanted > 0) & (facts.quota[givers] >= 0)
    above = np.any(asked & (used > facts.quota[givers]), axis=1)
    below = np.any(asked & (used < facts.quota[givers]), axis=1)
    greedy = np.where(within, above | ~below, above_share)
    queues = session.facts.groups.queue[victims]
    found: Bools = greedy[queues] & (queues >= 0) & (queues != session.queue_of(aggressor))
    return found


@attrs.define
class Before:
    """What queues used when the search for an aggressor began, and what it wants.

    Validation looks at that, not at the simulated state.
    """

    used: Float64s = attrs.field(factory=lambda: np.zeros((0, 3)))
    fixed: Float64s = attrs.field(factory=lambda: np.zeros((0, 3)))
    wanted: Float64s = attrs.field(factory=lambda: np.zeros(3))

    def remember(self, session: SessionView, aggressor: GroupRow) -> None:
        """Copy the queues' columns."""
        self.used = session.columns.queue_used.astype(np.float64)
        self.fixed = session.columns.queue_fixed.astype(np.float64)
        self.wanted = session.chunk_amounts(aggressor).copy()


def _lost(session: SessionView, scenario: Scenario) -> dict[int, list[Float64s]]:
    """Return what each leaf queue loses, piece by piece: surplus pods one by one, the core of a gang as one piece."""
    facts, columns = session.facts, session.columns
    movable = session.parameters.allow_consolidating_reclaim
    by_group: dict[int, list[int]] = {}
    for pod in map(int, scenario.victims()):
        by_group.setdefault(int(facts.pods.group[pod]), []).append(pod)
    pieces: dict[int, list[Float64s]] = {}
    for group, pods in by_group.items():
        core, surplus = [], []
        for leaf in range(int(facts.groups.first_subgroup[group]), int(facts.groups.first_subgroup[group + 1])):
            mine = [pod for pod in pods if facts.pods.leaf[pod] == leaf]
            core += mine[: int(facts.groups.minimum[leaf])]
            surplus += mine[int(facts.groups.minimum[leaf]) :]
        gone = [[pod] for pod in surplus] + [core]
        sums = [
            sum(
                (
                    _held(session, pod)
                    for pod in piece
                    if not (movable and within(int(columns.status[pod]), ACTIVE_ALLOCATED))
                ),
                np.zeros(3, np.float64),
            )
            for piece in gone
        ]
        pieces.setdefault(int(facts.groups.queue[group]), []).extend(piece for piece in sums if piece.any())
    return pieces


def _held(session: SessionView, pod: int) -> Float64s:
    shape = int(session.facts.pods.shape[pod])
    request = session.facts.shapes.request[shape]
    return np.array(
        [request[CPU], request[MEMORY], accepted_gpu(session.facts, shape, int(session.columns.node[pod]))], np.float64
    )


def is_fair(session: SessionView, before: Before, scenario: Scenario, multiplier: float) -> Verdict:
    """Return whether the victims of ``scenario``, as it ended in simulation, may be taken for its aggressor.

    Holds: each piece is justified before it is subtracted, so the last one may take its queue below its share.
    """
    aggressor = scenario.aggressor.group
    mine = int(session.facts.groups.queue[aggressor])
    remaining: dict[int, Float64s] = {}
    involved: dict[int, Bools] = {}
    for leaf, pieces in _lost(session, scenario).items():
        if not _justified(session, before, mine, leaf, pieces, remaining, involved):
            return Verdict.refused(Code.NOT_ELIGIBLE, rule="strategy", queue=leaf)
    return _saturation(session, before, aggressor, remaining, involved, multiplier)


def _justified(
    session: SessionView,
    before: Before,
    mine: int,
    leaf: int,
    pieces: list[Float64s],
    remaining: dict[int, Float64s],
    involved: dict[int, Bools],
) -> bool:
    facts = session.facts.queues
    taker, giver = level_pair(session, mine, leaf)
    touched = np.zeros(3, np.bool_)
    for piece in pieces:
        touched |= piece > 0
    remaining.setdefault(giver, before.used[giver].copy())
    within_quota = _fits(before.used[taker] + before.wanted, facts.quota[taker])
    for piece in pieces:
        above_share = not _fits(remaining[giver], facts.allocatable[giver])
        above_quota = not _fits(remaining[giver], facts.quota[giver])
        if not (above_share or (within_quota and above_quota)):
            return False
        for queue in session.path_to(leaf)[::-1]:
            remaining.setdefault(queue, before.used[queue].copy())
            remaining[queue] -= piece
            involved[queue] = involved.get(queue, np.zeros(3, np.bool_)) | touched
    return True


def _ratio(amount: float, share: float) -> float:
    if share < 0:
        return 0.0
    if share == 0:
        return np.inf if amount > 0 else 0.0
    return amount / share


def _saturation(
    session: SessionView,
    before: Before,
    aggressor: int,
    remaining: dict[int, Float64s],
    involved: dict[int, Bools],
    multiplier: float,
) -> Verdict:
    facts = session.facts.queues
    for queue in session.path_to(int(session.facts.groups.queue[aggressor]))[::-1]:
        if queue in remaining:
            remaining[queue] = remaining[queue] + before.wanted
        amounts = remaining.get(queue, before.used[queue] + before.wanted)
        for sibling, left in remaining.items():
            if sibling == queue or facts.parent[sibling] != facts.parent[queue]:
                continue
            concerned = involved.get(sibling, np.zeros(3, np.bool_)) | (before.wanted > 0)
            for resource in np.flatnonzero(concerned):
                # In devices, as the peer divides: shares that are equal in tenths are not always equal in binary.
                unit = GPU_UNIT if resource == GPU else 1
                share, other = facts.fair_share[queue, resource] / unit, facts.fair_share[sibling, resource] / unit
                saturation = _ratio(amounts[resource] / unit, share)
                if saturation > 1 and other > 0 and saturation * multiplier >= _ratio(left[resource] / unit, other):
                    return Verdict.refused(Code.NOT_ELIGIBLE, rule="saturation", queue=queue, sibling=sibling)
        fixed = not session.facts.groups.preemptible[aggressor]
        if fixed and not _fits(before.fixed[queue] + before.wanted, facts.quota[queue]):
            return Verdict.refused(Code.NOT_ELIGIBLE, rule="quota", queue=queue)
    return ACCEPTED
