"""Sums over a time in the database: what was held and by whom, and what the cluster had.

All sums are exact integers. So they are additive in time, the sums of queues, users and GPU models are each the same
total, and for each resource ``held + idle + down = capacity + over``. A row that is still open counts up to what was
recorded last, never into the future.

Past usage is the fraction of the capacity that a queue held over a window. With a half-life, what it held from ``a`` to
``b`` counts at ``t`` with its exact integral, ``amount * H/ln 2 * (2^-((t-b)/H) - 2^-((t-a)/H))``, and capacity alike.
A queue is known by its UID: its history stays with it when it moves. A queue that was deleted and made anew under the
same name begins with none. What it held counts for the queues that were above it at that time.

Units: see `kai.history.facts`. Read on in `kai.history.jobs`, which has the jobs of a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import attrs

from kai.history.database import heard_until, queues_by_row
from kai.history.facts import LOSSES, NOTHING, RESOURCES, Amounts, Connection, QueueFacts
from kai.history.sums import (
    DAY,
    DOWN,
    NO_INTEGRAL,
    OVER,
    WHOLE,
    Faded,
    Summed,
    faded_between,
    has_lost_all,
    held_between,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SECOND: Final = 1000
_MOST: Final = 1 << 62
_LONG: Final = 3 * DAY
_FADED_AWAY: Final = -600
"""The exponent of a weight below which it counts as 0."""


@attrs.frozen(kw_only=True)
class Use:
    """What was held over a time.

    Units: amounts over time.
    """

    held: Amounts = NOTHING
    lost: Amounts = NOTHING
    """The part of it that ended in a failure, an eviction or the loss of a node, then or later; ``held`` has it too."""
    jobs: int = 0
    """Jobs that held something in that time."""

    def plus(self, other: Use) -> Use:
        """Return the sum; a job in both counts twice."""
        return Use(held=self.held.plus(other.held), lost=self.lost.plus(other.lost), jobs=self.jobs + other.jobs)


@attrs.frozen(kw_only=True)
class Capacity:
    """What the cluster had over a time, and what became of it.

    Holds: ``held + idle + down == capacity + over``, for each resource; none is negative.
    Units: amounts over time.
    """

    capacity: Amounts
    held: Amounts
    down: Amounts
    """Not held, and could not be: nodes that were not ready or closed, and devices that failed."""
    over: Amounts
    """Held beyond what nodes had."""
    unrecorded: int
    """Milliseconds in which no scheduler recorded."""

    @property
    def idle(self) -> Amounts:
        """What could have been held, and was not."""
        return self.capacity.plus(self.over).plus(self.held, -1).plus(self.down, -1)


def _over_time(column: str) -> str:
    """Return expressions whose sums fit into 64 bits, also for memory of large clusters over years; see `_whole`."""
    return f"SUM({column} * ((b - a) / {_SECOND})), SUM({column} * ((b - a) % {_SECOND}))"


def _whole(parts: Sequence[int | None]) -> Amounts:
    numbers = [each or 0 for each in parts]
    return Amounts(*(numbers[at] * _SECOND + numbers[at + 1] for at in range(0, len(numbers), 2)))


_SUMS: Final = ", ".join(map(_over_time, RESOURCES))
_LOST: Final = ", ".join(str(int(each)) for each in LOSSES)
_IS_LOST: Final = f"CASE WHEN ended IN ({_LOST}) THEN 1 ELSE 0 END AS is_lost"
_PARTS: Final = (*RESOURCES, *(f"{each} * is_lost" for each in RESOURCES))
_SMALL_SUMS: Final = ", ".join(f"SUM({each} * (b - a))" for each in _PARTS)
_LARGE_SUMS: Final = ", ".join(map(_over_time, _PARTS))
"""What was held and, in the second half, the part of it that was lost."""


def _clipped(columns: str, table: str) -> str:
    return (
        # An open row has an `until` beyond every instant, so it is cut at what was recorded last.
        f"SELECT {columns}, MAX(since, :from) AS a, MIN(until, :heard, :to) AS b FROM {table}"
        " WHERE until > :from AND since < :to AND since < :heard"
    )


def window_of(connection: Connection, since: int, until: int) -> dict[str, int]:
    """Return the parameters of statements about a time: its bounds, and the instant up to which all is recorded."""
    heard = heard_until(connection)
    return {"from": since, "to": until, "heard": since if heard is None else heard}


BY: Final[Mapping[str, str]] = {
    "queue": "queue",
    "user": "user",
    "model": "(SELECT model FROM place WHERE place.id = held.place)",
    "node": "(SELECT node FROM place WHERE place.id = held.place)",
    "kind": "(SELECT kind FROM job WHERE job.id = held.job)",
    "namespace": "(SELECT namespace FROM job WHERE job.id = held.job)",
    "size": "(SELECT gpu FROM job WHERE job.id = held.job)",
    "ended": "COALESCE(ended, -1)",
    "queue and ending": "queue || ' ' || COALESCE(ended, -1)",
    "all": "1",
}
"""What sums can be taken by."""


def use_by(connection: Connection, by: str, since: int, until: int) -> dict[int | str, Use]:
    """Return what was held over a time by each value of ``by``, one of `BY`.

    Values are row ids of queues and of words, names of models and nodes, or thousandths of GPUs as sizes.
    """
    # Reading rows in the order of an index takes longer than reading all of them, unless they are few.
    table = "held NOT INDEXED" if until - since > _LONG else "held"
    is_small = _fits(connection, since, until)
    rows = connection.execute(
        f"SELECT k, COUNT(DISTINCT job), {_SMALL_SUMS if is_small else _LARGE_SUMS} FROM"
        f" ({_clipped(f'{BY[by]} AS k, job, {_IS_LOST}, gpu, cpu, memory', table)}) AS clipped"
        " WHERE b > a GROUP BY k ORDER BY k",
        window_of(connection, since, until),
    )
    found: dict[int | str, Use] = {}
    for key, jobs, *parts in rows:
        # In one group: a job that lost a part of its work, and ended well later, is one job.
        half = len(parts) // 2
        held, lost = (Amounts(*some) if is_small else _whole(some) for some in (parts[:half], parts[half:]))
        found[key] = Use(held=held, lost=lost, jobs=jobs)
    return found


def _fits(connection: Connection, since: int, until: int) -> bool:
    """Return whether sums over a time are known to fit into 64 bits, without reading intervals."""
    summed = Summed.of(connection)
    if summed is None or since < summed.first or since >= summed.heard:
        return False
    found = held_between(connection, summed, since, min(until, summed.heard))
    return all(sum(column) < _MOST for column in zip(*found.values(), strict=True))


def words(connection: Connection) -> dict[int, str]:
    """Return users, kinds and namespaces by row."""
    return dict(connection.execute("SELECT id, text FROM word"))


def by_queue(connection: Connection, since: int, until: int) -> dict[str, Use]:
    """Return what each queue held over a time, by UID; a queue counts what the queues below it held then."""
    known, found = queues_by_row(connection), dict[str, Use]()
    for row, use in use_by(connection, "queue", since, until).items():
        facts = known[int(row)]
        for each in facts.path:
            found[each.uid] = found.get(each.uid, Use()).plus(use)
    return found


def held_by_queue(connection: Connection, since: int, until: int) -> Mapping[str, Amounts]:
    """Return what each queue held over a time, by UID, as `by_queue` does; a few rows for each queue are read."""
    return held_in_steps(connection, (since, until))[0].by_queue


@attrs.frozen
class QueuesHeld:
    """What queues held over a time, and what the cluster had.

    Units: amounts over time.
    """

    by_queue: Mapping[str, Amounts]
    """By UID; a queue counts what the queues below it held then."""
    capacity: Amounts


def held_in_steps(connection: Connection, bounds: Sequence[int]) -> list[QueuesHeld]:
    """Return what queues held from each of some instants to the next.

    Cost: a few rows for each queue and instant, where sums reach.
    """
    known = queues_by_row(connection)
    paths = {row: [each.uid for each in facts.path] for row, facts in known.items()}
    found = []
    for since, until in pairwise(bounds):
        parts, held = _held_by_row(connection, since, until), dict[str, Amounts]()
        for row, amounts in parts.items():
            if row > WHOLE and amounts != NOTHING:
                for uid in paths[row]:
                    held[uid] = held.get(uid, NOTHING).plus(amounts)
        found.append(QueuesHeld(held, parts.get(WHOLE, NOTHING)))
    return found


def recorded_since(connection: Connection) -> int | None:
    """Return the instant from which all is recorded; None in a file without a record."""
    summed = Summed.of(connection)
    first = connection.execute("SELECT MIN(since) FROM capacity").fetchone()[0]
    # In a file of an older version sums begin later than the record.
    return None if summed is None or first is None else max(first, summed.first)


def _held_by_row(connection: Connection, since: int, until: int) -> dict[int, Amounts]:
    """Return what queues held over a time, and capacity, down and over, by row, of sums as far as these reach."""
    summed = Summed.of(connection)
    if summed is None:
        return {}
    end = min(until, summed.heard)
    begin = min(max(since, summed.first), end)
    found = held_between(connection, summed, begin, end) if begin < end else {}
    if since < begin:
        parts = {int(row): use.held for row, use in use_by(connection, "queue", since, begin).items()}
        had = _capacity_of_intervals(connection, since, begin, None)
        parts |= {WHOLE: had.capacity, DOWN: had.down, OVER: had.over}
        for row, amounts in parts.items():
            found[row] = found.get(row, NOTHING).plus(amounts)
    return found


def capacity(connection: Connection, since: int, until: int, model: str | None = None) -> Capacity:
    """Return what the cluster had over a time; with ``model`` only nodes with GPUs of that model."""
    # Sums are of the whole cluster and have no models.
    if model is not None:
        return _capacity_of_intervals(connection, since, until, model)
    found = _held_by_row(connection, since, until)
    held = NOTHING
    for row, amounts in found.items():
        held = held if row <= WHOLE else held.plus(amounts)
    whole, down, over = (found.get(row, NOTHING) for row in (WHOLE, DOWN, OVER))
    return Capacity(capacity=whole, held=held, down=down, over=over, unrecorded=_unrecorded(connection, since, until))


def _unrecorded(connection: Connection, since: int, until: int) -> int:
    window = window_of(connection, since, until)
    gaps = _clipped("1", "gap")
    found = connection.execute(f"SELECT SUM(b - a) FROM ({gaps}) AS clipped WHERE b > a", window).fetchone()
    return found[0] or 0


def _capacity_of_intervals(connection: Connection, since: int, until: int, model: str | None) -> Capacity:
    window = {**window_of(connection, since, until), "model": model}
    at = "" if model is None else " AND place IN (SELECT id FROM place WHERE model = :model)"
    columns = [f"{each}{suffix}" for suffix in ("", "_down", "_over") for each in RESOURCES]
    sums = ", ".join(map(_over_time, columns))
    had = connection.execute(
        f"SELECT {sums} FROM ({_clipped(', '.join(columns), 'capacity')}{at}) AS clipped WHERE b > a", window
    ).fetchone()
    held = connection.execute(
        f"SELECT {_SUMS} FROM ({_clipped(', '.join(RESOURCES), 'held')}{at}) AS clipped WHERE b > a", window
    ).fetchone()
    whole, down, over = (_whole(had[at : at + 6]) for at in (0, 6, 12))
    gaps = _unrecorded(connection, since, until)
    return Capacity(capacity=whole, held=_whole(held), down=down, over=over, unrecorded=gaps)


def namespaces(connection: Connection) -> frozenset[str]:
    """Return the namespaces of all jobs that are recorded."""
    return frozenset(
        text for (text,) in connection.execute("SELECT text FROM word WHERE id IN (SELECT namespace FROM job)")
    )


def total(uses: Iterable[Use]) -> Use:
    """Return the sum."""
    found = Use()
    for use in uses:
        found = found.plus(use)
    return found


# ---------------------------------------------------------------------------------------------------------- past usage

Fractions = tuple[float, float, float]
"""One fraction of the cluster for each resource."""


def _weight_in_sql(half_life: float) -> str:
    """Return `weight` as an expression over the columns a and b and the parameter :to."""
    if half_life <= 0:
        return "(b - a)"
    pace = math.log(2) / half_life
    half = f"tanh((b - a) * CAST({pace / 2!r} AS DOUBLE PRECISION))"
    age = f"(b - :to) * CAST({pace!r} AS DOUBLE PRECISION)"
    # PostgreSQL refuses a result too small for a float. What is that old counts for nothing in either database.
    fading = f"CASE WHEN {age} < {_FADED_AWAY} THEN 0 ELSE exp({age}) END"
    return f"({2 / pace!r} * {fading} * {half} / (1 + {half}))"


def _sums(
    connection: Connection, table: str, by: str, window: Mapping[str, int], half_life: float
) -> list[tuple[float, ...]]:
    """Return the integrals over the window of each value of ``by``."""
    columns = ", ".join(f"TOTAL({each} * w)" for each in RESOURCES)
    inner = _clipped(", ".join((f"{by} AS k", *RESOURCES)), table)
    weighed = f"SELECT *, {_weight_in_sql(half_life)} AS w FROM ({inner}) AS clipped WHERE b > a"
    return connection.execute(f"SELECT k, {columns} FROM ({weighed}) AS weighed GROUP BY k", window).fetchall()


def past_usage(connection: Connection, since: int, at: int, half_life: float = 0.0) -> dict[str, Fractions]:
    """Return the past usage of queues by name, over the window from ``since`` to ``at``, seen at ``at``.

    A resource that the cluster had none of counts 0. What is not recorded yet counts neither as held nor as capacity.

    Units: milliseconds.
    Cost:  a few rows for each queue where the window is within the hours that are summed with this half-life.
    """
    found = _integrals(connection, since, at, half_life)
    total = found.pop(WHOLE, NO_INTEGRAL)
    queues = queues_by_row(connection)
    held: dict[str, Faded] = {}
    for queue, parts in found.items():
        if any(parts):
            for each in queues[queue].path:
                gpu, cpu, memory = held.get(each.uid, NO_INTEGRAL)
                held[each.uid] = (gpu + parts[0], cpu + parts[1], memory + parts[2])
    names = current_names(queues)
    return {names[uid]: _fractions(parts, total) for uid, parts in held.items() if names.get(uid)}


def _integrals(connection: Connection, since: int, at: int, half_life: float) -> dict[int, Faded]:
    """Return the integrals of queues and of the capacity by row, seen at one instant.

    Which one does not matter: only their ratios are used.
    """
    summed = Summed.of(connection)
    if summed is None:
        return {}
    end = min(at, summed.heard)
    begin = max(since, summed.first, summed.fades if half_life else 0)
    # Integrals are kept for one half-life; for another one the intervals are read.
    if begin >= end or half_life not in {0, summed.half_life}:
        return _integrals_of_intervals(connection, since, at, half_life)
    found: dict[int, Faded] = {}
    if half_life:
        found = faded_between(connection, summed, begin, end)
        if has_lost_all(connection, summed, end, found.get(WHOLE, NO_INTEGRAL)):
            # Long after the last capacity went, its integral is so small that a difference of two has no digits.
            return _integrals_of_intervals(connection, since, at, half_life)
    else:
        for queue, (gpu, cpu, memory) in held_between(connection, summed, begin, end).items():
            found[queue] = (float(gpu), float(cpu), float(memory))
    kept = 2.0 ** ((begin - end) / half_life) if half_life else 1.0
    if since < begin and kept:
        for queue, parts in _integrals_of_intervals(connection, since, begin, half_life).items():
            found[queue] = _add((found.get(queue, NO_INTEGRAL), [each * kept for each in parts]))
    return {queue: parts for queue, parts in found.items() if queue >= WHOLE}


def _integrals_of_intervals(connection: Connection, since: int, at: int, half_life: float) -> dict[int, Faded]:
    window = window_of(connection, since, at)
    found = {int(queue): _add((parts,)) for queue, *parts in _sums(connection, "held", "queue", window, half_life)}
    found[WHOLE] = _add(row[1:] for row in _sums(connection, "capacity", "1", window, half_life))
    return found


def _fractions(parts: Faded, total: Faded) -> Fractions:
    gpu, cpu, memory = (part / whole if whole else 0.0 for part, whole in zip(parts, total, strict=True))
    return gpu, cpu, memory


def _add(parts: Iterable[Iterable[float]]) -> Faded:
    # `fsum` rounds once, so the result does not depend on the order of rows.
    rows = [tuple(each) for each in parts]
    gpu, cpu, memory = (math.fsum(row[column] for row in rows) for column in range(3))
    return gpu, cpu, memory


def current_names(queues: Mapping[int, QueueFacts]) -> dict[str, str]:
    """Return the last name of each queue by UID; of several queues that had one name, only the last has it."""
    by_name: dict[str, str] = {}
    names: dict[str, str] = {}
    for facts in queues.values():
        names[facts.uid] = facts.name
        by_name[facts.name] = facts.uid
    return {uid: name for uid, name in names.items() if by_name[name] == uid}
