"""What of budgets was used, from the database of history: by a queue and the queues that were below it then.

`use_below` is the one question; `spent_of` asks it for each budget of each queue in its present period. What is still
held counts up to the instant that is asked for, not up to what was recorded last: a budget must not lag behind.

Units: see `kai.history.facts`.
"""

from __future__ import annotations

import heapq
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from kai.api.conventions.budgets import carried_over, period_at, period_before, usable_budgets, weight_of, weighted
from kai.facts.model.budgets import Spent
from kai.history.database import OPEN, queues_by_row
from kai.history.facts import Ended

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from kai.api.scheduling.queue import Queue, QueueBudget
    from kai.facts.model.budgets import Key
    from kai.history.facts import QueueFacts

REFUNDS: Final[Mapping[str, frozenset[Ended]]] = {
    "nodeFailure": frozenset({Ended.NODE}),
    "preempted": frozenset({Ended.RECLAIMED, Ended.PREEMPTED, Ended.CONSOLIDATED}),
}
"""The endings whose use is given back, by the word of a budget."""
_MOST_NAMED: Final = 5
_UNIT: Final = 1000


class Use(NamedTuple):
    """What one kind of GPU was held, by how that ended and by whom."""

    model: str
    ended: Ended | None
    """None for what is still held."""
    who: int
    """The row of the user's word, or of the job."""
    gpus: int
    """GPU-microseconds."""
    held: int
    """Thousandths of GPUs that are still held."""


def use_below(
    connection: sqlite3.Connection, queues: Sequence[int], since: int, until: int, *, by: str = "user"
) -> list[Use]:
    """Return what some rows of queues used between two instants, by GPU model, ending, and ``user`` or ``job``."""
    places = ",".join("?" * len(queues))
    rows = connection.execute(
        f"SELECT model, ended, {by}, SUM(gpu * (b - a)), SUM(gpu * is_open) FROM"
        " (SELECT (SELECT model FROM place WHERE place.id = held.place) AS model, ended, user, job, gpu,"
        " until = ? AS is_open, MAX(since, ?) AS a, MIN(CASE WHEN until = ? THEN ? ELSE until END, ?) AS b FROM held"
        f" WHERE until > ? AND since < ? AND queue IN ({places})) WHERE b >= a GROUP BY model, ended, {by}",
        (OPEN, since, OPEN, until, until, since, until, *queues),
    )
    return [
        Use(model, None if ended is None else Ended(ended), who, gpus, held) for model, ended, who, gpus, held in rows
    ]


def rows_below(queues: Mapping[int, QueueFacts], uid: str) -> tuple[int, ...]:
    """Return the rows of a queue, and of the queues in all places that they had below it."""
    return tuple(row for row, facts in queues.items() if any(each.uid == uid for each in facts.path))


def spent_of(connection: sqlite3.Connection, queues: Iterable[Queue], at: int) -> dict[Key, Spent]:
    """Return what was used of each budget by an instant, by the names of queue and budget.

    Cost: that of the intervals in the period and in the one before, where a budget carries over.
    """
    budgeted = [each for each in queues if each.spec.budgets]
    known = queues_by_row(connection) if budgeted else {}
    found: dict[Key, Spent] = {}
    for queue in budgeted:
        rows = rows_below(known, queue.metadata.uid or queue.metadata.name)
        for budget in usable_budgets(queue):
            made = _spent(connection, rows, queue, budget, at)
            if made is not None:
                found[queue.metadata.name, budget.name] = made
    return found


def _spent(
    connection: sqlite3.Connection, rows: Sequence[int], queue: Queue, budget: QueueBudget, at: int
) -> Spent | None:
    period = period_at(budget, at / 1000)
    if period is None:
        return None
    since = period.begin
    uses = use_below(connection, rows, since, at)
    before = period_before(budget, period) if budget.carry_over else None
    carried = 0
    # A queue has nothing left of a period that it did not see from its beginning.
    if before is not None and (queue.metadata.creation_timestamp or 0.0) <= before.since:
        carried = carried_over(budget, _total(budget, use_below(connection, rows, before.begin, since)))
    jobs = use_below(connection, rows, since, at, by="job")
    return Spent(
        since=since,
        at=max(at, since),
        total=_total(budget, uses),
        pace=sum(weighted(use.held, weight_of(budget, use.model)) for use in uses),
        carried=carried,
        users=_most(budget, uses, partial(_user_name, connection)),
        jobs=_most(budget, jobs, partial(_job_name, connection)),
    )


def _user_name(connection: sqlite3.Connection, row: int) -> str:
    return str(connection.execute("SELECT text FROM word WHERE id = ?", (row,)).fetchone()[0])


def _job_name(connection: sqlite3.Connection, row: int) -> str:
    found = connection.execute("SELECT text, name FROM job JOIN word ON word.id = namespace WHERE job.id = ?", (row,))
    return "/".join(found.fetchone() or ("", ""))


def _total(budget: QueueBudget, uses: Iterable[Use]) -> int:
    spared = _refunded(budget)
    by_model: Counter[str] = Counter()
    for use in uses:
        if use.ended not in spared:
            by_model[use.model] += use.gpus
    return sum(gpus * weight_of(budget, model) // _UNIT for model, gpus in by_model.items())


def _refunded(budget: QueueBudget) -> frozenset[Ended | None]:
    return frozenset(ended for each in budget.refund for ended in REFUNDS[each])


def _most(budget: QueueBudget, uses: Iterable[Use], name_of: Callable[[int], str]) -> tuple[tuple[str, int], ...]:
    """Return who used most, with what they used."""
    spared, found = _refunded(budget), Counter[int]()
    for use in uses:
        if use.ended not in spared:
            found[use.who] += use.gpus * weight_of(budget, use.model) // _UNIT
    most = heapq.nsmallest(_MOST_NAMED, ((-gpus, row) for row, gpus in found.items() if gpus > 0))
    return tuple([(name_of(row), -gpus) for gpus, row in most])
