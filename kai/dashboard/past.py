"""What pages show of the past: what queues used over a day, a week or a month, and the jobs that have ended.

Both come from the file that the scheduler writes, through `kai.dashboard.feed.Past`, so everything here must run in a
worker thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from kai.answers.documents.document import span
from kai.api.values import instant_text
from kai.dashboard.access import missing_rights
from kai.facts.model.axis import GPU
from kai.history import reports
from kai.history.database import heard_until
from kai.history.facts import HOURS, NOTHING, Connection, Ended, HistoryError
from kai.history.jobs import Finished, JobLine, Search, last_finished
from kai.history.tables import why_text

if TYPE_CHECKING:
    from kai.answers.outcomes.queue_lines import QueueLine
    from kai.dashboard.feed import Past
    from kai.dashboard.look import Look

_MINUTE: Final = 60_000
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
PERIODS: Final[Mapping[str, tuple[int, int]]] = {
    "day": (_DAY, _HOUR),
    "week": (7 * _DAY, 6 * _HOUR),
    "month": (30 * _DAY, _DAY),
}
"""For each choice how long it is, and its step in a chart. Units: milliseconds."""
DEFAULT_PERIOD: Final = "week"
EVER: Final = "all"
"""The choice of finished jobs without a bound."""
MOST_FINISHED: Final = 50
"""Finished jobs on one page."""
_LONGEST: Final = 100
"""The most characters of what is searched for."""
_NO_FILE: Final = (
    "No history is recorded. With usageDBConfig.clientType sqlite or postgresql the scheduler records one."
)
_NOT_READ: Final = "The history cannot be read now."
_EMPTY: Final = "The history has no record of this time yet."

Values: TypeAlias = Mapping[str, Any]


# --- What queues used ------------------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Usage:
    """What all queues held over a period, up to the last record.

    Units: milliseconds.
    """

    wanted: int
    """When the period begins."""
    bounds: tuple[int, ...]
    """The steps of the period as far as it is recorded: each goes on to the next bound."""
    steps: tuple[reports.QueuesHeld, ...]

    @property
    def passed(self) -> int:
        """How long the recorded part of the period is."""
        return self.bounds[-1] - self.bounds[0]


def usage(connection: Connection, period: str) -> Usage | None:
    """Return what queues held over one of `PERIODS`; None where nothing of it is recorded."""
    length, step = PERIODS[period]
    end, began = _last_minute(connection), reports.recorded_since(connection)
    begin = end - length if began is None else max(end - length, began)
    if began is None or begin >= end:
        return None
    # At whole hours and days the file has sums; in between all that changed is read.
    bounds = (begin, *range(begin // step * step + step, end, step), end)
    return Usage(wanted=end - length, bounds=bounds, steps=tuple(reports.held_in_steps(connection, bounds)))


def _last_minute(connection: Connection) -> int:
    """Return the last whole minute that is recorded.

    A record is written whenever a job of any reader changes, so its exact instant would tell others of it.
    """
    heard = heard_until(connection) or 0
    return heard - heard % _MINUTE


@attrs.frozen(kw_only=True)
class UsedLine:
    """What one queue used over a period. Units: hours and amounts of whole GPUs, or cores."""

    name: str
    hours: float
    average: float
    quota: float | None
    """Its present quota; None if it is unlimited or none."""
    of_quota: float | None
    """What was used as a part of the quota, from 0 on."""
    of_whole: float | None
    """What was used as a part of the capacity."""
    bar: float
    """Thousandths of the axis, which is the capacity."""
    mark: float | None
    """Where the quota is on it."""
    color: str
    depth: int


@attrs.frozen(kw_only=True)
class Slot:
    """One step in the chart of a queue, in thousandths of its axes."""

    begin: float
    width: float
    top: float
    height: float
    average: float
    whole: float
    since: float
    until: float


def used(look: Look, past: Past | None, query: Mapping[str, str], lines: Sequence[QueueLine], most: int = 0) -> Values:
    """Return the values of the section on usage: a line for each of ``lines``; with ``most`` the largest only."""
    period, found, problem = _usage(past, query)
    values: dict[str, Any] = {"period": period, "periods": tuple(PERIODS), "problem": problem, "note": "", "rows": ()}
    values |= {"missing": missing_rights(look.scope, ["queues"]), "is_partial": look.scope.queues is not None}
    values |= {"unit": _unit(look), "more": 0}
    if found is None or values["missing"]:
        return values
    at, axis = _resource(look)
    whole = sum(step.capacity[at] for step in found.steps)
    rows = [_used_line(look, line, found, (at, axis), whole) for line in lines]
    if most:
        # The largest are taken out of the tree, so no row is drawn below another.
        rows = sorted((attrs.evolve(row, depth=0) for row in rows), key=lambda row: (-row.hours, row.name))
    return {
        **values,
        "note": _coverage(found, period),
        "rows": rows[:most] if most else rows,
        "more": max(0, len(rows) - most) if most else 0,
        "whole": whole / found.passed / 1000,
    }


def used_by(look: Look, past: Past | None, query: Mapping[str, str], line: QueueLine | None) -> Values:
    """Return the values of the section on the usage of one queue, with its chart."""
    period, found, problem = _usage(past, query)
    values: dict[str, Any] = {"period": period, "periods": tuple(PERIODS), "problem": problem, "note": ""}
    values |= {"line": None, "slots": (), "unit": _unit(look)}
    if found is None or line is None:
        return values
    at, axis = _resource(look)
    own = _used_line(look, line, found, (at, axis), sum(step.capacity[at] for step in found.steps))
    uid = look.queue_uids().get(line.name, "")
    averages = [
        (step.by_queue.get(uid, NOTHING)[at] / (until - since) / 1000, step.capacity[at] / (until - since) / 1000)
        for step, since, until in zip(found.steps, found.bounds, found.bounds[1:], strict=False)
    ]
    # Not 0, since a queue that used nothing has a chart as well.
    top = max((own.quota or 0.0, *(average for average, _ in averages))) or 1.0
    length = found.bounds[-1] - found.wanted
    slots = tuple(
        Slot(
            begin=1000 * (since - found.wanted) / length,
            width=1000 * (until - since) / length,
            top=1000 * (1 - average / top),
            height=1000 * average / top,
            average=average,
            whole=whole,
            since=since / 1000,
            until=until / 1000,
        )
        for (average, whole), since, until in zip(averages, found.bounds, found.bounds[1:], strict=False)
    )
    quota = None if own.quota is None else 1000 * (1 - own.quota / top)
    return {**values, "note": _coverage(found, period), "line": own, "slots": slots, "top": top, "quota": quota}


def _usage(past: Past | None, query: Mapping[str, str]) -> tuple[str, Usage | None, str]:
    """Return the period that is asked for, what was used in it, and why nothing is shown."""
    period = query.get("period", DEFAULT_PERIOD)
    period = period if period in PERIODS else DEFAULT_PERIOD
    if past is None or not past.path:
        return period, None, _NO_FILE
    try:
        found = past.ask(("usage", period), lambda connection: usage(connection, period))
    except HistoryError:
        return period, None, _NOT_READ
    return period, found, "" if found is not None else _EMPTY


def _coverage(found: Usage, period: str) -> str:
    """Return from when to when figures are, and what of the period is not recorded."""
    begin, end = (moment_text(each / 1000) for each in (found.bounds[0], found.bounds[-1]))
    if found.bounds[0] == found.wanted:
        return f"From {begin} to {end}."
    covered = span(found.passed / 1000)
    return f"From {begin} to {end}: the history is younger than a {period}, and has the last {covered} of it."


def moment_text(seconds: float) -> str:
    """Return an instant as pages show it: date and time of day."""
    return instant_text(int(seconds)).replace("T", " ").replace("Z", " UTC")


def _resource(look: Look) -> tuple[int, int]:
    """Return the resource of charts, as an index of recorded amounts and of shares: CPU in a cluster without GPUs."""
    return (0, GPU) if look.capacity.gpus else (1, 0)


def _unit(look: Look) -> str:
    return "GPU" if look.capacity.gpus else "core"


def _used_line(look: Look, line: QueueLine, found: Usage, resource: tuple[int, int], whole: int) -> UsedLine:
    at, axis = resource
    uid = look.queue_uids().get(line.name, "")
    held = sum(step.by_queue.get(uid, NOTHING)[at] for step in found.steps)
    quota = line.shares[axis].quota
    capacity, average = whole / found.passed, held / found.passed
    return UsedLine(
        name=line.name,
        hours=held / HOURS[at],
        average=average / 1000,
        quota=None if not quota else quota / 1000,
        of_quota=None if not quota else average / quota,
        of_whole=average / capacity if capacity else None,
        bar=min(1000.0, 1000 * average / capacity) if capacity else 0.0,
        mark=min(1000.0, 1000 * quota / capacity) if quota and capacity else None,
        color=look.colors.get(line.name, "x"),
        depth=line.depth,
    )


# --- Finished jobs ---------------------------------------------------------------------------------------------------

_ENDS: Final[Mapping[str, Ended]] = {why_text(each): each for each in Ended if each is not Ended.CHANGED}


@attrs.frozen(kw_only=True)
class FinishedLine:
    """One job that has ended. Units: seconds, GPUs and GPU-hours."""

    namespace: str
    name: str
    is_known: bool
    """Whether it has a page: its group is still there."""
    kind: str
    queue: str
    user: str
    gpus: float
    wait: float | None
    run: float
    why: str
    ended: float
    hours: float
    lost: float


def finished(look: Look, past: Past | None, query: Mapping[str, str]) -> dict[str, Values]:
    """Return the sections of the page of finished jobs: the form, and the list, the newest first."""
    asked = {name: query.get(name, "")[:_LONGEST].strip() for name in ("name", "queue", "user", "state", "period")}
    asked["state"] = asked["state"] if asked["state"] in _ENDS else ""
    asked["period"] = asked["period"] if asked["period"] in {*PERIODS, EVER} else DEFAULT_PERIOD
    scope = look.scope
    values: dict[str, Any] = {"rows": (), "older": "", "is_first": "before" not in query, "problem": "", "note": ""}
    values |= {"missing": missing_rights(scope, ["podgroups"]), "is_partial": scope.namespaces is not None}
    search = {"asked": asked, "states": tuple(_ENDS), "periods": (*PERIODS, EVER)}
    if not values["missing"]:
        values |= _found(look, past, asked, query.get("before", ""))
    return {"search": search, "finished": {**values, "asked": asked}}


def _found(look: Look, past: Past | None, asked: Mapping[str, str], before: str) -> dict[str, Any]:
    if past is None or not past.path:
        return {"problem": _NO_FILE}
    scope = look.scope
    # Rights are a part of the question: the answer to one reader must not go to another.
    key = ("finished", tuple(asked.items()), before, scope.namespaces, scope.reads(asked["queue"]))
    try:
        began, found = past.ask(key, lambda connection: _search(connection, look, asked, before))
    except HistoryError:
        return {"problem": _NOT_READ}
    shown = found[:MOST_FINISHED]
    return {
        "rows": tuple(_finished_line(look, each.job) for each in shown),
        "older": "{}-{}".format(*shown[-1].place) if len(found) > MOST_FINISHED else "",
        "note": f"The history begins at {began}." if began else "",
    }


def _search(
    connection: Connection, look: Look, asked: Mapping[str, str], before: str
) -> tuple[str, Sequence[Finished]]:
    """Return when the history begins, if that is within the period, and one row more than a page has."""
    began = reports.recorded_since(connection)
    since = 0 if asked["period"] == EVER else _last_minute(connection) - PERIODS[asked["period"]][0]
    until, _, row = before.partition("-")
    # The address is foreign input: what is no place begins at the newest job.
    place = (int(until), int(row)) if _is_number(until) and _is_number(row) else None
    search = Search(
        since=since,
        name=asked["name"].lower(),
        user=asked["user"].lower(),
        queue=asked["queue"],
        # A reader who may not get the queue must not learn what is below it.
        with_below=look.scope.reads(asked["queue"]),
        why=_ENDS.get(asked["state"]),
        namespaces=look.scope.namespaces,
        before=place,
    )
    found = last_finished(connection, search, MOST_FINISHED + 1)
    is_young = began is not None and began > since
    return moment_text((began or 0) / 1000) if is_young else "", found


def _is_number(text: str) -> bool:
    # `int` would take digits of other scripts as well, and numbers beyond those of rows.
    return text.isascii() and text.isdecimal() and len(text) < len(str(1 << 62))


def _finished_line(look: Look, job: JobLine) -> FinishedLine:
    ended = job.ended or job.started
    return FinishedLine(
        namespace=job.namespace,
        name=job.name,
        is_known=look.find(job.namespace, job.name) is not None,
        kind=job.kind,
        queue=job.queue,
        user=job.user,
        gpus=job.size / 1000,
        wait=None if job.wait is None else job.wait / 1000,
        run=(ended - job.started) / 1000,
        why=why_text(job.why),
        ended=ended / 1000,
        hours=job.use.held.gpu / HOURS[0],
        lost=job.use.lost.gpu / HOURS[0],
    )
