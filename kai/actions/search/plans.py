"""Plans: which groups could lose pods so that the aggressor fits, and how to make a plan cheaper by estimates.

A plan starts as the victims that were found, or as groups gathered for a domain: the cheapest ones, or the ones that
free most there. Groups that the plan does not need are given back, the most expensive first. Then one or two groups are
exchanged for a cheaper one.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, combinations
from typing import Final

import numpy as np

from kai.actions.search.losses import Cost, Giver, Givers, Offers, Plan, Queues, Room, Totals
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
        self._papers = 0
        self.refused: dict[PlanKey, Plan] = {}
        """The first plans that failed in trials, or by estimate after a group too many was given back."""

    # ------------------------------------------------------------------ costs

    def giver(self, group: int) -> Giver:
        """Return the memoized estimates for a group that may lose pods."""
        known = self._known.get(group)
        if known is None:
            known = self._known[group] = self._shared.of(group)
        return known

    def cost_of(self, disturbed: PodRows) -> Cost:
        """Return the cost of victims that lost or changed their places; a moved pod has to start again."""
        losses: dict[int, Float64s] = {}
        sums = np.zeros(len(Cost._fields), np.int64)
        groups = self._session.facts.pods.group[disturbed]
        for group in np.unique(groups).tolist():
            giver, pods = self.giver(group), disturbed[groups == group]
            sums += np.array(giver.cost_of(pods), np.int64)
            held = np.sum([giver.held[pod] for pod in pods.tolist()], axis=0)
            losses[giver.queue] = losses.get(giver.queue, 0) + held
        return Cost(*sums.tolist())._replace(below=self._pushes_below(losses))

    def _pushes_below(self, losses: Mapping[int, Float64s]) -> int:
        return int(self._cause is Cause.RECLAIM and self._queues.pushes_below(losses))

    def cost(self, plan: Plan) -> Cost:
        """Return the cost of a plan if all pods that it gives up are lost."""
        losses: dict[int, Float64s] = {}
        groups = work = pods = gpus = 0
        for group, steps in plan.items():
            giver = self.giver(group)
            cost, lost = giver.cost(steps), giver.lost(steps)[0]
            groups, work, pods, gpus = groups + cost.groups, work + cost.work, pods + cost.pods, gpus + cost.gpus
            known = losses.get(giver.queue)
            losses[giver.queue] = lost if known is None else known + lost
        return Cost(self._pushes_below(losses), groups, work, pods, gpus)

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

    def _part(self, group: int, steps: int) -> tuple[Cost, int, Float64s, Mapping[int, int]]:
        """Return what ``group`` adds to totals with ``steps``."""
        giver = self.giver(group)
        return giver.cost(steps), giver.queue, giver.lost(steps)[0], self._places(group, steps)

    def _is_allowed_on_paper(self, plan: Plan) -> bool:
        if self._cause is not Cause.RECLAIM:
            return True
        whole: dict[int, Float64s] = {}
        largest: dict[int, Float64s] = {}
        for group, steps in plan.items():
            giver = self.giver(group)
            lost, piece = giver.lost(steps)
            whole[giver.queue] = whole.get(giver.queue, 0) + lost
            if giver.queue not in largest or piece[-1] > largest[giver.queue][-1]:
                largest[giver.queue] = piece
        return all(self._queues.may_lose(leaf, lost - largest[leaf]) for leaf, lost in whole.items())

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
                self.refuse(without)
        return left

    def refuse(self, plan: Plan) -> None:
        """Remember that a plan does not serve."""
        if len(self.refused) < MOST_REMEMBERED:
            self.refused[key_of(plan)] = plan

    def refused_below(self, cost: Cost) -> int:
        """Return the number of failed plans that would cost less."""
        return sum(self.cost(plan) < cost for plan in self.refused.values() if plan)

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
            cost = Cost(*rest.sums)._replace(below=self._pushes_below(rest.losses))
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
        for draft in drafts:
            if not self.serves(draft):
                continue
            reduced = self._give_back(draft)
            if key_of(reduced) in exchanged:  # many drafts come down to the same plan
                continue
            exchanged.add(key_of(reduced))
            less = self._exchange(reduced, offers)
            if self._is_allowed_on_paper(less):
                out[key_of(less)] = less

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
        price = {group: self.giver(group).cost(self.giver(group).steps) for group in there}
        by_use = sorted(there, key=lambda group: (-useful[group], price[group]))
        spared = {group: self.giver(group).surplus for group in there if self.giver(group).surplus}
        for order in (there, by_use):
            for begin, keep in (({}, False), (spared, False), ({}, True)):
                draft = self._gather(order, begin, keep=keep) if begin is not spared or spared else None
                if draft is not None:
                    yield draft

    def _gather(self, order: Sequence[int], begin: Plan, *, keep: bool) -> dict[int, int] | None:
        """Take groups in ``order`` until the plan could serve; ``keep``: let no queue fall below its quota."""
        plan, totals, largest = dict[int, int](), Totals(), dict[int, Float64s]()
        for group, steps in chain(begin.items(), ((group, self.giver(group).steps) for group in order)):
            if self._is_over():
                return None
            # The totals grow with the plan: to add up all of its groups for each one more would take their square.
            more, queue = totals.copy(), self.giver(group).queue
            if group in plan:
                more.take_off(*self._part(group, plan[group]))
            more.add(*self._part(group, steps))
            piece = self._largest_piece(plan, group, steps, largest.get(queue))
            # All other queues lose what they lost before, which was allowed.
            if self._cause is Cause.RECLAIM and not self._queues.may_lose(queue, more.losses[queue] - piece):
                continue
            if keep and self._pushes_below(more.losses):
                continue
            plan[group], totals, largest[queue] = steps, more, piece
            if self._could_hold(more.freed):
                return plan
        return None

    def _largest_piece(self, plan: Plan, group: int, steps: int, known: Float64s | None) -> Float64s:
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
            less = self._give_back(plan)
            if self._is_allowed_on_paper(less):
                yield less

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
        order = sorted(plan, key=lambda group: (float(self.giver(group).lost(plan[group])[1][-1]), group))
        return Batches.of(tuple(self.giver(group).pods(plan[group]).tolist()) for group in order)
