"""Trial of a scenario: evict its victims, then place the aggressor and all affected groups again, as promises.

Source: the peer's actions/common (simulated allocation of a preemptor and its victims).
"""

from collections.abc import Sequence

import attrs
import numpy as np

from kai.actions.placing import place_group
from kai.actions.search.group_states import GroupStates
from kai.deciding.engine.heaps import GroupHeap
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.session import Session
from kai.deciding.engine.shortcuts import HELD, TRIAL
from kai.deciding.engine.statement import Statement
from kai.facts.kernels import trying
from kai.facts.kernels.columns import KIND_FRACTION, KIND_MEMORY
from kai.facts.kernels.groups import find_waiting
from kai.facts.kernels.trying import Aggressor
from kai.facts.model.axis import Bools, Int64s, NodeRows, PodRow, PodRows
from kai.facts.model.pod import Status

_LOST = 1 << Status.RELEASING | 1 << Status.PIPELINED


@attrs.define
class Replacing:
    """The trials of the victims of one search."""

    session: Session
    feasible: NodeRows
    states: GroupStates | None
    """The state of groups for the compiled form; None: use the plain form."""
    _aggressor: tuple[Portion, Aggressor] | None = None
    _open: Bools | None = None

    def run(self, statement: Statement, part: Portion, victims: PodRows) -> Sequence[int] | None:
        """Try ``victims``; return None if the aggressor's ``part`` found no place. The changes stay in ``statement``.

        On success, return the groups that found no place, in the form that ``finalize`` takes.
        """
        states = self.states
        groups = self.session.facts.pods.group
        # A kernel cannot ask plugins, so it tries plain groups only; both forms decide alike.
        if (
            states is None
            or not self.session.takes(TRIAL)
            or not states.plain[part.group]
            or not states.plain[groups[victims]].all()
        ):
            nodes = self.session.columns.node[victims]
            # With the victims' own nodes, where the aggressor may have no place, but they may stay.
            reachable = np.union1d(self.feasible, nodes[nodes >= 0])
            statement.evict(victims)
            return () if self._place_again(statement, part, victims, reachable) else None
        return self._at_once(statement, states, part, victims)

    def holds(self, statement: Statement, part: Portion, victims: PodRows, *, all_return: bool) -> bool:
        """Return whether the aggressor fits if only the victims go that lost their places; undo all changes.

        The aggressor may need more than what is booked, such as a place for a reservation pod or room in a domain by an
        estimate. If a victim was placed again in that room, the next cycle would refuse the aggressor, and the evicted
        pods would come back and be evicted again.

        ``all_return``: victims that lost their places must also find others beside the aggressor, for the same reason.
        A victim whose room went to another victim that stays after all would drive the aggressor out again.
        """
        losing = victims[(_LOST >> self.session.columns.status[victims]) & 1 == 1]
        statement.discard()
        statement.evict(losing)
        # In the next cycle the released resources are idle, so availability must not favour other nodes here.
        policy = self.session.policy
        rules, policy.rules = policy.rules, policy.waiting_rules
        try:
            held = place_group(self.session, statement, part, self.session.all_nodes, promise=True)
            held = held and not (all_return and self._lose_for_good(statement, losing))
        finally:
            policy.rules = rules
        statement.discard()
        return held

    def is_held(self, part: Portion, victims: PodRows) -> bool:
        """Return whether the trial at hand shows by itself that ``holds`` is true and another trial ends as it did.

        It does if all that it changed is that ``victims`` went and one pod got a place among all nodes. Then ``holds``
        would evict the same pods, and the pod finds at least that node; rules for scores only change which it prefers.
        """
        session, group = self.session, part.group
        # One operation for each pod that went or got a place; what was taken back does not count.
        return (
            session.takes(HELD)
            and int(session.columns.counters[0]) == len(victims) + 1
            and bool((session.columns.status[victims] == Status.RELEASING).all())
            and bool(session.facts.groups.simple[group])
            and bool(session.policy.leaves_alone(np.array([group], np.int64)).all())
        )

    def _lose_for_good(self, statement: Statement, losing: PodRows) -> bool:
        """Return whether some of ``losing`` find no other place after the aggressor, which goes first."""
        session = self.session
        groups = np.unique(session.facts.pods.group[losing])
        heap = GroupHeap(session)
        heap.fill(session.oldest_first(groups))
        while (portion := heap.pop()) is not None:
            if not place_group(session, statement, portion, session.all_nodes, promise=True):
                return True
        return bool((session.columns.status[losing] == Status.RELEASING).any())

    def _at_once(
        self, statement: Statement, states: GroupStates, part: Portion, victims: PodRows
    ) -> Sequence[int] | None:
        aggressor = self._described(part)
        room = states.room_for(victims) + 2 * len(aggressor.pods)
        return try_at_once(self.session, states, statement, aggressor, victims, room)

    def _described(self, part: Portion) -> Aggressor:
        """Return ``part`` in the form of kernels; memoized, since no trial changes it."""
        known = self._aggressor
        if known is not None and known[0] is part:
            return known[1]
        if self._open is None:
            self._open = np.zeros(len(self.session.all_nodes), np.bool_)
            self._open[self.feasible] = True
        aggressor = Aggressor(
            group=np.array([part.group], np.int64),
            pods=part.chunk(),
            elastic=np.array([part.elastic_state()], np.float64),
            amounts=part.amounts(),
            feasible=self._open,
        )
        self._aggressor = (part, aggressor)
        return aggressor

    def _place_again(self, statement: Statement, part: Portion, victims: Int64s, nodes: NodeRows) -> bool:
        """Promise places to the aggressor and the groups of its victims, in queue order.

        Return whether the aggressor got its place.
        """
        session = self.session
        affected = np.zeros(len(session.snapshot.groups), np.bool_)
        affected[session.facts.pods.group[victims]] = True
        affected[part.group] = False
        waiting = np.zeros_like(affected)
        find_waiting(session.facts, session.columns, waiting)
        # Groups that only wait are in the heap too: they decide the order of queues, and `pop_among` drops them.
        others = waiting | affected
        others[part.group] = False
        affected[part.group] = True
        heap = GroupHeap(session)
        heap.fill(session.oldest_first(np.flatnonzero(others).astype(np.int64)))
        heap.push(part)
        placed = False
        remaining = int(affected.sum())
        while remaining and (portion := heap.pop_among(affected)) is not None:
            remaining -= 1
            mark = statement.mark()
            if place_group(session, statement, portion, nodes, promise=True):
                placed = placed or portion is part
            elif portion is part:
                return False
            else:
                statement.roll_back(mark)
                # Fix the group's next chunk here; see ``finalize``. The heap has already computed its amounts.
                portion.chunk()
        return placed


def books_all_they_ask_for(
    session: Session, states: GroupStates | None, aggressor: int, victims: PodRows, *, moves: bool
) -> bool:
    """Return whether the group fits wherever the booked amounts are free, because its pods request nothing else.

    ``moves``: the victims are moved and must fit too. The peer assumes that they do.
    """
    if not session.ranks_victims:
        return True
    if not moves and states is not None and states.exact[aggressor]:
        return True
    groups = np.array([aggressor], np.int64)
    if moves:
        groups = np.union1d(groups, session.facts.pods.group[victims])
    if states is not None and states.exact[groups].all():
        return True
    pods = np.concatenate([session.portion(group).pods() for group in groups.tolist()])
    shapes = session.facts.pods.shape[pods]
    kinds = session.facts.shapes.kind[shapes]
    sharing = (kinds == KIND_FRACTION) | (kinds == KIND_MEMORY)
    alone = bool(session.policy.leaves_alone(groups).all())
    return alone and not bool((sharing | session.policy.dynamic[shapes]).any())


def try_at_once(
    session: Session, states: GroupStates, statement: Statement, aggressor: Aggressor, victims: PodRows, room: int
) -> Sequence[int] | None:
    """Try ``victims`` of plain groups like ``Replacing.run``, in a kernel that makes at most ``room`` changes."""
    ledger = session.ledger
    ledger.reserve(room)
    while True:
        ended = trying.try_victims(
            session.facts,
            session.columns,
            ledger.offsets,
            session.policy.rules,
            session.policy.vectors,
            states.trial,
            aggressor,
            victims,
        )
        state = states.trial.state
        # A kernel cannot ask plugins. Each round prepares one more shape and begins anew, so there are few rounds.
        if ended == trying.UNPREPARED:
            statement.discard()
            pod = PodRow(int(state[trying.POD]))
            session.policy.prepare(int(session.facts.pods.shape[pod]), pod, session.all_nodes)
            continue
        return states.trial.failed[: state[trying.FAILED]].tolist() if ended == trying.PLACED else None


def finalize(session: Session, failed: Sequence[int]) -> None:
    """Compute the next chunks of groups without a place in the state of the successful simulation.

    These chunks outlive the commit, as in the peer. The amounts of a chunk outlive it too if nothing happened to the
    group after the heap asked for them. A group of one leaf without a waiting pod has no next chunk and is skipped.
    """
    groups, pending = session.facts.groups, session.columns.pending
    for code in failed:
        if groups.simple[code // 2] and not pending[groups.first_subgroup[code // 2] + 1]:
            continue
        portion = session.portion(code // 2)
        portion.chunk()
        if code % 2 == 0:
            portion.amounts()
