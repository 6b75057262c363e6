"""A second search, for victims that cost less than the first result, or for any victims after a failure.

    plans by estimate: the victims that were found, and for each domain groups that could make room in it
        give back what is not needed, the most expensive first; then exchange one or two for a cheaper one
    the cheapest plans are tried, until one serves and costs less than the victims that were found

Estimates use only sums (``losses``), so most sets cost microseconds. A plan that looks better is tried like any other
scenario: evict, place, let plugins judge. Here the aggressor is placed first, and its victims keep their places unless
it takes them.

Source: none; the peer takes the first victims that serve. docs/design/0003-solver.md gives the cost.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import attrs
import numpy as np

from kai.actions.placing import place_group
from kai.actions.search.losses import Cost, Givers, Plan, Room
from kai.actions.search.outer import Devices, Terms
from kai.actions.search.plans import PlanKey, Planner, key_of
from kai.actions.search.replacing import Replacing, books_all_they_ask_for
from kai.deciding.engine.heaps import GroupHeap
from kai.deciding.engine.host import BudgetAnswer
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.session import Session
from kai.deciding.engine.statement import Statement
from kai.facts.kernels.booking import accepted_gpu, requested_gpu
from kai.facts.kernels.columns import PIPELINED, RELEASING
from kai.facts.kernels.victims import least_held, losing
from kai.facts.model.axis import Bools, GroupRow, GroupRows, Int64s, PodRows
from kai.framework.scenario import Batches, Scenario
from kai.framework.verdict import Fact

MOST_TRIES: Final = 24
"""The most plans of one search to try."""
PATIENCE: Final = 4
"""The number of looks in vain, for equal requests, before looks are skipped."""
MOST_LEFT_OUT: Final = 15
"""The most looks in a row that are skipped."""
GENERATOR: Final = "SecondLook"
"""The name under which budgets know this generator."""


@attrs.frozen(kw_only=True)
class Found:
    """An accepted simulation with its statement still open."""

    statement: Statement
    scenario: Scenario
    terms: Terms | None
    """The inputs of the probe; None: the filters have accepted the victims already, see ``sure``."""
    victims: PodRows
    batches: Batches
    """The batches that really lose something; evicted ones come first."""
    failed: Sequence[int]
    """The groups that found no other place, in the form that ``finalize`` takes."""
    sure: bool = False
    """Whether all victims go and the filters would accept exactly them."""
    looked: Mapping[str, Fact] = attrs.field(factory=dict)
    """Facts from a second look: the number of cheaper sets that do not serve, and of pods that were spared."""


@attrs.define
class Looks:
    """What the second looks of one pass share: estimates for groups, and a back-off for looks in vain.

    Many equal groups would pay for as many looks with the same result. So after four looks in vain one look is skipped,
    after the next three, then seven, at most fifteen in a row. A successful look takes back one in vain. One that only
    gives back victims counts as in vain, because they are given back where a look is skipped, too.
    """

    givers: Givers | None = None
    _by_ask: dict[tuple[int, ...], tuple[int, int]] = attrs.field(factory=dict)
    """By request, a queue and the shapes of pods: the number of looks in vain, and the number still to skip."""

    def leaves_out(self, asked: tuple[int, ...]) -> bool:
        """Return whether to skip the next look."""
        vain, left = self._by_ask.get(asked, (0, 0))
        if left:
            self._by_ask[asked] = vain, left - 1
        return left > 0

    def copy_to(self, skips: Int64s, asking: Int64s) -> None:
        """Fill ``skips`` [K] with the looks to leave out for single pods of a shape, ``asking`` [K] with their queue.

        Where several queues ask for pods of one shape, the arrays hold one of them.
        """
        skips[:] = 0
        for (queue, *shapes), (_, left) in self._by_ask.items():
            if left and len(shapes) == 1:
                skips[shapes[0]], asking[shapes[0]] = left, queue

    def take_from(self, skips: Int64s, asking: Int64s) -> None:
        """Note which of the looks that `copy_to` wrote were left out since."""
        for asked, (vain, left) in self._by_ask.items():
            queue, *shapes = asked
            if left and len(shapes) == 1 and asking[shapes[0]] == queue:
                self._by_ask[asked] = vain, int(skips[shapes[0]])

    def note(self, asked: tuple[int, ...], *, in_vain: bool) -> None:
        """Record the result of a look."""
        vain = self._by_ask.get(asked, (0, 0))[0]
        vain = vain + 1 if in_vain else max(0, vain - 1)
        self._by_ask[asked] = vain, min(MOST_LEFT_OUT, 2 ** max(0, vain - PATIENCE + 1) - 1)


def disturbed(session: Session, victims: PodRows) -> PodRows:
    """Return the ``victims`` that lost or changed their places in the open statement."""
    status = session.columns.status[victims]
    found: PodRows = victims[(status == RELEASING) | (status == PIPELINED)]
    return found


def is_enough(session: Session, victims: PodRows, chunk: Int64s, member: Bools) -> bool:
    """Return whether no second look is needed: one pod goes and the aggressor's pod takes its place, or none goes.

    The two hold the same, or no pod in ``member`` holds fewer GPUs than the one that goes, and no group is below its
    minimum. Then only the order of victims chose that pod. It still needs a look if a group falls below its minimum
    while others have a surplus pod.
    """
    facts, columns = session.facts, session.columns
    lost = disturbed(session, victims)
    if not len(lost):
        return True
    if len(chunk) != 1 or len(lost) != 1 or columns.status[lost[0]] != RELEASING:
        return False
    pod, wanted = int(lost[0]), requested_gpu(facts, int(facts.pods.shape[chunk[0]]))
    held = accepted_gpu(facts, int(facts.pods.shape[pod]), int(columns.node[pod]))
    # The victim holds more or less than is needed. A cheaper one can exist only if some pod in reach holds less than
    # it.
    if held != wanted:
        if not wanted:  # a pod without GPUs may serve as well
            return False
        least = np.zeros(len(facts.queues.parent), np.int64)
        least_held(facts, columns, member, least)
        if ((least > 0) & (least < held)).any():
            return False
    group, leaf = int(facts.pods.group[pod]), int(facts.pods.leaf[pod])
    if facts.groups.simple[group] and columns.active[leaf] >= facts.groups.minimum[leaf]:
        return True
    return not has_surplus(session, np.flatnonzero(member))


def could_stay(session: Session, aggressor: Portion, waiting: Int64s, lost: PodRows, free: Int64s) -> bool:
    """Return whether sums allow that some of the ``lost`` pods stay; call it while the statement is open.

    ``waiting`` are the pods that it gives places to. ``free`` [N] is the capacity of nodes without evictions.
    """
    session.policy.prepare_all(waiting, session.all_nodes)
    room = Room(session, aggressor, waiting.tolist(), free, by_device=False)
    # Sums by node say nothing of levels, so the answer must be that some might stay.
    if room.levels or not room.smallest:
        return True
    facts, nodes = session.facts, session.columns.evicted_node[lost].tolist()
    amounts = [accepted_gpu(facts, int(facts.pods.shape[pod]), node) for pod, node in zip(lost, nodes, strict=True)]
    freed = dict[int, int]()
    for node, amount in zip(nodes, amounts, strict=True):
        freed[node] = freed.get(node, 0) + amount
    return any(
        room.could_hold({**freed, node: freed[node] - amount}) for node, amount in set(zip(nodes, amounts, strict=True))
    )


def has_surplus(session: Session, groups: GroupRows) -> bool:
    """Return whether one of ``groups`` may have more pods with a place than it needs; a tree always may."""
    facts = session.facts.groups
    if not facts.simple[groups].all():
        return True
    leaves = facts.first_subgroup[groups] + 1
    return bool((session.columns.active[leaves] > facts.minimum[leaves]).any())


class SecondLook:
    """The second look of one search."""

    def __init__(
        self,
        session: Session,
        part: Portion,
        devices: Devices | None,
        planner: Planner,
        replacing: Replacing,
        begin: Callable[[], Statement],
        judge: Callable[[Scenario, PodRows], bool],
        *,
        moves: bool,
    ) -> None:
        """Prepare; nothing is evicted yet.

        ``part`` is to be placed in full; ``devices`` is the check for its pods. ``begin`` returns a new statement.
        ``judge`` returns whether the victims of a scenario may be taken in the present state. ``moves``: all victims
        must find other places.
        """
        self._session = session
        self._part = part
        self._waiting = tuple(part.chunk().tolist())
        self._devices = devices
        self._planner = planner
        self._replacing = replacing
        self._begin = begin
        self._judge = judge
        self._moves = moves
        self._tries = 0
        self._failed: set[PlanKey] = set()
        """Plans that were tried in vain."""
        self._first = 0
        """The number of pods that lose or change their places by the first result."""
        self._bound: Cost | None = None
        """The cost of the first result."""

    def look_again(self, before: PodRows) -> Found | None:
        """Return cheaper victims than ``before``, the pods that the first result disturbs; None if none are found."""
        if not len(before):
            return None
        bound, plan = self._begin_with(before)
        plans = [each for each in self._planner.plans(plan) if self._planner.may_replace(each, plan)]
        return self._best(plans, bound) or self._best(self._planner.without_one(plan), bound)

    def give_back(self, before: PodRows) -> Found | None:
        """Return some of the victims that were ``disturbed`` before, if fewer of them serve; else None.

        This is the cheap part of ``look_again``: no other group goes in their place.
        """
        bound, plan = self._begin_with(before)
        return self._best(self._planner.given_back(plan), bound) or self._best(self._planner.without_one(plan), bound)

    def _begin_with(self, before: PodRows) -> tuple[Cost, dict[int, int]]:
        """Return the cost of the first result and the plan that it amounts to."""
        self._session.budget.begin_generator(GENERATOR)
        # For messages: spared pods are counted against the first result, not against the last try.
        self._first = len(before)
        self._bound = self._planner.cost_of(before)
        return self._bound, self._planner.plan_of(before)

    def exchanged(self, better: Found, before: PodRows) -> bool:
        """Return whether pods go in ``better`` that stayed before; call it while its statement is open."""
        return not np.isin(disturbed(self._session, better.victims), before).all()

    def looked_in_vain(self) -> Mapping[str, Fact]:
        """Return the facts about a look that ends with the victims it began with, for messages."""
        return {"smaller": 0 if self._bound is None else self._planner.refused_below(self._bound), "spared": 0}

    def search(self) -> Found | None:
        """Return victims where generators found none; None if there are none."""
        self._session.budget.begin_generator(GENERATOR)
        found = self._best(self._planner.plans(None), None)
        if found is not None:
            return found
        for plan in self._planner.all_that_may_go():
            found = self._best([plan], None)
            if found is None:
                continue
            # With all that may go it fits, so groups that are not needed are given back one by one.
            before = disturbed(self._session, found.victims)
            found.statement.discard()
            return self._reduced(self._planner.plan_of(before)) or self._best([plan], None, again=True)
        return None

    def _reduced(self, plan: dict[int, int]) -> Found | None:
        """Give groups of ``plan`` back, the most expensive first, with a trial of each; return None if none can go."""
        found: Found | None = None
        for group in self._planner.by_price(plan):
            without = {each: steps for each, steps in plan.items() if each != group}
            tried = self._best([without], None) if without and self._planner.serves(without) else None
            if tried is not None:
                plan, found = without, tried
                found.statement.discard()
        return None if found is None else self._best([plan], None, again=True)

    def _best(self, plans: Iterable[Plan], bound: Cost | None, *, again: bool = False) -> Found | None:
        """Return the first of ``plans`` that serves and costs less than ``bound``, its statement open.

        ``again``: the plan is known to serve, so the budget is not asked.
        """
        for plan in plans:
            key, cost = key_of(plan), self._planner.cost(plan)
            if key in self._failed or (bound is not None and cost >= bound):
                continue
            if not again:
                if self._tries >= MOST_TRIES or self._session.budget.grant() is not BudgetAnswer.GO:
                    return None
                self._tries += 1
            found = self._try(plan)
            if found is not None:
                lost = disturbed(self._session, found.victims)
                costs = self._planner.cost_of(lost)
                if bound is None or costs < bound:
                    smaller, spared = self._planner.refused_below(costs), max(0, self._first - len(lost))
                    return attrs.evolve(found, looked={"smaller": smaller, "spared": spared})
                found.statement.discard()
            # By content, since several drafts come down to the same set.
            self._failed.add(key)
            self._planner.refuse(plan)
        return None

    def _try(self, plan: Plan) -> Found | None:
        session = self._session
        batches = self._planner.batches(plan)
        victims = batches.pods
        if self._devices is not None and not self._devices.begin().add(victims.tolist()):
            return None
        statement = self._begin()
        scenario = Scenario(aggressor=GroupRow(self._part.group), waiting=self._waiting, potential=batches)
        if self._place(statement, victims) and self._judge(scenario, victims):
            group, states, moves = self._part.group, self._replacing.states, self._moves
            holds = books_all_they_ask_for(session, states, group, victims, moves=moves)
            if not holds:
                holds = self._replacing.holds(statement, self._part, victims, all_return=moves)
                # `holds` has undone all changes: they are made once more, to be committed.
                holds = holds and self._place(statement, victims)
            if holds:
                rows = losing(session.columns, batches.pods, batches.start, victims)
                return Found(
                    statement=statement,
                    scenario=scenario,
                    terms=None,
                    victims=victims,
                    batches=batches.chosen(rows),
                    failed=(),
                )
        statement.discard()
        return None

    def _place(self, statement: Statement, victims: PodRows) -> bool:
        """Evict ``victims``, place the aggressor, then victims if they fit; return whether the aggressor fits."""
        session = self._session
        statement.evict(victims)
        if not place_group(session, statement, self._part, session.all_nodes, promise=True):
            return False
        heap = GroupHeap(session)
        heap.fill(session.oldest_first(np.unique(session.facts.pods.group[victims])))
        while (portion := heap.pop()) is not None:
            mark = statement.mark()
            if not place_group(session, statement, portion, session.all_nodes, promise=True):
                statement.roll_back(mark)
                # Its next chunk is fixed in this state; see `finalize`.
                portion.chunk()
        return True
