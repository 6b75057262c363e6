"""Many searches of reclaim in one kernel call, for groups of one pod when only fair-share rules decide.

A search is left to the plain form, which can say why, if its victims may not go or none suffice. Where one plugin is
asked about pods, the kernel looks into that plugin's table of states (`Transitions`), if it has one. A group that may
not reclaim gets the note that the rules of fair shares give. The budget is asked about the searches afterwards, in
their order. If it refuses one, that search and all after it are undone.

`Served` hands out the decisions of such a run. Messages about evictions give the numbers of the victim's queue and of
the aggressor's, at the level where their paths part.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from kai.actions.search.group_states import FEW, GroupStates, no_table
from kai.actions.search.replacing import finalize
from kai.actions.search.second_look import Looks, has_surplus
from kai.deciding.engine.bindings import Foreseen
from kai.deciding.engine.heaps import GroupHeap
from kai.deciding.engine.host import BudgetAnswer, Repeating
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.session import Session
from kai.deciding.engine.shortcuts import (
    FIRST_PROBE,
    LAST_PROBE,
    NEXT_SCENARIO,
    ONE_CALL,
    ONE_NODE,
    TOO_FEW,
    TRANSITIONS,
    TRIAL,
)
from kai.facts.kernels import reclaiming
from kai.facts.kernels.booking import accepted_gpu
from kai.facts.kernels.columns import OP_EVICT
from kai.facts.kernels.place import TransitionTable
from kai.facts.kernels.prefix import CHANGES, VICTIMS
from kai.facts.kernels.reclaiming import Reclaiming
from kai.facts.kernels.trying import FAILED
from kai.facts.model.axis import Bools, Float64s, Int64s, PodRows
from kai.framework.decisions import Cause, Decision, Evict, Nominate
from kai.framework.fairness import Fairness, owed_model, refusal, used_before
from kai.framework.verdict import Fact

if TYPE_CHECKING:
    from kai.framework.hooks import Victims

Explain = Callable[[Session, int, Float64s | Int64s], Mapping[str, Fact]]
"""Returns the facts about a queue from its usage before any eviction.

Only the fact named ``USED`` depends on that usage; the others stay the same for a whole cycle.
"""
USED: Final = "used"


def facts_of(
    session: Session, explain: Explain | None, used: Float64s | Int64s, pods: PodRows, aggressor: int
) -> dict[int, Mapping[str, Fact]]:
    """Return, for each of ``pods``, the facts about its queue and the aggressor's queue where their paths part.

    Where a quota of a GPU model is the reason, the facts have what both queues used and are owed of it. ``used`` [Q, 3]
    is the usage of queues before the search.
    """
    if explain is None:
        return {}
    parents, groups = session.facts.queues.parent, session.facts.groups.queue
    own = int(groups[aggressor])
    out: dict[int, Mapping[str, Fact]] = {}
    for pod in pods.tolist():
        victim, mine = int(groups[session.facts.pods.group[pod]]), own
        if parents[victim] != parents[mine]:
            victim, mine = (int(parents[row]) if parents[row] >= 0 else row for row in (victim, mine))
        out[pod] = {
            "victim": explain(session, victim, used[victim]),
            "aggressor": explain(session, mine, used[mine]),
            **_owed_model(session, pod, victim, mine),
        }
    return out


def _owed_model(session: Session, pod: int, victim: int, mine: int) -> dict[str, Fact]:
    """Return what two queues used and are owed of the model of a pod's GPUs, if it is taken because of that."""
    fairness = next((each.fairness for each in session.policy.victims if each.fairness is not None), None)
    node = int(session.snapshot.pod_node[pod])
    if fairness is None or node < 0:
        return {}
    found = owed_model(session.facts, fairness, victim, mine)
    if found is None or found[0] != session.facts.nodes.model[node]:
        return {}
    return {"model": {"name": session.snapshot.nodes[node].gpu_model, "victim": found[1], "aggressor": found[2]}}


class Served:
    """The decisions of searches for one cause."""

    def __init__(self, session: Session, rule: str, explain: Explain | None) -> None:
        """Begin without decisions; ``rule`` and ``explain`` are for messages."""
        self._session = session
        self._rule = rule
        self._explain = explain
        self._told: dict[int, Mapping[str, Fact]] = {}
        """The facts about queues in messages, by queue."""
        self._held: dict[tuple[int, int], int] = {}
        """Thousandths of GPUs that pods hold, by shape and node."""

    def hand_out(self, work: Reclaiming) -> None:
        """Hand out the statements of ``work`` as the session does, one at a time."""
        session = self._session
        served = work.served[: work.state[reclaiming.STATEMENTS]]
        count = int(work.state[reclaiming.DECISIONS])
        decided = work.decided[:count]
        evicted = decided[decided[:, reclaiming.KIND] == OP_EVICT, reclaiming.POD]
        groups = session.facts.pods.group[evicted]
        if len(groups):
            session.note_time("last_eviction", groups[groups >= 0], session.clock.read())
        begins = [*served[:, 1].tolist(), count]
        aggressors = np.repeat(served[:, 0], np.diff(begins))
        decisions = tuple(self._decisions(decided, work.used[:count], aggressors))
        session.stamp += len(served)
        session.emit(Cause.RECLAIM.name, *(decisions[begin:end] for begin, end in pairwise(begins)))

    def _decisions(self, decided: Int64s, used: Float64s, aggressors: Int64s) -> Iterable[Decision]:
        names = self._session.bindings.names_at(decided[:, reclaiming.PLACEMENT])
        rows = zip(decided.tolist(), used.tolist(), aggressors.tolist(), names, strict=True)
        for (kind, pod, node, _, victim, mine), held, aggressor, devices in rows:
            if kind == OP_EVICT:
                yield self._eviction(pod, node, aggressor, (victim, held[:3]), (mine, held[3:]))
            else:
                yield Nominate(pod=pod, node=node, devices=devices, action=Cause.RECLAIM.name)

    def _eviction(
        self,
        pod: int,
        moved_to: int,
        aggressor: int,
        victim: tuple[int, Sequence[float]],
        mine: tuple[int, Sequence[float]],
    ) -> Evict:
        session = self._session
        group = int(session.facts.pods.group[pod])
        facts = {"victim": self._numbers(*victim), "aggressor": self._numbers(*mine)} if self._explain else {}
        return Evict(
            pod=pod,
            cause=Cause.RECLAIM,
            aggressor=aggressor,
            rule=self._rule,
            facts=facts,
            gang_size=session.portions.gang_size(group),
            moved_to=moved_to,
            gpus=self._gpus(pod),
        )

    def _numbers(self, queue: int, held: Sequence[float]) -> Mapping[str, Fact]:
        """Return the facts about ``queue``, whose usage was ``held`` before the search."""
        known = self._told.get(queue)
        if known is None:
            assert self._explain is not None  # noqa: S101 - asked by the caller
            known = self._told[queue] = self._explain(self._session, queue, np.array(held, np.float64))
        return {**known, USED: tuple(held)}

    def _gpus(self, pod: int) -> int:
        """Return the thousandths of GPUs that ``pod`` held on its node when the cycle began."""
        session = self._session
        # From the snapshot: the columns may show another place of the pod by now.
        shape, node = int(session.facts.pods.shape[pod]), int(session.snapshot.pod_node[pod])
        known = self._held.get((shape, node))
        if known is None:
            known = self._held[shape, node] = int(accepted_gpu(session.facts, shape, node))
        return known


_ASKED = ("queues", "groups", "may_reclaim", "before_search", "accept")
"""The hooks about victims that a search calls."""
MOST = 64
"""The most searches in a row about which the budget is asked together; they take some milliseconds."""


@attrs.frozen
class Run:
    """The outcome of a run of searches."""

    left: Portion | None
    """The group for which the plain form must search; None: no group is left, or no time."""
    is_served: bool
    """Whether some group was served."""


class OneCall:
    """The searches of one run of reclaim."""

    def __init__(
        self,
        session: Session,
        states: GroupStates,
        fairness: Fairness,
        generator: str,
        rule: str,
        explain: Explain | None,
        failed: Bools,
        looks: Looks,
    ) -> None:
        """Prepare; ``generator`` is the name of the first generator, ``rule`` and ``explain`` are for messages.

        ``failed`` [Q] marks queues that have groups whose searches failed; it is updated by the caller. ``looks`` says
        which second looks are left out.
        """
        self._session = session
        self._states = states
        self._generator = generator
        self._looks = looks
        self._rule = rule
        self._explain = explain
        self._served = Served(session, rule, explain)
        self._foreseen = _foreseen(session)
        self._may_grow = _may_grow(session, states, self._foreseen)
        self._plain: Bools = states.plain.copy()
        """[G] Groups that the kernel tries."""
        self._work = Reclaiming(
            groups=states.arrays,
            trial=states.trial,
            # Trials elsewhere ask no table.
            probe=states.probe.replace(plain=self._plain),
            fairness=fairness,
            greedy=np.zeros(len(session.snapshot.queues), np.bool_),
            pairs=np.zeros((len(session.snapshot.queues) + 1, 2), np.int64),
            failed=failed,
            nodes=session.all_nodes,
            node=np.zeros(1, np.int64),
            few=FEW,
            # A state and a holding may change with each.
            per_change=session.ledger.room_for(0) + 2,
            served=np.zeros((MOST, 4), np.int64),
            ineligible=np.zeros(len(session.snapshot.groups), np.int64),
            decided=np.zeros((16 * MOST, reclaiming.WIDTH), np.int64),
            used=np.zeros((16 * MOST, 2 * reclaiming.COUNT), np.float64),
            state=np.zeros(7, np.int64),
            grows=np.zeros(1, np.bool_),
            ranked=session.ranks_victims,
            surplus=np.zeros(1, np.bool_),
            skips=np.zeros(len(session.facts.shapes.kind), np.int64),
            asking=np.zeros(len(session.facts.shapes.kind), np.int64),
            least=np.zeros(len(session.snapshot.queues), np.int64),
        )

    @classmethod
    def of(
        cls, session: Session, states: GroupStates, rule: str, explain: Explain | None, failed: Bools, looks: Looks
    ) -> "OneCall | None":
        """Return an instance, or None if the kernel would leave out a check that searches need: then all are plain."""
        needed = (TRIAL, FIRST_PROBE, LAST_PROBE, ONE_CALL)
        fairness = _fairness_of(session)
        generator = next((each for each in session.policy.plugins if each.proposals is not None), None)
        if (
            fairness is None
            or generator is None
            or generator.proposals is None
            or not (generator.proposals.proposes_by_node and generator.proposals.begins_with_recorded)
            or not all(session.takes(each) for each in needed)
            or session.policy.judges_pods
            or session.snapshot.past.protected
            or session.caps.are_set
        ):
            return None
        return cls(session, states, fairness, generator.proposals.name or generator.name, rule, explain, failed, looks)

    def run(self, heap: GroupHeap, portion: Portion | None) -> Run:
        """Search for ``portion``, if given, and then for groups off ``heap``, until one needs the plain form."""
        session, is_served = self._session, False
        if isinstance(session.budget, Repeating):
            # The plain form has used the answers that were repeated for it.
            session.budget = session.budget.budget
        group = -1 if portion is None else portion.group
        while True:
            heap.refresh()
            before, order = session.ledger.mark, heap.order()
            ended = self._search(heap, group, MOST)
            granted, answer = self._ask()
            noted, refused = int(self._work.state[reclaiming.INELIGIBLES]), -1
            # The kernel ran ahead of the budget: undo all of the call, then repeat only the granted searches.
            if answer is not BudgetAnswer.GO:
                refused, noted = self._work.served[granted, [0, 3]].tolist()
                session.ledger.undo_to(before)
                heap.restore(order)
                self._work.state[:] = 0
                if granted:
                    # The same searches from the same state find the same; only their number differs.
                    self._search(heap, group, granted)
            if granted:
                self._looks.take_from(self._work.skips, self._work.asking)
            is_served = is_served or granted > 0
            self._hand_out(heap)
            self._note_ineligible(heap, noted)
            if answer is BudgetAnswer.STOP:
                return Run(None, is_served)
            if answer is BudgetAnswer.NEXT_GENERATOR:
                return Run(_popped(heap, refused, None if granted else portion), is_served)
            if ended == reclaiming.FINISHED:
                return Run(None, is_served)
            group = -1
            if ended == reclaiming.SERVED:
                continue
            portion = heap.taken(int(self._work.state[reclaiming.GROUP]))
            # Of a statement that Python has to commit, a plugin would have to know before its details.
            if ended == reclaiming.LEFT or self._foreseen is not None:
                return Run(portion, is_served)
            answer = self._serve_alone(heap, portion.group)
            if answer is not BudgetAnswer.GO:
                return Run(None if answer is BudgetAnswer.STOP else portion, is_served)
            is_served, portion = True, None

    def _search(self, heap: GroupHeap, group: int, most: int) -> int:
        """Run the kernel until it is done or needs more from Python than room in arrays."""
        session = self._session
        self._follow_states()
        work = self._work
        work.state[:] = 0
        self._looks.copy_to(work.skips, work.asking)
        # Parts of devices are filtered in Python, set by set; where there are none, no search of a call makes any.
        work.grows[0] = self._may_grow and not session.columns.slot_used.any()
        if work.ranked:
            may_lose = self._states.placed & session.facts.groups.preemptible
            work.surplus[0] = has_surplus(session, np.flatnonzero(may_lose).astype(np.int64))
        while True:
            ended = reclaiming.reclaim_groups(
                session.facts,
                session.columns,
                session.ledger.offsets,
                session.policy.rules,
                session.policy.waiting_rules,
                session.policy.vectors,
                heap.records,
                work,
                group,
                most,
            )
            if ended == reclaiming.LOOK:
                self._states.complete()
            elif ended == reclaiming.NO_ROOM:
                session.ledger.reserve(int(work.probe.state[CHANGES]) + 1)
            elif ended == reclaiming.ASK:
                work = self._answer()
            else:
                return ended
            group = int(work.state[reclaiming.GROUP])

    @cached_property
    def _with_table(self) -> Bools:
        """[G] Groups that the kernel tries with a table of states."""
        dynamic = self._session.policy.dynamic
        return self._states.plain_but(dynamic if self._foreseen is None else dynamic & (self._foreseen.ask < 0))

    def _follow_states(self) -> None:
        """Bring what the kernel knows of a plugin's states of nodes up to date."""
        if self._foreseen is None:
            return
        table = self._foreseen.begin()
        self._plain[:] = self._states.plain if table is None else self._with_table
        self._use(no_table(len(self._foreseen.ask)) if table is None else table)

    def _answer(self) -> Reclaiming:
        """Return the work with answers to the questions that ended the kernel."""
        assert self._foreseen is not None  # noqa: S101 - there is no question without a table
        known = self._work.trial.table
        return self._use(self._foreseen.answer(known.wanted[: known.wants[0]]))

    def _use(self, table: TransitionTable) -> Reclaiming:
        """Return the work with another table of states."""
        self._work = self._work.replace(trial=self._work.trial.replace(table=table))
        return self._work

    def _hand_out(self, heap: GroupHeap) -> None:
        """Commit the searches of the last call, and hand their decisions out."""
        count = int(self._work.state[reclaiming.STATEMENTS])
        if count:
            heap.drop(self._work.served[:count, 0])
            # Before the decisions go out: they come from the kernel's records, since later searches have changed the
            # columns.
            self._session.ledger.seal()
            if self._foreseen is not None:
                decided = self._work.decided[: self._work.state[reclaiming.DECISIONS]]
                self._foreseen.complete(decided[decided[:, reclaiming.KIND] != OP_EVICT, reclaiming.POD])
            self._served.hand_out(self._work)

    def _note_ineligible(self, heap: GroupHeap, count: int) -> None:
        """Note on the first ``count`` groups of the last call that may not reclaim why they may not."""
        if not count:
            return
        groups = self._work.ineligible[:count]
        heap.drop(groups)
        queues = self._session.facts.groups.queue[groups]
        for queue in np.unique(queues).tolist():
            self._session.records.note_alike(groups[queues == queue], refusal(queue).reasons)

    def _serve_alone(self, heap: GroupHeap, group: int) -> BudgetAnswer:
        """Commit a search whose victims wait again: their next chunks must be computed before the commit."""
        session = self._session
        statement = session.statement(Cause.RECLAIM.name, Cause.RECLAIM, group, self._rule)
        if self._search(heap, group, 0) != reclaiming.SERVED:
            raise AssertionError("a search that succeeded was made again, and failed")
        answer = self._granted(int(self._work.state[reclaiming.FAILURES]))
        if answer is not BudgetAnswer.GO:
            statement.discard()
            return answer
        self._looks.take_from(self._work.skips, self._work.asking)
        trial, probe = self._work.trial, self._work.probe
        finalize(session, trial.failed[: trial.state[FAILED]].tolist())
        victims = probe.victims[: probe.state[VICTIMS]]
        statement.facts = facts_of(session, self._explain, used_before(self._work.fairness), victims, group)
        statement.commit()
        return answer

    def _ask(self) -> tuple[int, BudgetAnswer]:
        """Ask the budget about the searches of the last call; return the number granted, and the last answer."""
        count = int(self._work.state[reclaiming.STATEMENTS])
        for granted in range(count):
            answer = self._granted(int(self._work.served[granted, 2]))
            if answer is not BudgetAnswer.GO:
                return granted, answer
        return count, BudgetAnswer.GO

    def _granted(self, failures: int) -> BudgetAnswer:
        """Ask the budget as the plain form would; on NEXT_GENERATOR the plain form goes on from these answers.

        ``failures``: the scenarios that failed before the one that served.
        """
        session, answers = self._session, list[BudgetAnswer]()
        if session.budget.begin_group() is BudgetAnswer.STOP:
            return BudgetAnswer.STOP
        session.budget.begin_generator(self._generator)
        asks = [session.budget.grant]
        if failures:
            # The plain form begins anew once its first scenario has failed: it meets that one again and passes it over.
            asks += [session.budget.pass_over, *[session.budget.grant] * failures]
        for ask in (*asks, session.budget.grant):  # the last one is for the last probe
            answers.append(ask())
            if answers[-1] is BudgetAnswer.STOP:
                return BudgetAnswer.STOP
            if answers[-1] is BudgetAnswer.NEXT_GENERATOR:
                session.budget = Repeating(session.budget, answers)
                return BudgetAnswer.NEXT_GENERATOR
        return BudgetAnswer.GO


def _popped(heap: GroupHeap, group: int, portion: Portion | None) -> Portion:
    """Return ``group``, which is ``portion``, or is popped after groups that were noted already."""
    while portion is None or portion.group != group:
        portion = heap.pop()
    return portion


def _may_grow(session: Session, states: GroupStates, foreseen: Foreseen | None) -> bool:
    """Return whether sums tell a kernel all that the plain form knows of scenarios after the first one.

    Where plugins are asked about victims, the plain form also asks the budget otherwise about such scenarios.
    """
    proposals = next(each.proposals for each in session.policy.plugins if each.proposals is not None)
    return (
        foreseen is None
        and all(session.takes(each) for each in (NEXT_SCENARIO, ONE_NODE, TOO_FEW))
        and proposals.only_by_node
        and bool((states.exact == states.plain).all())
        and not session.facts.shapes.claimed.any()
        and not session.facts.nodes.books_as_peer
    )


def _foreseen(session: Session) -> Foreseen | None:
    """Return the table of a plugin for kernels; None if no plugin has one."""
    found = session.policy.foreseen if session.takes(TRANSITIONS) else None
    return None if found is None else Foreseen(session, session.details, *found)


def _fairness_of(session: Session) -> Fairness | None:
    """Return the inputs of the fair-share rules if these alone decide about victims; None: other hooks do too."""
    asked: list[Victims] = [
        each for each in session.policy.victims if any(getattr(each, hook) is not None for hook in _ASKED)
    ]
    return asked[0].fairness if len(asked) == 1 else None
