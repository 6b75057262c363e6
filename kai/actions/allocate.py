"""Allocate: place pending groups on idle resources in fair order, or on resources that are being released.

    first the groups for which others were evicted in the cycle before, each once
    heap of groups that have enough pending pods
    pop the next one -> place its chunk -> commit, or undo
    a group with more pending pods goes back into the heap

Groups for which no plugin must be asked take the fast path (``kai.deciding.engine.fast_path``). This module is the
plain path and makes the same decisions.

Source: the peer's actions/allocate.
"""

from collections.abc import Iterator

import attrs

from kai.actions.placing import must_wait, place_waiting_group
from kai.deciding.engine.fast_path import FastPath
from kai.deciding.engine.heaps import GroupHeap
from kai.deciding.engine.host import BudgetAnswer
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.session import Session
from kai.deciding.engine.shortcuts import ALLOCATE
from kai.facts.model.axis import GroupRows
from kai.framework.decisions import Cause


@attrs.frozen
class Allocate:
    """Place pending groups on idle resources, or promise them resources that are being released."""

    name: str = "allocate"
    cause: Cause | None = None
    priority: int = 500

    def run(self, session: Session) -> None:
        """Try every waiting group, best first, until none is left or the budget stops it."""
        waiting = session.waiting_groups()
        if not len(waiting):
            return
        heap = GroupHeap(session, depth=session.parameters.queue_depth.get(self.name, -1))
        # Before the heap is filled: its order must count what these groups get.
        self._serve_awaited(session, waiting)
        heap.fill(waiting, again=True)
        turns = FastPath(session, heap, waiting).others() if session.takes(ALLOCATE) else _one_by_one(session, heap)
        for portion in turns:
            # Reports of errors name the group that the cycle worked on.
            session.attend(portion.group)
            # One chunk at a time: the fair order of groups may change after each.
            # A group that failed stays out: allocate takes room and makes none.
            if self._try(session, portion) and portion.has_pending():
                heap.push(portion)
            session.attend(-1)
        session.leave(heap.remaining(), served=len(waiting))

    def _serve_awaited(self, session: Session, waiting: GroupRows) -> None:
        """Try the groups for which others were evicted, each once: the freed places are meant for them.

        The fair order of queues may put the evicted group first instead. It would then be bound and evicted again in
        every cycle.
        """
        if not session.snapshot.past.awaited:
            return
        rows = {session.snapshot.groups[row].key: int(row) for row in waiting}
        for key in session.snapshot.past.awaited:
            # A group that no longer waits has no use for what was freed, and goes without a try.
            if key in rows and session.facts.groups.queue[rows[key]] >= 0:
                session.attend(rows[key])
                self._try(session, session.portion(rows[key]))
                session.attend(-1)

    def _try(self, session: Session, portion: Portion) -> bool:
        """Place the next chunk of one group, and return whether that succeeded."""
        group = portion.group
        # Read before anything is placed: a group that runs already does not start now.
        started = bool(session.columns.counted[group])
        with session.statement(self.name) as statement:
            if not place_waiting_group(session, statement, portion, session.all_nodes):
                return False
            waits = must_wait(portion, session)
            # The pods that fit now would hold their places idle until the rest of the gang arrives.
            if waits:
                statement.promise_all(group)
            statement.commit()
        if not waits and not started:
            session.note_time("last_start", group, session.clock.read())
        return True


def _one_by_one(session: Session, heap: GroupHeap) -> Iterator[Portion]:
    """Yield every group in its turn while the budget allows."""
    while (portion := heap.pop()) is not None:
        yield portion
        if session.budget.go_on() is not BudgetAnswer.GO:
            return
