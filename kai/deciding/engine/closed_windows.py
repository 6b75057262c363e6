"""What becomes of work when a window of its queue closes with ``evict``, and where a budget renews no slice.

When a window closes, the queue goes back to its quota.

Only work that started before the close is taken, and only as much as the queue holds beyond its quota. What a queue is
given later, by its over-quota weight, is its own again. Work that cannot be preempted goes last. This is no action of a
configuration: a queue says it, and every cycle heeds it, before anything is placed.

Once the queue holds no more than its quota of such work, nothing is left to take, so the cycles that follow need no
memory of the close.

Work without an end is charged to budgets slice by slice. When its slice is over and the next one does not fit what is
left, it is evicted (`evict_unrenewed`): the slice that began last goes first. Work with an end was charged for all of
its time before it started, and stays.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np

from kai.basics.schedules import clock_text
from kai.deciding.engine.session import Session
from kai.facts.model.axis import SHARED_RESOURCES, Bools, Float64s, GroupRows, PodRows
from kai.facts.model.budgets import ADMIT
from kai.facts.model.groups import Windows, path_to
from kai.facts.model.pod import ACTIVE_ALLOCATED
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Cause

NAME: Final = "windowclose"
BUDGET: Final = "budgetused"


def closed_queues(snapshot: Snapshot) -> Sequence[int]:
    """Return the rows of queues with a closed window whose work is evicted. Cost: nothing for the same queues."""
    queues = snapshot.queues

    def find() -> Sequence[int]:
        return [
            row for row, each in enumerate(queues) if each.windows is not None and each.windows.ended_at is not None
        ]

    return snapshot.memory.once("closed windows", (queues,), find)


def evict_after_close(session: Session) -> None:
    """Evict what started before a close and is beyond the quota of its queue; queues in the order of their names."""
    for row in closed_queues(session.snapshot):
        windows = session.snapshot.queues[row].windows
        if windows is not None:
            _Closing(session, row, windows).run()
    session.attend(-1)


def evict_unrenewed(session: Session) -> None:
    """Evict work without an end until each budget holds the slices of the rest; one statement for each group."""
    table, facts = session.snapshot.budgets, session.facts
    if table is None or not len(table.sliced):
        return
    for row, budget in enumerate(table.bounding):
        if budget.enforce != ADMIT or budget.spent is None:
            continue
        for group in sorted(_renewing(session, budget.queue, table.sliced), key=partial(_renewed_last, session)):
            if session.columns.budget_used[row] <= facts.budgets.left[row]:
                break
            queue = session.snapshot.queues[budget.queue]
            session.attend(group)
            rule = f"the budget {budget.name} of queue {queue.title} has too little left for its next slice"
            with session.statement(BUDGET, Cause.BUDGET, rule=rule) as statement:
                statement.evict(session.portion(group).holding(ACTIVE_ALLOCATED))
                statement.commit()
    session.attend(-1)


def _renewing(session: Session, queue: int, groups: GroupRows) -> Sequence[int]:
    """Return the groups in or below a queue that may be evicted."""
    below, owners = _below(session, queue), session.facts.groups.queue[groups]
    chosen = groups[below[owners] & session.facts.groups.preemptible[groups] & ~session.protected[groups]]
    return [int(group) for group in chosen]


def _renewed_last(session: Session, group: int) -> tuple[int, int, float, int]:
    facts = session.snapshot.groups[group]
    # The longer a group is charged for from now on, the later its slice began.
    return (-int(session.facts.budgets.duration[group]), facts.priority, -float(session.last_start[group]), group)


def _below(session: Session, row: int) -> Bools:
    """Return bool[Q + 1]: the queue and those below it; the last is for groups without a queue."""
    queues = session.snapshot.queues
    return np.array([*(row in path_to(queues, queue) for queue in range(len(queues))), False])


class _Closing:
    """One queue whose window has closed."""

    def __init__(self, session: Session, row: int, windows: Windows) -> None:
        self._session, self._row, self._windows = session, row, windows
        self._since = windows.ended_at or 0.0
        pods = {group: self._pods(group) for group in self._groups()}
        self._held = {group: self._amounts(rows) for group, rows in pods.items() if len(rows)}
        self._pods_of = pods

    def run(self) -> None:
        """Evict groups, one statement each, until the rest is within the quota."""
        quota = self._session.facts.queues.quota[self._row]
        total: Float64s = sum(self._held.values(), np.zeros(SHARED_RESOURCES))
        for group in sorted(self._held, key=self._order):
            beyond = (quota >= 0) & (total > quota)
            if not beyond.any():
                return
            # A group that holds none of what is beyond the quota would lose its work for nothing.
            if (self._held[group][beyond] > 0).any():
                self._evict(group)
                total = total - self._held[group]

    def _groups(self) -> Sequence[int]:
        """Return the unprotected groups in or below the queue that started before the window closed."""
        session = self._session
        below, started = _below(session, self._row), session.last_start
        mine = below[session.facts.groups.queue] & (started < self._since) & ~session.protected
        return np.flatnonzero(mine).tolist()

    def _pods(self, group: int) -> PodRows:
        """Return the pods of a group that have a place and were there before the close."""
        pods, known = self._session.portion(group).holding(ACTIVE_ALLOCATED), self._session.snapshot.pods
        # Pods that an elastic group got after the close were admitted under the quota that holds now.
        return pods[[known[pod].created < self._since for pod in pods.tolist()]] if len(pods) else pods

    def _amounts(self, pods: PodRows) -> Float64s:
        return sum((self._session.accepted(pod) for pod in pods.tolist()), np.zeros(SHARED_RESOURCES))

    def _order(self, group: int) -> tuple[bool, int, float, int]:
        """Return the key by which groups are taken: preemptible ones, low priorities, and late starts first."""
        session, facts = self._session, self._session.snapshot.groups[group]
        return (not facts.preemptible, facts.priority, -float(session.last_start[group]), group)

    def _evict(self, group: int) -> None:
        session, queue = self._session, self._session.snapshot.queues[self._row]
        session.attend(group)
        closed = clock_text(self._since, self._windows.timezone)
        rule = f"the window {self._windows.ended} of queue {queue.title} closed at {closed}"
        with session.statement(NAME, Cause.WINDOW, rule=rule) as statement:
            statement.evict(self._pods_of[group])
            statement.commit()
