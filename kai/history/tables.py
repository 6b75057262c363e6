"""Reports as tables: jobs, queues, users and so on over a time, and what became of the capacity, by day if wanted.

A report is a list of rows with the same keys; `KINDS` says which there are. Numbers are exact integers (see
`kai.history.facts`) or their hours. Rows are in the order of what they held, jobs in that of what they began to hold
first in the time of the report.

Days, weeks and months are those of a time zone: a day there has 23 or 25 hours where clocks change.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs

from kai.api.conventions.budgets import amount_of
from kai.api.scheduling.queue import Queue
from kai.basics.parsing import GPU_HOUR
from kai.history import reports
from kai.history.database import heard_until, queues_by_row
from kai.history.facts import EVICTIONS, HOURS, RESOURCES, Amounts, Connection, Ended, QueueFacts
from kai.history.jobs import jobs_over
from kai.history.reports import Use
from kai.history.spending import accounts

Row = Mapping[str, Any]
PERIODS: Final = ("day", "week", "month")
NO_QUEUE: Final = "(no queue)"
_UNKNOWN: Final = "(unknown)"
EVERY_USER: Final = "(all)"
_HOUR: Final = 3_600_000
_SIZES: Final = (0, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000)
"""Bounds of the classes of sizes, in thousandths of GPUs."""


@attrs.frozen(kw_only=True)
class Span:
    """A time, in milliseconds since the epoch, and how it is called."""

    since: int
    until: int
    name: str = ""


def spans(since: int, until: int, period: str, zone: dt.tzinfo) -> Iterator[Span]:
    """Yield the days, weeks or months of a time in a time zone, in order; the first and the last may be cut.

    Holds: they follow each other from ``since`` to ``until``.
    """
    at = since
    while at < until:
        local = dt.datetime.fromtimestamp(at / 1000, zone)
        begin = local.date()
        if period == "week":
            begin -= dt.timedelta(days=begin.weekday())
        elif period == "month":
            begin = begin.replace(day=1)
        end = min(until, midnight(_after(begin, period), zone))
        yield Span(since=at, until=end, name=f"{begin:%Y-%m}" if period == "month" else f"{begin:%Y-%m-%d}")
        at = end


def _after(day: dt.date, period: str) -> dt.date:
    if period == "month":
        # Each month has a 28th, and four days later it is the next month.
        return (day.replace(day=28) + dt.timedelta(days=4)).replace(day=1)
    return day + dt.timedelta(days=7 if period == "week" else 1)


def midnight(day: dt.date, zone: dt.tzinfo) -> int:
    """Return when a day begins, in milliseconds since the epoch."""
    return round(dt.datetime.combine(day, dt.time(), zone).timestamp() * 1000)


# ---------------------------------------------------------------------------------------------------------------- rows


def rows_of(connection: Connection, kind: str, span: Span) -> Iterable[Row]:
    """Return the rows of a report, one of `KINDS`, over a time; those of jobs are read as they are taken."""
    return KINDS[kind](connection, span)


def _of_use(use: Use, whole: int) -> dict[str, Any]:
    return {
        "jobs": use.jobs,
        **{name: _hours(use.held, at) for at, name in enumerate(("gpuHours", "cpuHours", "gigabyteHours"))},
        "lostGpuHours": _hours(use.lost, 0),
        "percent": round(100 * use.held.gpu / whole, 2) if whole else 0.0,
        "gpuMicroseconds": use.held.gpu,
        "lostGpuMicroseconds": use.lost.gpu,
    }


def _hours(amounts: Amounts, resource: int) -> float:
    return round(amounts[resource] / HOURS[resource], 4)


def _by(by: str, head: str) -> Callable[[Connection, Span], list[Row]]:
    """Return a report of what was held by the values of ``by``, the largest first."""

    def report(connection: Connection, span: Span) -> list[Row]:
        texts = reports.words(connection) if by in {"user", "namespace", "kind"} else {}
        uses = reports.use_by(connection, by, span.since, span.until)
        whole = reports.total(uses.values()).held.gpu
        named = {
            str(texts.get(key, key) if isinstance(key, int) else key) or _UNKNOWN: each for key, each in uses.items()
        }
        order = sorted(named.items(), key=lambda each: (-each[1].held.gpu, each[0]))
        return [{head: name, **_of_use(use, whole)} for name, use in order]

    return report


def _queues(connection: Connection, span: Span) -> list[Row]:
    """Return queues as a tree; a queue has what the queues below it held then."""
    uses = reports.by_queue(connection, span.since, span.until)
    # In the order of rows, so of the places that a queue had the last one is shown.
    latest = {each.uid: each for each in queues_by_row(connection).values()}
    tops = [uid for uid in uses if _parent(latest[uid]) not in uses]
    # Of tops alone: what they held has that of the queues below them in it.
    whole = reports.total(uses[uid] for uid in tops).held.gpu
    rows: list[Row] = []

    def below(uids: list[str], depth: int) -> None:
        for uid in sorted(uids, key=lambda each: (-uses[each].held.gpu, latest[each].name)):
            name = latest[uid].name or NO_QUEUE
            rows.append({"queue": name, "depth": depth, "uid": uid, **_of_use(uses[uid], whole)})
            below([each for each in uses if each != uid and _parent(latest[each]) == uid], depth + 1)

    below(tops, 0)
    return rows


def _parent(queue: QueueFacts) -> str | None:
    return None if queue.parent is None else queue.parent.uid


def _sizes(connection: Connection, span: Span) -> list[Row]:
    uses = reports.use_by(connection, "size", span.since, span.until)
    whole = reports.total(uses.values()).held.gpu
    classes: dict[int, Use] = {}
    for size, use in uses.items():
        least = max(bound for bound in _SIZES if bound <= int(size))
        classes[least] = classes.get(least, Use()).plus(use)
    return [{"gpus": _class_name(least), **_of_use(classes[least], whole)} for least in sorted(classes)]


def _class_name(least: int) -> str:
    at = _SIZES.index(least)
    if at + 1 == len(_SIZES):
        return f"{least // 1000} or more"
    last = _SIZES[at + 1] // 1000 - 1
    return "less than 1" if not at else str(least // 1000) if last == least // 1000 else f"{least // 1000} to {last}"


def _endings(connection: Connection, span: Span) -> list[Row]:
    uses = reports.use_by(connection, "ended", span.since, span.until)
    whole = reports.total(uses.values()).held.gpu
    rows = [{"why": why_text(None if key < 0 else Ended(key)), **_of_use(use, whole)} for key, use in _numbered(uses)]
    return sorted(rows, key=lambda row: (-row["gpuMicroseconds"], row["why"]))


def _evictions(connection: Connection, span: Span) -> list[Row]:
    """Return what ended without its owner's will, by queue and reason, the largest loss first."""
    queues, uses = queues_by_row(connection), dict[tuple[str, int], Use]()
    for key, use in reports.use_by(connection, "queue and ending", span.since, span.until).items():
        row, ended = map(int, str(key).split())
        if ended in EVICTIONS:
            place = queues[row].name or NO_QUEUE, ended
            uses[place] = uses.get(place, Use()).plus(use)
    rows = [{"queue": name, "why": why_text(Ended(ended)), **_of_use(use, 0)} for (name, ended), use in uses.items()]
    # A share of all evictions would say nothing of what the queue held.
    kept = [{key: each for key, each in row.items() if key != "percent"} for row in rows]
    return sorted(kept, key=lambda row: (-row["gpuMicroseconds"], row["queue"], row["why"]))


def _numbered(uses: Mapping[int | str, Use]) -> list[tuple[int, Use]]:
    return [(int(key), use) for key, use in uses.items()]


def why_text(why: Ended | None) -> str:
    """Return why a job holds something no longer; that it does, for None."""
    return "runs" if why is None else why.name.lower().replace("_", " ")


def _jobs(connection: Connection, span: Span) -> Iterator[Row]:
    for job in jobs_over(connection, span.since, span.until):
        yield {
            "job": f"{job.namespace}/{job.name}",
            "kind": job.kind,
            "queue": job.queue or NO_QUEUE,
            "user": job.user,
            "gpus": job.size / 1000,
            "started": instant(job.started),
            "waitSeconds": None if job.wait is None else job.wait / 1000,
            "runSeconds": None if job.ended is None else (job.ended - job.started) / 1000,
            "endedBy": why_text(job.why),
            "uid": job.uid,
            **{key: each for key, each in _of_use(job.use, 0).items() if key not in {"jobs", "percent"}},
        }


def instant(milliseconds: int) -> str:
    """Return an instant as Kubernetes writes it."""
    return dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _utilisation(connection: Connection, span: Span) -> list[Row]:
    """Return what became of each resource: held + idle + down = capacity + over."""
    found = reports.capacity(connection, span.since, span.until)
    rows: list[Row] = []
    for at, name in enumerate(RESOURCES):
        parts = {
            "capacity": found.capacity[at],
            "held": found.held[at],
            "idle": found.idle[at],
            "down": found.down[at],
            "over": found.over[at],
        }
        hours = {f"{part}Hours": round(amount / HOURS[at], 4) for part, amount in parts.items()}
        percent = round(100 * found.held[at] / found.capacity[at], 2) if found.capacity[at] else 0.0
        exact = {f"{part}Exact": amount for part, amount in parts.items()}
        rows.append(
            {
                "resource": name,
                **hours,
                "percent": percent,
                "unrecordedHours": round(found.unrecorded / _HOUR, 4),
                **exact,
            }
        )
    return rows


def budget_rows(connection: Connection, queues: Iterable[Queue], span: Span) -> list[Row]:
    """Return the budgets of queues in each of their periods that a time has a part of, each with who used it.

    What running work may still use is what the status of the queue says, so it is there for the present period only.
    """
    rows: list[Row] = []
    for each in accounts(connection, queues, span.since, span.until):
        written = next((known for known in each.queue.status.budgets if known.name == each.budget.name), None)
        # The status is of the period in which it was written, which may be over by now.
        is_present = written is not None and round(written.since * 1000) == each.period.begin
        committed = round(written.committed * GPU_HOUR) if written is not None and is_present else None
        amount = amount_of(each.budget) + each.carried
        left = amount - each.spent - (committed or 0)
        begin = instant(each.period.begin) if each.period.begin else None
        resets = None if math.isinf(each.period.until) else instant(round(each.period.until * 1000))
        head = {"queue": each.queue.metadata.name, "budget": each.budget.name}
        period = {"enforce": each.budget.enforce, "begins": begin, "resets": resets}
        parts = {"amount": amount, "carried": each.carried, "spent": each.spent, "committed": committed, "left": left}
        rows.append({**head, "user": EVERY_USER, **period, **_of_parts(parts, amount)})
        # A budget is that of the queue: a user has neither an amount nor a rest of it.
        none = dict.fromkeys(parts, None)
        rows += [
            {**head, "user": user or _UNKNOWN, **period, **_of_parts({**none, "spent": gpus}, amount)}
            for user, gpus in each.users
        ]
    return rows


def _of_parts(parts: Mapping[str, int | None], amount: int) -> dict[str, Any]:
    spent = parts["spent"] or 0
    hours = {f"{name}Hours": None if part is None else round(part / GPU_HOUR, 4) for name, part in parts.items()}
    exact = {f"{name}Exact": part for name, part in parts.items()}
    return {**hours, "percent": round(100 * spent / amount, 2) if amount else 0.0, **exact}


KINDS: Final[Mapping[str, Callable[[Connection, Span], Iterable[Row]]]] = {
    "jobs": _jobs,
    "queues": _queues,
    "users": _by("user", "user"),
    "namespaces": _by("namespace", "namespace"),
    "sizes": _sizes,
    "models": _by("model", "model"),
    "nodes": _by("node", "node"),
    "endings": _endings,
    "evictions": _evictions,
    "utilisation": _utilisation,
}
"""The reports that need no more than the history."""
BUDGETS: Final = "budgets"
"""The report that needs queues, too."""


@attrs.frozen(kw_only=True)
class Report:
    """A report: for each span its rows, which may be taken once, and only while the connection is open."""

    kind: str
    spans: tuple[tuple[Span, Iterable[Row]], ...]
    recorded: int | None
    """The instant up to which all was recorded; None for an empty database."""
    zone: dt.tzinfo = dt.UTC
    """The time zone of its days."""


def report(
    connection: Connection,
    kind: str,
    span: Span,
    *,
    by: str = "",
    zone: dt.tzinfo,
    queues: Sequence[Queue] = (),
) -> Report:
    """Return a report over a time; with ``by``, one of `PERIODS`, for each of these.

    ``queues`` are those whose `BUDGETS` are reported.
    """
    heard = heard_until(connection)
    # Days that are not recorded yet would show as idle.
    end = span.until if heard is None else min(span.until, heard)
    chosen = tuple(spans(span.since, end, by, zone)) if by else (attrs.evolve(span, until=max(span.since, end)),)
    made: Callable[[Span], Iterable[Row]]
    made = partial(budget_rows, connection, queues) if kind == BUDGETS else partial(rows_of, connection, kind)
    parts = tuple((each, made(each)) for each in chosen)
    return Report(kind=kind, spans=parts, recorded=heard, zone=zone)
