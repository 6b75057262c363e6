"""Plans: which groups could lose pods so that the aggressor fits, and how to make a plan cheaper by estimates.

A plan starts as the victims that were found, or as groups gathered for a domain: the cheapest ones, or the ones that
free most there. Groups that the plan does not need are given back, the most expensive first. Then one or two groups are
exchanged for a cheaper one.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations
from typing import Final

import numpy as np

from kai.actions.search.losses import NO_LOSS, Amounts, Cost, Giver, Givers, Offers, Plan, Room, Totals, less, more
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.session import Session
from kai.facts.model.axis import Bools, Float64s, GroupRows, Int64s, PodRows
from kai.framework.decisions import Cause
from kai.framework.scenario import Batches

MOST_PLANS: Final = 2000
"""The most plans to estimate in one search; they take some ten milliseconds."""
MOST_GIVERS: Final = 96
"""The most groups to make plans from; beyond that, the cheapest are kept."""
MOST_DOMAINS: Final = 32
"""The most domains to make plans for; beyond that, those with most nodes are kept."""
MOST_REMEMBERED: Final = 100
"""The most failed plans to remember for messages."""
FEW_LEAVE: Final = 12
"""The number of most expensive groups in a plan to form pairs from; each pair may be exchanged for one group."""
FEW: Final = 24
"""The most surplus pods of a group that are given back one by one."""


class Queues:
    """What queues may lose: an estimate of the fair-share rules, as far as they concern the losing queue."""

    def __init__(self, session: Session, aggressor: Portion, used: Int64s) -> None:
        """Prepare; ``used`` [Q, 3] is the usage of queues before any eviction."""
        self._session = session
        self._used = used
        view, facts = session.view, session.facts
        self._mine = view.path_to(int(facts.groups.queue[aggressor.group]))
        self._wanted = _amounts(aggressor.amounts())
        self._bounds: dict[int, tuple[Amounts, Amounts, Amounts | None]] = {}
        """By leaf queue what ``may_lose`` compares: usage, fair share, and quota; None for one that does not matter."""
        self._floors: dict[int, list[tuple[int, Amounts, Amounts]]] = {}
        """By leaf queue the queues on its path that have a quota to fall below, each with its usage and its quota."""

    def _path(self, leaf: int) -> list[int]:
        """Return the queues down to ``leaf``, from where its path and that of the aggressor's queue part."""
        path, mine = self._session.view.path_to(leaf), self._mine
        shared = 0
        while shared < min(len(path), len(mine)) - 1 and path[shared] == mine[shared]:
            shared += 1
        return path[shared:]

    def may_lose(self, leaf: int, lost: Amounts) -> bool:
        """Return whether the queue is still above its entitlement after losing ``lost``."""
        used, share, quota = self._bounds.get(leaf) or self._bounds_of(leaf)
        left = less(used, lost)
        return _exceeds(left, share) or (quota is not None and _exceeds(left, quota))

    def _bounds_of(self, leaf: int) -> tuple[Amounts, Amounts, Amounts | None]:
        facts, path = self._session.facts.queues, self._path(leaf)
        depth = len(self._session.view.path_to(leaf)) - len(path)
        taker = self._mine[min(depth, len(self._mine) - 1)]
        is_within = not _exceeds(more(_amounts(self._used[taker]), self._wanted), _amounts(facts.quota[taker]))
        used, share = _amounts(self._used[path[0]]), _amounts(facts.allocatable[path[0]])
        known = self._bounds[leaf] = used, share, _amounts(facts.quota[path[0]]) if is_within else None
        return known

    def pushes_below(self, losses: Mapping[int, Amounts]) -> bool:
        """Return whether some queue falls below its quota by ``losses`` of leaf queues."""
        sums: dict[int, Amounts] = {}
        for leaf, lost in losses.items():
            floors = self._floors.get(leaf)
            for queue, used, quota in self._floors_of(leaf) if floors is None else floors:
                sums[queue] = summed = more(sums.get(queue, NO_LOSS), lost)
                # No loss is negative, so a queue that some of them push below its quota is pushed below it by all.
                if _falls_below(used, summed, quota):
                    return True
        return False

    def _floors_of(self, leaf: int) -> list[tuple[int, Amounts, Amounts]]:
        found = list[tuple[int, Amounts, Amounts]]()
        for queue in self._path(leaf):
            used, quota = _amounts(self._used[queue]), _amounts(self._session.facts.queues.quota[queue])
            if any(0 <= least <= has for has, least in zip(used, quota, strict=True)):
                found.append((queue, used, quota))
        self._floors[leaf] = found
        return found


def _amounts(row: Float64s | Int64s) -> Amounts:
    cpu, memory, gpus = map(float, row.tolist())
    return cpu, memory, gpus


def _exceeds(amounts: Amounts, bounds: Amounts) -> bool:
    return 0 <= bounds[0] < amounts[0] or 0 <= bounds[1] < amounts[1] or 0 <= bounds[2] < amounts[2]


def _falls_below(used: Amounts, lost: Amounts, quota: Amounts) -> bool:
    # One resource after the other, as searches ask for this most of all.
    return (
        (0 <= quota[0] <= used[0] and used[0] - lost[0] < quota[0])
        or (0 <= quota[1] <= used[1] and used[1] - lost[1] < quota[1])
        or (0 <= quota[2] <= used[2] and used[2] - lost[2] < quota[2])
    )


PlanKey = tuple[tuple[int, int], ...]


def key_of(plan: Plan) -> PlanKey:
    """Return the key under which equal plans are equal."""
    return tuple(sorted(plan.items()))


class Planner:
    """The plans of one search."""

    def __init__(
        self,
        session: Session,
        part: Portion,
        cause: Cause,
        member: Bools,
        free: Int64s,
        used: Int64s,
        givers: Givers,
    ) -> None:
        """Prepare; nothing is evicted yet.

        ``part`` is to be placed in full. ``member`` [G] are the groups that may lose pods, ``free`` [N] is the capacity
        of nodes without evictions, ``used`` [Q, 3] the usage of queues before the search. ``givers`` come from earlier
        looks.
        """
        self._session = session
        self._cause = cause
        self._member = member
        self._queues = Queues(session, part, used)
        session.policy.prepare_all(part.chunk(), session.all_nodes)
        self._room = Room(session, part, part.chunk().tolist(), free)
        self._shared = givers
        self._known: dict[int, Giver] = {}
        self._parts: dict[tuple[int, int], tuple[Cost, int, Amounts, Mapping[int, int]]] = {}
        self._papers = 0
        self.refused: dict[PlanKey, Cost] = {}
        """What the first plans cost that failed in trials, or by estimate after a group too many was given back."""

    # ------------------------------------------------------------------ costs

    def giver(self, group: int) -> Giver:
        """Return the memoized estimates for a group that may lose pods."""
        known = self._known.get(group)
        if known is None:
            known = self._known[group] = self._shared.of(group)
        return known

    def cost_of(self, disturbed: PodRows) -> Cost:
        """Return the cost of victims that lost or changed their places; a moved pod has to start again."""
        totals, groups = Totals(), self._session.facts.pods.group[disturbed]
        for group in dict.fromkeys(groups.tolist()):
            giver, pods = self.giver(group), disturbed[groups == group]
            held = NO_LOSS
            for pod in pods.tolist():
                held = more(held, giver.held[pod])
            totals.add(giver.cost_of(pods), giver.queue, held, {})
        return self._cost(totals)

    def _cost(self, totals: Totals) -> Cost:
        """Return the cost in all, with that of queues."""
        _, *rest = totals.sums
        return Cost(self._pushes_below(totals.losses), *rest)

    def _pushes_below(self, losses: Mapping[int, Amounts]) -> int:
        return int(self._cause is Cause.RECLAIM and self._queues.pushes_below(losses))

    def cost(self, plan: Plan) -> Cost:
        """Return the cost of a plan if all pods that it gives up are lost."""
        return self._cost(self._totals(plan))

    # ------------------------------------------------------------------ on paper

    def serves(self, plan: Plan) -> bool:
        """Return whether sums allow that the plan serves the aggressor."""
        return self._could_hold(self._freed(plan))

    def _could_hold(self, freed: Mapping[int, int]) -> bool:
        self._papers += 1
        return self._room.could_hold(freed)

    def _freed(self, plan: Plan) -> Mapping[int, int]:
        """Return what a plan frees, by node; by device where pods ask for whole ones."""
        freed: dict[int, int] = {}
        for group, steps in plan.items():
            for place, amount in self._places(group, steps).items():
                freed[place] = freed.get(place, 0) + amount
        return freed

    def _places(self, group: int, steps: int) -> Mapping[int, int]:
        giver = self.giver(group)
        return giver.places(steps) if self._room.whole else giver.freed(steps)

    def _totals(self, plan: Plan) -> Totals:
        """Return what the plan costs and frees in all."""
        totals = Totals()
        for group, steps in plan.items():
            totals.add(*self._part(group, steps))
        return totals

    def _without(self, totals: Totals, plan: Plan, gone: Iterable[int]) -> Totals:
        """Return the totals of a plan that leaves out its groups ``gone``."""
        rest = totals.copy()
        for group in gone:
            rest.take_off(*self._part(group, plan[group]))
        return rest

    def _part(self, group: int, steps: int) -> tuple[Cost, int, Amounts, Mapping[int, int]]:
        """Return what ``group`` adds to totals with ``steps``; memoized."""
        known = self._parts.get((group, steps))
        if known is None:
            giver = self.giver(group)
            known = giver.cost(steps), giver.queue, giver.lost(steps)[0], self._places(group, steps)
            self._parts[group, steps] = known
        return known

    def _is_allowed_on_paper(self, plan: Plan) -> bool:
        if self._cause is not Cause.RECLAIM:
            return True
        whole: dict[int, Amounts] = {}
        largest: dict[int, Amounts] = {}
        for group, steps in plan.items():
            giver = self.giver(group)
            lost, piece = giver.lost(steps)
            whole[giver.queue] = more(whole.get(giver.queue, NO_LOSS), lost)
            if giver.queue not in largest or piece[-1] > largest[giver.queue][-1]:
                largest[giver.queue] = piece
        return all(self._queues.may_lose(leaf, less(lost, largest[leaf])) for leaf, lost in whole.items())

    def _is_over(self) -> bool:
        return self._papers >= MOST_PLANS

    def by_price(self, groups: Iterable[int]) -> list[int]:
        """Sort groups by the cost of losing all of them, highest first."""
        return sorted(groups, key=lambda group: (self.giver(group).cost(self.giver(group).steps), group), reverse=True)

    def _give_back(self, plan: Plan) -> dict[int, int]:
        """Return the plan without losses that it does not need by estimate, the most expensive given back first."""
        left, totals = dict(plan), self._totals(plan)
        for group in self.by_price(plan):
            for steps in self._fewer(group, left[group]):
                if self._is_over():
                    return left
                rest = self._without(totals, left, (group,))
                if steps:
                    rest.add(*self._part(group, steps))
                serves = (bool(steps) or len(left) > 1) and self._could_hold(rest.freed)
                if not serves and len(self.refused) >= MOST_REMEMBERED:
                    continue
                without = {**left, group: steps}
                if not steps:
                    del without[group]
                if serves:
                    left, totals = without, rest
                    break
                self.refused[key_of(without)] = self._cost(rest)
        return left

    def refuse(self, plan: Plan) -> None:
        """Remember that a plan does not serve."""
        if len(self.refused) < MOST_REMEMBERED:
            self.refused[key_of(plan)] = self.cost(plan)

    def refused_below(self, cost: Cost) -> int:
        """Return the number of failed plans that would cost less; giving back all is none."""
        return sum(each < cost for key, each in self.refused.items() if key)

    def _fewer(self, group: int, steps: int) -> Iterable[int]:
        """Return smaller numbers of steps for a group, the smallest first."""
        surplus = self.giver(group).surplus
        return range(min(steps, surplus + 1)) if surplus <= FEW else (0, *([surplus] if steps > surplus else []))

    def _exchange(self, plan: Plan, offers: Offers) -> dict[int, int]:
        """Exchange one or two groups of the plan for a cheaper one of ``offers``, repeatedly, and return the result."""
        best = dict(plan)
        while (found := self._exchanged(best, offers)) is not None:
            best = found
        return best

    def _exchanged(self, plan: Plan, offers: Offers) -> dict[int, int] | None:
        before, mine = self.cost(plan), self.by_price(plan)
        totals, outside = self._totals(plan), ~np.isin(offers.groups, list(plan))
        leaving: list[tuple[int, ...]] = [(group,) for group in mine]
        leaving += list(combinations(mine[:FEW_LEAVE], 2))
        for gone in leaving:
            rest = self._without(totals, plan, gone)
            cost = self._cost(rest)
            for group, steps in self._cheaper(before, cost, rest.freed, outside, offers):
                changed = {each: kept for each, kept in plan.items() if each not in gone}
                changed[group] = steps
                if self._is_good(changed) and self.cost(changed) < before and self.may_replace(changed, plan):
                    return self._give_back(changed)
            if self._is_over():
                return None
        return None

    def _cheaper(
        self, before: Cost, cost: Cost, freed: Mapping[int, int], outside: Bools, offers: Offers
    ) -> Iterable[tuple[int, int]]:
        """Yield losses of groups ``outside`` [W] of a plan that may cost less than ``before`` and serve, with its rest.

        ``cost`` and ``freed`` are those of the rest. All are estimated at once. Each that costs less counts as one
        plan, in their order, as if estimated alone.
        """
        cheaper = offers.cheaper(cost, before) & outside
        rows = np.flatnonzero(cheaper)[: max(0, MOST_PLANS - self._papers)]
        if not len(rows):
            return
        begun = self._papers
        serving = self._room.could_hold_each(freed, offers)[rows]
        for at in np.flatnonzero(serving).tolist():
            self._papers = begun + at
            yield int(offers.groups[rows[at]]), int(offers.steps[rows[at]])
        self._papers = begun + len(rows)

    def may_replace(self, plan: Plan, found: Plan) -> bool:
        """Return whether a cheaper plan may be taken in place of ``found``.

        A group must not go instead of one of lower priority in its queue only to save work, with no group and no pod
        less lost.
        """
        cost, before = self.cost(plan), self.cost(found)
        if cost[:2] < before[:2] or cost.pods < before.pods:
            return True
        lowest: dict[int, int] = {}
        for group in found.keys() - plan.keys():
            giver = self.giver(group)
            lowest[giver.queue] = min(giver.priority, lowest.get(giver.queue, giver.priority))
        come = [self.giver(group) for group in plan.keys() - found.keys()]
        return all(giver.priority <= lowest.get(giver.queue, giver.priority) for giver in come)

    def _is_good(self, plan: Plan) -> bool:
        return self.serves(plan) and self._is_allowed_on_paper(plan)

    # ------------------------------------------------------------------ plans

    def plans(self, found: Plan | None) -> list[dict[int, int]]:
        """Return plans that could serve, cheapest first; ``found`` is the plan found before, if any.

        Among equal costs, plans that only give back some of ``found`` come first.
        """
        drafts: list[dict[int, int]] = [] if found is None else [dict(found)]
        # Moved pods must fit elsewhere. That is known for the victims found; for other groups it is only a guess.
        groups = [] if self._cause is Cause.CONSOLIDATE else self._givers()
        for nodes in self._domains() if groups else ():
            drafts += self._drafts(nodes, groups)
        out: dict[PlanKey, dict[int, int]] = {}
        offers = Offers([self.giver(group) for group in groups], whole=self._room.whole)
        exchanged = set[PlanKey]()
        asked = dict[PlanKey, int]()
        for draft in drafts:
            # What has come down to a plan once comes down to it again, as long as the plans to estimate suffice.
            again = asked.get(order := tuple(draft.items()))
            if again is not None and self._papers + again < MOST_PLANS:
                self._papers += again
                continue
            begun = self._papers
            reduced = self._give_back(draft) if self.serves(draft) else None
            asked[order] = self._papers - begun
            if reduced is None or key_of(reduced) in exchanged:  # other drafts come down to the same plan, too
                continue
            exchanged.add(key_of(reduced))
            best = self._exchange(reduced, offers)
            if self._is_allowed_on_paper(best):
                out[key_of(best)] = best

        def exchanges(plan: Plan) -> bool:
            return found is not None and any(steps > found.get(group, 0) for group, steps in plan.items())

        return sorted(out.values(), key=lambda plan: (self.cost(plan), exchanges(plan), sorted(plan.items())))

    def _givers(self) -> list[int]:
        """Return the groups to make plans from, cheapest first."""
        rows: GroupRows = np.flatnonzero(self._member).astype(np.int64)
        if len(rows) > 4 * MOST_GIVERS:
            # Ranks are at hand while estimates are not, so only groups that lose little by rank are estimated.
            rows = rows[np.argsort(-self._session.victim_ranks[rows])[: 4 * MOST_GIVERS]]
        return self._shared.cheapest(rows, MOST_GIVERS, freeing=self._room.smallest > 0)

    def _domains(self) -> list[Bools]:
        domains = self._room.domains()
        if len(domains) < 2:  # 0 domains: no node has the label of the level, so no set of victims makes room
            return domains
        domains.sort(key=lambda nodes: -int(nodes.sum()))
        # The last entry is all domains together: sub-groups of one aggressor may go to different ones.
        return [*domains[:MOST_DOMAINS], np.logical_or.reduce(domains)]

    def _drafts(self, nodes: Bools, groups: list[int]) -> Iterable[dict[int, int]]:
        """Yield plans that free enough on ``nodes`` [N]: the cheapest groups first, or the groups that free most there.

        Each comes in variants: with surplus pods first, and so that no queue falls below its quota.
        """
        useful = {group: self._room.useful(self.giver(group).freed(self.giver(group).steps), nodes) for group in groups}
        there = [group for group in groups if useful[group] or not self._room.smallest]
        by_use = sorted(there, key=lambda group: -useful[group])  # of equal use the cheapest first, as ``groups`` are
        spared = {group: self.giver(group).surplus for group in there if self.giver(group).surplus}
        for order in (there, by_use):
            begun = self._papers
            draft, falls = self._gather(order, {}, keep=False)
            asked = self._papers - begun
            begun_with = self._gather(order, spared, keep=False)[0] if spared else None
            # Where no queue falls below its quota, to keep all above it changes nothing.
            if falls or self._papers + asked >= MOST_PLANS:
                kept = self._gather(order, {}, keep=True)[0]
            else:
                kept = draft
                self._papers += asked
            yield from (each for each in (draft, begun_with, kept) if each is not None)

    def _gather(self, order: Sequence[int], begin: Plan, *, keep: bool) -> tuple[dict[int, int] | None, bool]:
        """Take groups in ``order`` until the plan could serve; ``keep``: let no queue fall below its quota.

        Return the plan, None if it could not serve with all of them, and whether a queue would fall below its quota.
        """
        plan, totals, largest, falls = dict[int, int](), Totals(), dict[int, Amounts](), False
        for group, steps in chain(begin.items(), ((group, self.giver(group).steps) for group in order)):
            if self._is_over():
                return None, falls
            # The totals grow with the plan: to add up all of its groups for each one more would take their square.
            grown, queue = totals.copy(), self.giver(group).queue
            if group in plan:
                grown.take_off(*self._part(group, plan[group]))
            grown.add(*self._part(group, steps))
            piece = self._largest_piece(plan, group, steps, largest.get(queue))
            # All other queues lose what they lost before, which was allowed.
            if self._cause is Cause.RECLAIM and not self._queues.may_lose(queue, less(grown.losses[queue], piece)):
                continue
            falls = falls or bool(self._pushes_below(grown.losses))
            if keep and falls and self._pushes_below(grown.losses):
                continue
            plan[group], totals, largest[queue] = steps, grown, piece
            if self._could_hold(grown.freed):
                return plan, falls
        return None, falls

    def _largest_piece(self, plan: Plan, group: int, steps: int, known: Amounts | None) -> Amounts:
        """Return the largest piece that the queue of ``group`` loses; ``known`` is that of ``plan``, None for none."""
        giver = self.giver(group)
        piece = giver.lost(steps)[1]
        if group not in plan:
            return piece if known is None or piece[-1] > known[-1] else known
        pieces = [
            self.giver(each).lost(taken)[1]
            for each, taken in {**plan, group: steps}.items()
            if self.giver(each).queue == giver.queue
        ]
        return max(pieces, key=lambda each: each[-1])  # of equals the first

    def given_back(self, plan: Plan) -> Iterable[Plan]:
        """Yield the plan without losses that it does not need by estimate."""
        if self.serves(plan):
            fewer = self._give_back(plan)
            if self._is_allowed_on_paper(fewer):
                yield fewer

    def without_one(self, plan: dict[int, int]) -> Iterable[Plan]:
        """Yield the plans that leave out one group of ``plan``."""
        totals = self._totals(plan)
        for group in self.by_price(plan) if len(plan) > 1 else ():
            if self._could_hold(self._without(totals, plan, (group,)).freed):
                yield {each: steps for each, steps in plan.items() if each != group}

    def all_that_may_go(self) -> Iterable[Plan]:
        """Yield, for each domain, all that queues may lose there: smaller plans may be too hopeful."""
        groups = self._givers()
        for nodes in self._domains():
            plan = dict[int, int]()
            for group in groups:
                giver = self.giver(group)
                more = {**plan, group: giver.steps}
                if self._room.useful(giver.freed(giver.steps), nodes) and self._is_allowed_on_paper(more):
                    plan = more
            if plan and self.serves(plan):
                yield plan

    def plan_of(self, lost: PodRows) -> dict[int, int]:
        """Return the smallest plan that gives up the pods ``lost``."""
        groups = self._session.facts.pods.group[lost]
        return {group: self.giver(group).steps_of(lost[groups == group]) for group in np.unique(groups).tolist()}

    def batches(self, plan: Plan) -> Batches:
        """Return the victims of a plan, the largest of each queue last: until it, the queue is above its share."""
        order = sorted(plan, key=lambda group: (self.giver(group).lost(plan[group])[1][-1], group))
        return Batches.of(tuple(self.giver(group).pods(plan[group]).tolist()) for group in order)
