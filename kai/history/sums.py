"""Sums of what each queue held up to the begin of an hour, so that a question about weeks reads few rows.

A row of ``hour`` is made once an hour is over, for each queue for which something began or ended in it. It says, as of
the end of that hour, what the queue has held altogether since sums began, what it held at that instant, and the
integral with the half-life that the scheduler is configured with. Between two rows nothing began or ended. So what a
queue held up to any instant is the latest row before it, carried on in a straight line, and the begins and ends of the
last hour. What it held from one instant to another is a difference. All amounts are integers: the difference is exactly
the sum over the intervals of ``held``.

The capacity of the cluster is summed alike, as if it were a queue (`WHOLE`), and so is what was down or over.

A row is written in the transaction that learns that its hour is over, after which nothing can begin or end in that
hour. So a kill loses no row and makes none twice. A file of an older version begins its sums with the first transaction
of a newer kai, and one with another half-life begins the integrals anew; questions about times before read intervals.

Units: see `kai.history.facts`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.history.facts import NOTHING, RESOURCES, Amounts, Connection, Rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

HOUR: Final = 3_600_000
DAY: Final = 24 * HOUR
HOURLY: Final = 32 * DAY
"""For how long each hour keeps its row; of older ones the last of each day stays."""
WHOLE, DOWN, OVER = 0, -1, -2
"""Rows that stand for the capacity of the cluster, and for what of it was down or over; queues have rows from 1 on."""

SCHEMA: Final = """
CREATE TABLE hour (
  queue INTEGER NOT NULL, hour INTEGER NOT NULL, gpu NOT NULL, cpu NOT NULL, memory NOT NULL,
  gpu_now INTEGER NOT NULL, cpu_now INTEGER NOT NULL, memory_now INTEGER NOT NULL,
  gpu_faded REAL NOT NULL, cpu_faded REAL NOT NULL, memory_faded REAL NOT NULL,
  PRIMARY KEY (queue, hour)
) WITHOUT ROWID;
CREATE TABLE closed (
  one INTEGER PRIMARY KEY CHECK (one = 1), first INTEGER NOT NULL, daily INTEGER NOT NULL, last INTEGER NOT NULL,
  half_life INTEGER NOT NULL, fades INTEGER NOT NULL
);
CREATE INDEX held_since ON held (since);
CREATE INDEX capacity_since ON capacity (since)
"""
"""``hour`` and all of ``closed`` but the half-life count hours since the epoch.

Sums hold from ``first`` to ``last``; up to ``daily`` only the last row of each day (UTC) is there.
"""
TALLY: Final = """
CREATE TABLE tally (
  since INTEGER NOT NULL, until INTEGER NOT NULL, settled INTEGER NOT NULL, queue INTEGER NOT NULL, model TEXT NOT NULL,
  ended INTEGER, user INTEGER, job INTEGER, used INTEGER NOT NULL
)
"""
"""What was held in the periods of budgets and ended before ``settled``: the memory of `kai.history.spending.Meter`, for
the next process. Each queue has rows of its own, of each of its users and of its largest jobs, in GPU-microseconds.
"""

Tally = tuple[tuple[int, int, int, int, str, int | None, int | None, int | None, int], ...]
"""The rows of ``tally``."""


def put_tally(connection: Connection, rows: Tally) -> None:
    """Replace the memory of budgets. Cost: one statement for each row."""
    connection.execute("DELETE FROM tally")
    connection.executemany("INSERT INTO tally VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)


_LARGEST: Final = (1 << 63) - 1

Faded = tuple[float, float, float]
"""One integral for each resource, in units of amounts times milliseconds."""
NO_INTEGRAL: Final[Faded] = (0.0, 0.0, 0.0)


def weight(a: float, b: float, at: float, half_life: float) -> float:
    """Return the integral of the weight over [a, b], seen at ``at``: b - a without a half-life (0).

    Units: all in the same unit of time.
    """
    if half_life <= 0:
        return b - a
    pace = math.log(2) / half_life
    # The same as a difference of powers: 1 - e^-2x = 2 tanh x / (1 + tanh x) loses no digits where a and b are near.
    half = math.tanh((b - a) / 2 * pace)
    return 2 / pace * math.exp((b - at) * pace) * half / (1 + half)


@attrs.frozen
class Sum:
    """What a queue held up to an instant.

    Units: ``at`` in milliseconds; ``held`` in amounts over time since sums began; ``now`` in amounts.
    """

    at: int
    held: Amounts = NOTHING
    now: Amounts = NOTHING
    """What began, and has not ended before ``at``."""
    faded: Faded = NO_INTEGRAL
    """The integral with the half-life of the file, seen at ``at``; of what was held since that half-life holds."""

    def carried(self, at: int, changes: Iterable[Change], half_life: int, fades: int) -> Sum:
        """Return the sum up to ``at``, with what began or ended meanwhile."""
        passed, fades_by_now = at - self.at, half_life > 0 and fades < at
        held = [amount + now * passed for amount, now in zip(self.held, self.now, strict=True)]
        present = list(self.now)
        # Integrals begin at `fades`, which is later than sums where the half-life was changed.
        base = max(self.at, fades)
        kept = 2.0 ** ((self.at - at) / half_life) if fades_by_now and self.at > fades else 0.0
        span = weight(base, at, at, half_life) if fades_by_now else 0.0
        faded = [one * kept + now * span for one, now in zip(self.faded, self.now, strict=True)]
        for instant, sign, amounts in changes:
            span = weight(max(instant, fades), at, at, half_life) if fades_by_now else 0.0
            for each, amount in enumerate(amounts):
                held[each] += sign * amount * (at - instant)
                present[each] += sign * amount
                faded[each] += sign * amount * span
        gpu, cpu, memory = faded
        return Sum(at, Amounts(*held), Amounts(*present), (gpu, cpu, memory))


Change = tuple[int, int, Amounts]
"""An instant, 1 for a begin or -1 for an end, and how much began or ended."""
_EVENTS: Final = (
    ("held", "queue", ("gpu", "cpu", "memory")),
    ("capacity", str(WHOLE), ("gpu", "cpu", "memory")),
    ("capacity", str(DOWN), ("gpu_down", "cpu_down", "memory_down")),
    ("capacity", str(OVER), ("gpu_over", "cpu_over", "memory_over")),
)


def _changes(connection: Connection, since: int, until: int) -> dict[int, list[Change]]:
    """Return what began and ended from ``since`` to before ``until``, by the row of the queue."""
    found: dict[int, list[Change]] = {}
    for table, queue, columns in _EVENTS:
        # Most nodes have nothing down or over: such rows change no sum.
        some = " OR ".join(f"{each} != 0" for each in columns)
        for column, sign in (("since", 1), ("until", -1)):
            rows = connection.execute(
                f"SELECT {queue}, {column}, {', '.join(columns)} FROM {table}"
                f" WHERE {column} >= ? AND {column} < ? AND ({some})",
                (since, until),
            )
            for row, instant, *amounts in rows:
                found.setdefault(row, []).append((instant, sign, Amounts(*amounts)))
    return found


_NOW: Final = tuple(f"hour.{each}_now" for each in RESOURCES)
_HELD: Final = ", ".join((*(f"hour.{each}" for each in RESOURCES), *_NOW))
_FADED: Final = ", ".join((*_NOW, *(f"hour.{each}_faded" for each in RESOURCES)))
_ALL: Final = ", ".join((*(f"hour.{each}" for each in RESOURCES), _FADED))


def _rows(connection: Connection, hour: int, columns: str) -> Rows:
    """Return queue, hour and columns of the last row of each queue up to an hour."""
    return connection.execute(
        f"SELECT hour.queue, hour.hour, {columns} FROM"
        f" (SELECT id FROM queue UNION ALL VALUES ({WHOLE}), ({DOWN}), ({OVER})) AS known JOIN hour"
        " ON hour.queue = known.id"
        " AND hour.hour = (SELECT MAX(hour) FROM hour AS of WHERE of.queue = known.id AND of.hour <= ?)",
        (hour,),
    )


def _latest(connection: Connection, hour: int) -> dict[int, Sum]:
    """Return the last sum of each queue up to an hour, by row."""
    return {row: _sum(at, values) for row, at, *values in _rows(connection, hour, _ALL)}


def _sum(hour: int, values: Sequence[Any]) -> Sum:
    held = Amounts(*(int(each) for each in values[:3]))  # text beyond 64 bits
    gpu, cpu, memory = values[6:]
    return Sum(hour * HOUR, held, Amounts(*values[3:6]), (gpu, cpu, memory))


# ------------------------------------------------------------------------------------------------------------- writing


@attrs.define(eq=False)
class Hours:
    """The hours that are summed, as the writer keeps them; each method is a part of one of its transactions."""

    connection: Connection
    last: int
    half_life: int
    fades: int
    sums: dict[int, Sum]
    hourly: int = HOURLY

    @classmethod
    def begin(cls, connection: Connection, heard: int | None, at: int, half_life: int) -> Hours:
        """Return the hours of a file in which all is known up to ``heard``, before anything is changed.

        A new file, in which nothing is known, has nothing before ``at``.
        """
        hour = (at if heard is None else heard) // HOUR
        row = connection.execute("SELECT last, half_life, fades FROM closed").fetchone()
        if row is None:
            # In a file of an older version sums are good from the next midnight on, since `daily` counts whole days.
            first, fades = (0, 0) if heard is None else (-(-hour // 24) * 24, hour)
            connection.execute("INSERT INTO closed VALUES (1, ?, ?, ?, ?, ?)", (first, first, hour, half_life, fades))
            made = cls(connection, hour, half_life, fades, {})
            for queue, now in _present(connection, hour * HOUR).items():
                made.put(queue, Sum(hour * HOUR, now=now))
            return made
        last, known, fades = row
        # An integral does not say when it grew, so it cannot be turned into that of another half-life.
        if known != half_life:
            fades = last
            connection.execute("UPDATE closed SET half_life = ?, fades = ?", (half_life, fades))
        return cls(connection, last, half_life, fades, _latest(connection, last))

    def close(self, heard: int) -> None:
        """Sum the hours that are over, once all is written that is known up to ``heard``."""
        hour = heard // HOUR
        if hour <= self.last:
            return
        by_end: dict[tuple[int, int], list[Change]] = {}
        for queue, changes in _changes(self.connection, self.last * HOUR, hour * HOUR).items():
            for change in changes:
                by_end.setdefault((change[0] // HOUR + 1, queue), []).append(change)
        # By hour first: the sum of a later hour is carried on from the earlier one.
        for end, queue in sorted(by_end):
            before = self.sums.get(queue) or Sum(self.last * HOUR)
            self.put(queue, before.carried(end * HOUR, by_end[end, queue], self.half_life, self.fades * HOUR))
        self.last = hour
        self.connection.execute("UPDATE closed SET last = ?", (hour,))

    def put(self, queue: int, found: Sum) -> None:
        """Write one row."""
        # Memory of a large cluster passes 64 bits within years. The column has no type, so text is kept exactly.
        held = [each if each <= _LARGEST else str(each) for each in found.held]
        values = (queue, found.at // HOUR, *held, *found.now, *found.faded)
        self.connection.execute(f"INSERT INTO hour VALUES (?{',?' * (len(values) - 1)})", values)
        self.sums[queue] = found

    def forget(self, at: int, oldest: int) -> None:
        """Keep no sum before ``oldest``, the begin of a day, but the last of each queue; of older days one for each."""
        first, daily = self.connection.execute("SELECT first, daily FROM closed").fetchone()
        first = max(first, min(oldest // HOUR, self.last))
        before, daily = daily, max(daily, (at - self.hourly) // DAY * 24)
        self.connection.execute("UPDATE closed SET first = ?, daily = ?", (first, daily))
        # The last row up to `first` stays: a question about that instant is carried on from it.
        kept = [(queue, each.at // HOUR) for queue, each in _latest(self.connection, first).items()]
        self.connection.executemany("DELETE FROM hour WHERE queue = ? AND hour < ?", kept)
        between = "hour > :before AND hour <= :daily"
        self.connection.execute(
            # A row says what is true at the end of its hour, so that of midnight belongs to the day before.
            f"DELETE FROM hour WHERE {between} AND (queue, hour) NOT IN"
            f" (SELECT queue, MAX(hour) FROM hour WHERE {between} GROUP BY queue, (hour - 1) / 24)",
            {"before": before, "daily": daily},
        )


def _present(connection: Connection, at: int) -> dict[int, Amounts]:
    """Return what began before an instant, and had not ended before it, by the row of the queue."""
    found: dict[int, Amounts] = {}
    for table, queue, columns in _EVENTS:
        sums = ", ".join(f"SUM({each})" for each in columns)
        rows = connection.execute(
            f"SELECT {queue} AS k, {sums} FROM {table} WHERE until >= ? AND since < ? GROUP BY k", (at, at)
        )
        found |= {row: Amounts(*amounts) for row, *amounts in rows if any(amounts)}
    return found


# ------------------------------------------------------------------------------------------------------------- reading


@attrs.frozen
class Summed:
    """From when to when a file has sums.

    Units: milliseconds.
    """

    first: int
    daily: int
    """Before it there is one sum for each day."""
    half_life: int
    fades: int
    """Since when integrals count, with this half-life."""
    heard: int

    @classmethod
    def of(cls, connection: Connection) -> Summed | None:
        """Return the sums of a database; None if no scheduler has written to it."""
        row = connection.execute("SELECT first, daily, half_life, fades, heard FROM closed, writer").fetchone()
        if row is None:
            return None
        first, daily, half_life, fades, heard = row
        return cls(first * HOUR, daily * HOUR, half_life, fades * HOUR, heard)

    def base(self, at: int) -> int:
        """Return the instant before ``at`` from which sums are carried on."""
        step = HOUR if at >= self.daily else DAY
        return at // step * step


def held_up_to(connection: Connection, summed: Summed, at: int) -> dict[int, Amounts]:
    """Return what each queue held up to an instant, by row, since sums began; queues that held nothing may be missing.

    Holds: ``summed.first <= at <= summed.heard``.
    """
    base = summed.base(at)
    found: dict[int, Amounts] = {}
    for queue, hour, gpu, cpu, memory, *now in _rows(connection, base // HOUR, _HELD):
        passed = at - hour * HOUR  # sums beyond 64 bits are text
        found[queue] = Amounts(int(gpu) + now[0] * passed, int(cpu) + now[1] * passed, int(memory) + now[2] * passed)
    for queue, changes in _changes(connection, base, at).items():
        held = found.get(queue, NOTHING)
        for instant, sign, (gpu, cpu, memory) in changes:
            passed = sign * (at - instant)
            held = Amounts(held.gpu + gpu * passed, held.cpu + cpu * passed, held.memory + memory * passed)
        found[queue] = held
    return found


def held_between(connection: Connection, summed: Summed, since: int, until: int) -> dict[int, Amounts]:
    """Return exactly what each queue held from one instant to another, by row, as far as sums reach.

    Holds: ``summed.first <= since <= until <= summed.heard``.
    """
    before, after = held_up_to(connection, summed, since), held_up_to(connection, summed, until)
    return {queue: held.plus(before.get(queue, NOTHING), -1) for queue, held in after.items()}


def faded_between(connection: Connection, summed: Summed, since: int, until: int) -> dict[int, Faded]:
    """Return the integrals over a time with the half-life of the file, seen at its end, by row.

    Holds: ``summed.fades <= since <= until <= summed.heard``.
    """
    before, after = (_faded_up_to(connection, summed, each) for each in (since, until))
    kept = 2.0 ** ((since - until) / summed.half_life)
    found: dict[int, Faded] = {}
    for queue, (gpu, cpu, memory) in after.items():
        earlier = before.get(queue, NO_INTEGRAL)
        found[queue] = (
            # Rounding may leave a difference just below 0, and no queue held less than nothing.
            max(0.0, gpu - kept * earlier[0]),
            max(0.0, cpu - kept * earlier[1]),
            max(0.0, memory - kept * earlier[2]),
        )
    return found


def _faded_up_to(connection: Connection, summed: Summed, at: int) -> dict[int, Faded]:
    """Return `Sum.faded` of each queue, carried on to an instant: the same in numbers, without an object for each."""
    base, half_life, fades = summed.base(at), summed.half_life, summed.fades
    factors: dict[int, tuple[float, float]] = {}
    found: dict[int, Faded] = {}
    for queue, hour, gpu_now, cpu_now, memory_now, gpu, cpu, memory in _rows(connection, base // HOUR, _FADED):
        if hour not in factors:
            begin = hour * HOUR
            kept = 2.0 ** ((begin - at) / half_life) if begin > fades else 0.0
            factors[hour] = (kept, weight(max(begin, fades), at, at, half_life))
        kept, span = factors[hour]
        found[queue] = (gpu * kept + gpu_now * span, cpu * kept + cpu_now * span, memory * kept + memory_now * span)
    for queue, changes in _changes(connection, base, at).items():
        gpu, cpu, memory = found.get(queue, NO_INTEGRAL)
        for instant, sign, amounts in changes:
            span = sign * weight(max(instant, fades), at, at, half_life)
            gpu, cpu, memory = gpu + amounts[0] * span, cpu + amounts[1] * span, memory + amounts[2] * span
        found[queue] = (gpu, cpu, memory)
    return found


def has_lost_all(connection: Connection, summed: Summed, at: int, whole: Faded) -> bool:
    """Return whether a resource that the cluster had is there no longer at an instant."""
    had = connection.execute(
        "SELECT TOTAL(gpu), TOTAL(cpu), TOTAL(memory) FROM capacity WHERE until >= ? AND since < ?",
        (min(at, summed.heard), at),
    ).fetchone()
    return any(part and not now for part, now in zip(whole, had, strict=True))
