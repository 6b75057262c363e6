"""Twin of ``kai.facts.kernels.fairness``: the rules of reclaim, queue by queue and piece by piece."""

from collections.abc import Sequence
from math import inf

import attrs

from kai.facts.model.pod import ACTIVE_ALLOCATED
from tests.kernels.naive.world import Group, Pod, World

Triple = tuple[float, float, float]
Piece = tuple[Triple, float]
"""A loss, and the part of its GPUs that is of the group's model."""
NOTHING: Triple = (0.0, 0.0, 0.0)


@attrs.define
class Case:
    """Who takes, and what queues used before."""

    world: World
    group: Group
    wanted: Triple
    used: list[Triple]
    fixed: list[Triple]
    movable: bool
    multiplier: float
    models: list[list[int]] = attrs.Factory(list)
    """What queues used of each model before; empty without quotas of models."""
    deserved: list[list[int]] = attrs.Factory(list)
    model: int = -1
    """The model that the group is bound to."""
    remaining: dict[int, Triple] = attrs.Factory(dict)
    left: dict[int, float] = attrs.Factory(dict)
    """What is left to queues of the group's model."""
    involved: dict[int, set[int]] = attrs.Factory(dict)

    def owes(self, queue: int) -> bool:
        """Return whether the queue deserves what it used of the group's model and what the group wants."""
        at = self.model
        return at >= 0 and self.models[queue][at] + self.wanted[2] <= self.deserved[queue][at]

    def path(self, queue: int) -> list[int]:
        """Return the queues from the root down."""
        return [each.row for each in self.world.above(queue)][::-1]


def _plus(left: Sequence[float], right: Sequence[float], sign: float = 1.0) -> Triple:
    one, two, three = (a + sign * b for a, b in zip(left, right, strict=True))
    return one, two, three


def _fits(amounts: Sequence[float], bounds: Sequence[float]) -> bool:
    return all(bound < 0 or amount <= bound for amount, bound in zip(amounts, bounds, strict=True))


def find_level_pairs(world: World, aggressor: int) -> list[tuple[int, int]]:
    """Return, for each queue, the last pair compared walking down from the roots until two queues differ."""
    out = []
    for queue in world.queues:
        pair = (-1, -1)
        mine, theirs = list(world.above(aggressor)), list(world.above(queue.row))
        for taker, giver in zip(mine[::-1], theirs[::-1], strict=False):
            pair = (taker.row, giver.row)
            if taker is not giver:
                break
        out.append(pair)
    return out


def find_greedy(case: Case) -> list[bool]:
    """Say of each queue whether it is another one and holds more than it may."""
    queues, wanted = case.world.queues, case.wanted
    pairs = find_level_pairs(case.world, case.group.queue)
    out = []
    for queue in queues:
        if queue.row == case.group.queue:
            out.append(False)
            continue
        taker, giver = pairs[queue.row]
        used, quota = case.used[giver], queues[giver].quota
        asked = [at for at in range(3) if wanted[at] > 0 and quota[at] >= 0]
        if _fits(_plus(case.used[taker], wanted), queues[taker].quota):
            above = any(used[at] > quota[at] for at in asked) or all(used[at] >= quota[at] for at in asked)
            out.append(above or queues[taker].rank > queues[giver].rank)
        else:
            out.append(not _fits(used, queues[giver].allocatable))
        if case.owes(taker):
            out[-1] = out[-1] or case.models[giver][case.model] > case.deserved[giver][case.model]
    return out


def may_take_by_model(case: Case) -> bool:
    """Say whether the group's queue, or one above it, deserves what the group wants of its model."""
    return any(case.owes(queue) for queue in case.path(case.group.queue))


def judge(case: Case, victims: Sequence[Pod]) -> str:
    """Return "fair", or which rule the victims break."""
    losses: dict[int, list[Piece]] = {}
    for group in dict.fromkeys(pod.group for pod in victims):
        if group is not None:
            mine = [pod for pod in victims if pod.group is group]
            if pieces := _pieces(case, group, mine):
                losses.setdefault(group.queue, []).extend(pieces)
    for leaf, pieces in losses.items():
        if not _justified(case, leaf, pieces):
            return "strategy"
    for queue, (before, owed) in enumerate(zip(case.models, case.deserved, strict=True)):
        now = [case.world.of_model(queue, model) for model in range(len(owed))]
        if case.model >= 0 and queue in [each.row for each in case.world.above(case.group.queue)]:
            now[case.model] += still_to_come(case)
        if any(held < min(pair) for held, *pair in zip(now, before, owed, strict=True)):
            return "model"
    return _saturated(case)


def still_to_come(case: Case) -> int:
    """Return what the aggressor wants of its model and has not got yet: a search begins with some of its pods."""
    got = case.world.of_model(case.group.queue, case.model) - case.models[case.group.queue][case.model]
    return int(max(0.0, case.wanted[2] - got))


def _pieces(case: Case, group: Group, pods: Sequence[Pod]) -> list[Piece]:
    """Return the losses of a group: what is beyond its minima one by one, the rest as one.

    Pods that are to be moved are not lost.
    """
    core, surplus = [], []
    for leaf in group.subgroups:
        mine = [pod for pod in pods if pod.leaf is leaf]
        core += mine[: leaf.minimum]
        surplus += mine[leaf.minimum :]
    sums = []
    for piece in [*([pod] for pod in surplus), core]:
        lost = [pod for pod in piece if not (case.movable and pod.is_in(ACTIVE_ALLOCATED))]
        total, of_model = NOTHING, 0.0
        for pod in lost:
            held = case.world.accepted(pod)
            total = _plus(total, held)
            of_model += held[2] if pod.node >= 0 and case.world.nodes[pod.node].model == case.model else 0.0
        if lost:
            sums.append((total, of_model))
    return sums


def _justified(case: Case, leaf: int, pieces: Sequence[Piece]) -> bool:
    pairs = list(zip(case.path(case.group.queue), case.path(leaf), strict=False))
    taker, giver = next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1])
    queues = case.world.queues
    touched = {at for piece, _ in pieces for at in range(3) if piece[at] > 0}
    case.remaining.setdefault(giver, case.used[giver])
    within = _fits(_plus(case.used[taker], case.wanted), queues[taker].quota)
    for piece, of_model in pieces:
        above_share = not _fits(case.remaining[giver], queues[giver].allocatable)
        above_quota = not _fits(case.remaining[giver], queues[giver].quota)
        by_model = (
            case.owes(taker)
            and of_model > 0
            and case.left.setdefault(giver, case.models[giver][case.model]) > case.deserved[giver][case.model]
        )
        if (
            not by_model
            and not above_share
            and not (within and (above_quota or queues[taker].rank > queues[giver].rank))
        ):
            return False
        for queue in case.path(leaf):
            case.remaining[queue] = _plus(case.remaining.get(queue, case.used[queue]), piece, -1.0)
            case.involved.setdefault(queue, set()).update(touched)
            if case.model >= 0:
                case.left[queue] = case.left.get(queue, case.models[queue][case.model]) - of_model
    return True


def _ratio(amount: float, share: float) -> float:
    if share < 0:
        return 0.0
    if share == 0:
        return inf if amount > 0 else 0.0
    return amount / share


def _saturated(case: Case) -> str:
    queues = case.world.queues
    units = (1.0, 1.0, 1000.0)
    for row in case.path(case.group.queue)[::-1]:
        amounts = _plus(case.remaining.get(row, case.used[row]), case.wanted)
        if row in case.remaining:
            case.remaining[row] = amounts
        for other, left in case.remaining.items():
            if other == row or queues[other].parent != queues[row].parent:
                continue
            for at in {at for at in range(3) if case.wanted[at] > 0} | case.involved.get(other, set()):
                share, theirs = queues[row].fair_share[at] / units[at], queues[other].fair_share[at] / units[at]
                saturation = _ratio(amounts[at] / units[at], share)
                if (
                    saturation > 1
                    and theirs > 0
                    and saturation * case.multiplier >= _ratio(left[at] / units[at], theirs)
                ):
                    return "saturation"
        lasting = queues[row].lasting(case.group)
        if not case.group.preemptible and not _fits(_plus(case.fixed[row], case.wanted), lasting):
            return "quota"
    return "fair"
