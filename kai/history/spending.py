"""What of budgets was used, from the database of history: by a queue and the queues that were below it then.

`Meter` is read before each cycle. It adds up what is over once, and keeps the sums: what ended before the instant up to
which all is recorded never changes. So a reading takes what ended since the last one and what is still held, however
long the period is; the first one reads the period once. Its sums are exact: all intervals of the period would give the
same. `spent_of` is a first reading.

What is still held counts up to the instant that is asked for, not up to what was recorded last: a budget must not lag
behind.

Units: see `kai.history.facts`.
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

import attrs

from kai.api.conventions.budgets import (
    ONCE,
    Period,
    carried_over,
    period_at,
    period_before,
    usable_budgets,
    weight_of,
    weighted,
)
from kai.api.scheduling.queue import Queue, QueueBudget
from kai.facts.model.budgets import Key, Spent
from kai.history.database import OPEN, heard_until, queues_by_row
from kai.history.facts import Connection, Ended
from kai.history.sums import Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


REFUNDS: Final[Mapping[str, frozenset[Ended]]] = {
    "nodeFailure": frozenset({Ended.NODE}),
    "preempted": frozenset({Ended.RECLAIMED, Ended.PREEMPTED, Ended.CONSOLIDATED}),
}
"""The endings whose use is given back, by the word of a budget."""
_MOST_NAMED: Final = 5
_MOST_PERIODS: Final = 1000
_NAMED_EVERY: Final = 60_000
_MOST_JOBS: Final = 256
_UNIT: Final = 1000


class Kind(NamedTuple):
    """What a budget may weigh or give back apart."""

    model: str
    ended: int | None
    """Why it was held no longer, an `Ended`; None for what is still held."""


Amounts = Counter[Kind]
"""GPU-microseconds by kind."""
Named = dict[int, Amounts]
"""The same for each user or job, by row."""


@attrs.define(eq=False)
class _Row:
    """What one row of the table of queues held in a window and holds no more."""

    users: Named = attrs.field(factory=lambda: defaultdict(Counter))
    jobs: Named = attrs.field(factory=lambda: defaultdict(Counter))
    total: Amounts = attrs.field(factory=Counter)

    def add(self, kind: Kind, user: int, job: int, gpus: int) -> None:
        self.total[kind] += gpus
        self.users[user][kind] += gpus
        self.jobs[job][kind] += gpus
        if len(self.jobs) > 2 * _MOST_JOBS:
            # A month may have a million jobs, and only the five largest are named. A job of many small parts may lose
            # some of them here, which costs it a place in that list, and no budget a number.
            most = heapq.nlargest(_MOST_JOBS, self.jobs.items(), key=lambda each: each[1].total())
            self.jobs = defaultdict(Counter, most)


@attrs.define(eq=False)
class _Held:
    """What one row of the table of queues still holds."""

    total: Amounts = attrs.field(factory=Counter)
    pace: Counter[str] = attrs.field(factory=Counter)
    """Thousandths of GPUs by model."""


_SOME: Final = (
    "SELECT queue, (SELECT model FROM place WHERE place.id = held.place) AS model, ended, user, job, gpu,"
    " CASE WHEN until = :open THEN 1 ELSE 0 END AS is_open, MAX(since, :from) AS a,"
    " MIN(CASE WHEN until = :open THEN :at ELSE until END, :to) AS b FROM held"
    # The plus keeps SQLite from the index of begins, by which it would read all rows.
    " WHERE until >= :settled AND +since < :to"
)
# What ended before `heard` is over for good; the next transaction may still end rows at that very instant.
_OVER: Final = (
    "SELECT queue, model, ended, user, job, SUM(gpu * (b - a)) FROM"
    f" ({_SOME} AND until < :heard) AS clipped WHERE b > a GROUP BY queue, model, ended, user, job"
)
_RECENT: Final = f"({_SOME}) AS clipped WHERE b >= a"


_TALLIED: Final = 900_000
"""Milliseconds between two tallies."""
_MOST_TALLIED: Final = 16
"""Jobs of one queue in a tally: a budget names five."""


@attrs.define(eq=False)
class _Window:
    """What was held from one instant to another: sums of what is over, and queries for the rest."""

    since: int
    until: int
    settled: int
    """Rows that ended before it are in ``rows``, or ended before the window."""
    rows: dict[int, _Row] = attrs.field(factory=lambda: defaultdict(_Row))
    held: dict[int, _Held] = attrs.field(factory=dict)
    """What ended at ``settled`` or later, and what is still held."""

    @classmethod
    def known(cls, connection: Connection, since: int, until: int, heard: int) -> _Window:
        """Return a window with what the last tally in the database has of it."""
        made = cls(since, until, since)
        rows = connection.execute(
            "SELECT settled, queue, model, ended, user, job, used FROM tally"
            " WHERE since = ? AND until = ? AND settled <= ?",
            (since, until, heard),
        )
        for settled, queue, model, ended, user, job, used in rows:
            made.settled, row, kind = int(settled), made.rows[queue], Kind(model, ended)
            if user is not None:
                row.users[user][kind] += used
            elif job is not None:
                row.jobs[job][kind] += used
            else:
                row.total[kind] += used
        return made

    def tally(self) -> Iterator[tuple[int, int, int, int, str, int | None, int | None, int | None, int]]:
        """Yield the rows of a tally: what is over."""
        around = (self.since, self.until, self.settled)
        for queue, row in self.rows.items():
            most = heapq.nlargest(_MOST_TALLIED, row.jobs.items(), key=lambda each: each[1].total())
            parts: list[tuple[int | None, int | None, Amounts]] = [(None, None, row.total)]
            parts += [(user, None, kinds) for user, kinds in row.users.items()]
            parts += [(None, job, kinds) for job, kinds in most]
            for user, job, kinds in parts:
                for kind, used in kinds.items():
                    yield (*around, queue, kind.model, kind.ended, user, job, int(used))

    def read(self, connection: Connection, heard: int, at: int) -> None:
        """Take for good what ended before ``heard``, and the open rest up to ``at``."""
        if heard > self.settled:
            for queue, model, ended, user, job, gpus in connection.execute(_OVER, self._values(at, heard)):
                self.rows[queue].add(Kind(model, ended), user, job, gpus)
            self.settled = heard
        # Anew each time: what is still held has no final number.
        held: dict[int, _Held] = defaultdict(_Held)
        sums = "SELECT queue, model, ended, SUM(gpu * (b - a)), SUM(gpu * is_open) FROM"
        for queue, model, ended, gpus, now in connection.execute(
            f"{sums} {_RECENT} GROUP BY queue, model, ended", self._values(at)
        ):
            held[queue].total[Kind(model, ended)] += gpus
            held[queue].pace[model] += now
        self.held = held

    def recent(self, connection: Connection, by: str, at: int) -> dict[int, Named]:
        """Return what is not among ``rows``, by queue and then ``user`` or ``job``."""
        found: dict[int, Named] = defaultdict(lambda: defaultdict(Counter))
        sums = f"SELECT queue, model, ended, {by}, SUM(gpu * (b - a)) FROM"
        for queue, model, ended, who, gpus in connection.execute(
            f"{sums} {_RECENT} GROUP BY queue, model, ended, {by}", self._values(at)
        ):
            found[queue][who][Kind(model, ended)] += gpus
        return found

    def _values(self, at: int, heard: int = 0) -> dict[str, int]:
        times = {"from": self.since, "to": self.until, "settled": self.settled, "heard": heard, "at": at}
        return {"open": OPEN, **times}


@attrs.define(eq=False)
class _Tree:
    """The queues that were ever recorded."""

    last: int = -1
    below: dict[str, list[int]] = attrs.field(factory=dict)
    """The rows of each queue, by UID, and of the queues in all places that they had below it."""

    def settle(self, connection: Connection) -> None:
        """Read the queues, unless none was added."""
        last = connection.execute("SELECT COALESCE(MAX(id), 0) FROM queue").fetchone()[0]
        # Rows of queues are only ever added, so the highest number tells whether there are new ones.
        if last == self.last:
            return
        self.last, self.below = last, {}
        for row, facts in queues_by_row(connection).items():
            for uid in {each.uid for each in facts.path}:
                self.below.setdefault(uid, []).append(row)


@attrs.frozen
class _Names:
    """Who used most of a budget, as of an instant."""

    at: int
    since: int
    users: tuple[tuple[str, int], ...]
    jobs: tuple[tuple[str, int], ...]


@attrs.define(eq=False)
class Meter:
    """What budgets used, kept between readings of one database; one thread at a time may read.

    Who used most is at most a minute old, unlike all amounts.
    """

    _heard: int = -1
    _tallied: int = -1
    _tree: _Tree = attrs.field(factory=_Tree)
    _windows: dict[tuple[int, int], _Window] = attrs.field(factory=dict)
    _names: dict[Key, _Names] = attrs.field(factory=dict)

    def read(self, connection: Connection, queues: Iterable[Queue], at: int) -> dict[Key, Spent]:
        """Return what was used of each budget by an instant, by the names of queue and budget.

        Nothing is recorded after it, so an instant before the last record counts as that.

        Cost: a few queries for each distinct period, over what is held and what ended since the last reading. The
            first one, and the first after the database was replaced by an older one: the intervals of the period.
        """
        wanted = [(queue, budget) for queue in queues if queue.spec.budgets for budget in usable_budgets(queue)]
        if not wanted:
            return {}
        heard = heard_until(connection) or 0
        # The file was replaced, as by a backup: sums of the other one would count twice or never.
        if heard < self._heard:
            self._tree, self._windows, self._names, self._tallied = _Tree(), {}, {}, -1
        self._heard, at = heard, max(at, heard)
        self._tree.settle(connection)
        reading = _Reading(connection, self._tree, heard, at, self._windows)
        found: dict[Key, Spent] = {}
        names: dict[Key, _Names] = {}
        for queue, budget in wanted:
            period, key = period_at(budget, at / 1000), (queue.metadata.name, budget.name)
            if period is None:
                continue
            window, rows = reading.window(period.begin, OPEN), reading.rows(queue)
            known = self._names.get(key)
            # Names need queries by user and job, and decide nothing: so they may be older than amounts.
            if known is None or known.since != period.begin or at - known.at >= _NAMED_EVERY:
                known = reading.named(budget, window, rows)
            names[key] = known
            found[key] = Spent(
                since=period.begin,
                at=max(at, period.begin),
                total=_total(budget, window, rows),
                pace=_pace(budget, window, rows),
                carried=reading.carried(queue, budget, period),
                users=known.users,
                jobs=known.jobs,
            )
        # Windows that no budget asked for go, such as those of periods that are over.
        self._windows, self._names = reading.windows, names
        return found

    def tally(self) -> Tally | None:
        """Return what is over of all periods, for the writer of the database; None for a quarter of an hour after that.

        The meter of the next process begins with it, and so reads only what ended since.
        """
        if self._tallied >= 0 and self._heard - self._tallied < _TALLIED:
            return None
        self._tallied = self._heard
        return tuple(row for window in self._windows.values() for row in window.tally())


def spent_of(connection: Connection, queues: Iterable[Queue], at: int) -> dict[Key, Spent]:
    """Return what was used of each budget by an instant, as a `Meter` that reads for the first time."""
    return Meter().read(connection, queues, at)


@attrs.frozen(kw_only=True)
class Account:
    """One budget in one of its periods, up to the last record or the end of the period."""

    queue: Queue
    budget: QueueBudget
    period: Period
    carried: int
    spent: int
    users: tuple[tuple[str, int], ...]
    """All who used something, the most first, with what they used."""


def accounts(connection: Connection, queues: Iterable[Queue], since: int, until: int) -> Iterator[Account]:
    """Yield what was used of each budget in each of its periods that a time has a part of, the earliest first.

    Periods count as a whole. A queue without UID, as in a file, is the one that had its name last.
    """
    heard, tree = heard_until(connection) or 0, _Tree()
    tree.settle(connection)
    uids = {each.name: each.uid for each in queues_by_row(connection).values()}
    for queue in queues:
        uid = queue.metadata.uid or uids.get(queue.metadata.name, "")
        known, rows = attrs.evolve(queue, metadata=attrs.evolve(queue.metadata, uid=uid)), tree.below.get(uid, ())
        for budget in usable_budgets(queue):
            for period in _periods(budget, since, until):
                end = OPEN if period.until == inf else round(period.until * 1000)
                # At the end of a period that is over: what runs on since then belongs to the next one.
                reading = _Reading(connection, tree, heard, min(heard, end), {})
                window = reading.window(period.begin, end)
                yield Account(
                    queue=queue,
                    budget=budget,
                    period=period,
                    carried=reading.carried(known, budget, period),
                    spent=_total(budget, window, rows),
                    users=reading.named(budget, window, rows, most=None).users,
                )


def _periods(budget: QueueBudget, since: int, until: int) -> Iterator[Period]:
    period = period_at(budget, since / 1000)
    # A report over centuries, by a slip in its flags, must end.
    for _ in range(_MOST_PERIODS):
        if period is None or (period.begin >= until and period.begin > since):
            return
        yield period
        if budget.period == ONCE or period.until == inf:
            return
        period = period_at(budget, period.until)


@attrs.define(eq=False)
class _Reading:
    """One reading of a meter."""

    connection: Connection
    tree: _Tree
    heard: int
    at: int
    known: Mapping[tuple[int, int], _Window]
    """The windows of the last reading."""
    windows: dict[tuple[int, int], _Window] = attrs.field(factory=dict)
    _recent: dict[tuple[int, str], dict[int, Named]] = attrs.field(factory=dict)

    def rows(self, queue: Queue) -> Sequence[int]:
        """Return the rows of a queue, and of the queues in all places that they had below it."""
        return self.tree.below.get(queue.metadata.uid or queue.metadata.name, ())

    def window(self, since: int, until: int) -> _Window:
        """Return what was held from one instant to another, up to now."""
        found = self.windows.get((since, until))
        if found is None:
            found = self.known.get((since, until)) or _Window.known(self.connection, since, until, self.heard)
            found.read(self.connection, self.heard, self.at)
            self.windows[since, until] = found
        return found

    def carried(self, queue: Queue, budget: QueueBudget, period: Period) -> int:
        """Return what is carried over from the period before."""
        before = period_before(budget, period) if budget.carry_over else None
        # A queue has nothing left of a period that it did not see from its beginning.
        if before is None or (queue.metadata.creation_timestamp or 0.0) > before.since:
            return 0
        window = self.window(before.begin, period.begin)
        return carried_over(budget, _total(budget, window, self.rows(queue)))

    def named(
        self, budget: QueueBudget, window: _Window, rows: Sequence[int], most: int | None = _MOST_NAMED
    ) -> _Names:
        """Return who used most; all of them where ``most`` is None."""
        recent = [self._recent_of(window, by) for by in ("user", "job")]
        over = [window.rows[row] for row in rows if row in window.rows]
        users = _most(budget, [*(each.users for each in over), *_some(recent[0], rows)], most)
        jobs = _most(budget, [*(each.jobs for each in over), *_some(recent[1], rows)], most)
        return _Names(
            at=self.at,
            since=window.since,
            users=_with_names(users, partial(_user_name, self.connection)),
            jobs=_with_names(jobs, partial(_job_name, self.connection)),
        )

    def _recent_of(self, window: _Window, by: str) -> dict[int, Named]:
        key = (window.since, by)
        if key not in self._recent:
            self._recent[key] = window.recent(self.connection, by, self.at)
        return self._recent[key]


def _some(named: Mapping[int, Named], rows: Sequence[int]) -> Iterator[Named]:
    return (named[row] for row in rows if row in named)


def _user_name(connection: Connection, row: int) -> str:
    return str(connection.execute("SELECT text FROM word WHERE id = ?", (row,)).fetchone()[0])


def _job_name(connection: Connection, row: int) -> str:
    # A job may be gone: its facts are deleted with its last interval, and a window keeps its row.
    found = connection.execute("SELECT text, name FROM job JOIN word ON word.id = namespace WHERE job.id = ?", (row,))
    return "/".join(found.fetchone() or ("", ""))


def _total(budget: QueueBudget, window: _Window, rows: Sequence[int]) -> int:
    spared = _refunded(budget)
    by_model: Counter[str] = Counter()
    for row in rows:
        for part in (window.rows.get(row), window.held.get(row)):
            for kind, gpus in () if part is None else part.total.items():
                if kind.ended not in spared:
                    by_model[kind.model] += gpus
    # Rounded once for each model: parts of many jobs, each rounded down, would add up to less.
    return sum(gpus * weight_of(budget, model) // _UNIT for model, gpus in by_model.items())


def _pace(budget: QueueBudget, window: _Window, rows: Sequence[int]) -> int:
    held = Counter[str]()
    for row in rows:
        if row in window.held:
            held.update(window.held[row].pace)
    return sum(weighted(gpus, weight_of(budget, model)) for model, gpus in held.items())


def _refunded(budget: QueueBudget) -> frozenset[int | None]:
    return frozenset(ended for each in budget.refund for ended in REFUNDS[each])


def _most(budget: QueueBudget, parts: Iterable[Named], most: int | None) -> list[tuple[int, int]]:
    """Return who used something, by row, with what they used; the most first, and all where ``most`` is None."""
    spared, found, weights = _refunded(budget), defaultdict[int, int](int), dict[str, int]()
    for part in parts:
        for who, kinds in part.items():
            for kind, gpus in kinds.items():
                if kind.ended in spared:
                    continue
                # A budget has few models and a month many users and jobs.
                weight = weights.get(kind.model)
                if weight is None:
                    weight = weights[kind.model] = weight_of(budget, kind.model)
                found[who] += gpus * weight // _UNIT
    used = [(-gpus, row) for row, gpus in found.items() if gpus > 0]
    return sorted(used) if most is None else heapq.nsmallest(most, used)


def _with_names(most: Iterable[tuple[int, int]], name_of: Callable[[int], str]) -> tuple[tuple[str, int], ...]:
    return tuple([(name_of(row), -gpus) for gpus, row in most])
