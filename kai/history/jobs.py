"""Jobs in the database: the ones that held something over a time, and a search for finished ones.

A job is what its intervals say, and these are read with the facts of its group in batches: the first job is there at
once, however many follow. A search walks back in time from the newest end, and goes on from the place of the last job
that it gave.

Units: see `kai.history.facts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.history.database import OPEN, heard_until, queues_by_row
from kai.history.facts import GPU, LOSSES, Amounts, Connection, Ended, uid_text
from kai.history.reports import Use, window_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

BATCH: Final = 500
"""Jobs whose facts one statement reads."""
_FEW: Final = 2000
"""Below this number of matches a search asks for the intervals of each."""


@attrs.frozen(kw_only=True)
class JobLine:
    """One job over a time."""

    uid: str
    namespace: str
    name: str
    kind: str
    user: str
    queue: str
    """The name of the queue that it held something of last."""
    size: int
    """The most thousandths of GPUs that it held at once, ever."""
    created: int
    """When its group was made; 0 if that is not known."""
    started: int
    """When it first held something, ever as far as is recorded."""
    ended: int | None
    """When it held nothing any more; None if it still holds something."""
    why: Ended | None
    use: Use

    @property
    def wait(self) -> int | None:
        """Milliseconds from its creation to its first start; None if that is not known."""
        return None if not self.created else max(0, self.started - self.created)


def jobs_over(connection: Connection, since: int, until: int) -> Iterator[JobLine]:
    """Yield the jobs that held something over a time, by the start of what they held first in it.

    Cost: memory for `BATCH` jobs; the first is there at once, however many follow.
    """
    window = window_of(connection, since, until)
    # The first row of a job mostly has the lowest number, which the index of jobs has first: so this stops at once.
    is_first = (
        "NOT EXISTS (SELECT 1 FROM held AS other WHERE other.job = held.job AND other.until > :from"
        " AND (other.since < held.since OR (other.since = held.since AND other.id < held.id)))"
    )
    # Two queries, since SQLite would sort all rows of one with OR. What was held at the begin are few.
    starts = (
        "since < :from AND until > :from AND since < :heard AND :from < :to AND :from < :heard",
        "since >= :from AND since < :to AND since < :heard",
    )
    for start in starts:
        found = connection.execute(f"SELECT job FROM held WHERE {start} AND {is_first} ORDER BY since, id", window)
        while batch := [job for (job,) in found.fetchmany(BATCH)]:
            yield from _lines(connection, batch, window)


def _lines(connection: Connection, rows: Sequence[int], window: Mapping[str, int]) -> Iterator[JobLine]:
    """Yield the jobs of some rows in their order, each with what it held in a window."""
    # A batch stays below 999 parameters, which is all that some builds of SQLite take.
    marks = ",".join("?" * len(rows))
    held: dict[int, list[tuple[Any, ...]]] = {}
    columns = "job, queue, ended, since, until, gpu, cpu, memory"
    for row in connection.execute(f"SELECT {columns} FROM held WHERE job IN ({marks}) ORDER BY id", rows):
        held.setdefault(row[0], []).append(row)
    facts = {
        row[0]: row
        for row in connection.execute(
            "SELECT job.id, job.uid, place.text, job.name, sort.text, who.text, gpu, created FROM job"
            " JOIN word AS place ON place.id = namespace JOIN word AS sort ON sort.id = kind"
            f" JOIN word AS who ON who.id = user WHERE job.id IN ({marks})",
            rows,
        )
    }
    names = dict(connection.execute("SELECT id, name FROM queue"))
    return (_line(facts[row], held[row], names, window) for row in rows)


def _line(
    facts: tuple[Any, ...], held: Sequence[tuple[Any, ...]], names: Mapping[int, str], window: Mapping[str, int]
) -> JobLine:
    _, uid, namespace, name, kind, user, size, created = facts
    begin, end = window["from"], min(window["to"], window["heard"])
    sums, lost = [0, 0, 0], 0
    for _, _, ended, since, until, *amounts in held:
        passed = max(0, min(until, end) - max(since, begin))
        sums = [one + each * passed for one, each in zip(sums, amounts, strict=True)]
        lost += amounts[GPU] * passed if ended in LOSSES else 0
    # The interval that ends last says where the job was and how it ended; an open one ends after all others.
    _, queue, why, _, last, *_ = max(held, key=lambda row: row[4])
    return JobLine(
        uid=uid_text(uid),
        namespace=namespace,
        name=name,
        kind=kind,
        user=user,
        queue=names[queue],
        size=size,
        created=created,
        started=min(row[3] for row in held),
        ended=None if last == OPEN else last,
        why=None if last == OPEN or why is None else Ended(why),
        use=Use(held=Amounts(*sums), lost=Amounts(gpu=lost), jobs=1),
    )


@attrs.frozen(kw_only=True)
class Search:
    """Which finished jobs are wanted: all conditions that are given.

    Units: milliseconds.
    """

    since: int
    """They ended at this instant or later."""
    name: str = ""
    """A part of the name, in lower case."""
    user: str = ""
    """A part of the name of the user, in lower case."""
    queue: str = ""
    with_below: bool = True
    """Whether queues below ``queue`` count."""
    why: Ended | None = None
    namespaces: frozenset[str] | None = None
    """Jobs of these only; None for all."""
    before: tuple[int, int] | None = None
    """The place after which the list goes on: `Finished.place` of the last one before."""


@attrs.frozen(kw_only=True)
class Finished:
    """A job that has ended, and the recorded amounts that it held."""

    job: JobLine
    place: tuple[int, int]
    """Its place in the list of all finished jobs, from which the list goes on."""


def last_finished(connection: Connection, search: Search, most: int) -> list[Finished]:
    """Return the jobs that ended last, the newest first, ``most`` at most.

    Cost: a few rows for each match; with names, users or namespaces also one pass over the table of jobs.
    """
    values: dict[str, int | str] = {"since": search.since, "open": OPEN, "most": most, "few": _FEW}
    of_job, wanted = _of_job(search, values), _of_end(connection, search, values)
    # Of the rows of a job that end last, the one with the lowest number stands for it: the index has that one first.
    wanted.append(
        "NOT EXISTS (SELECT 1 FROM held AS other WHERE other.job = held.job"
        " AND (other.until > held.until OR (other.until = held.until AND other.id < held.id)))"
    )
    table = "held"
    if of_job:
        # To walk back in time until a page is full is quick for many matches, and reads all intervals for few.
        few = connection.execute(f"SELECT id FROM job WHERE {' AND '.join(of_job)} LIMIT :few", values).fetchall()
        if len(few) < _FEW:
            table, of_job = "held INDEXED BY held_job", [f"held.job IN ({','.join(str(row) for (row,) in few)})"]
    found = connection.execute(
        f"SELECT held.job, held.until, held.id FROM {table} JOIN job ON job.id = held.job"
        f" WHERE {' AND '.join((*wanted, *of_job))} ORDER BY held.until DESC, held.id DESC LIMIT :most",
        values,
    ).fetchall()
    heard = heard_until(connection) or 0
    lines = _lines(connection, [job for job, _, _ in found], {"from": 0, "to": heard, "heard": heard})
    return [Finished(job=line, place=(until, row)) for line, (_, until, row) in zip(lines, found, strict=True)]


def _of_job(search: Search, values: dict[str, int | str]) -> list[str]:
    """Return the conditions on jobs, and add their values."""
    wanted = []
    if search.name:
        values["name"] = search.name
        wanted.append("instr(lower(job.name), :name)")
    if search.user:
        values["user"] = search.user
        wanted.append("job.user IN (SELECT id FROM word WHERE instr(lower(text), :user))")
    if search.namespaces is not None:
        names = {f"place{at}": name for at, name in enumerate(sorted(search.namespaces))}
        values |= names
        marks = ",".join(f":{each}" for each in names)
        wanted.append(f"job.namespace IN (SELECT id FROM word WHERE text IN ({marks}))")
    return wanted


def _of_end(connection: Connection, search: Search, values: dict[str, int | str]) -> list[str]:
    """Return the conditions on the interval with which a job ended, and add their values."""
    wanted = ["held.until >= :since AND held.until < :open"]
    if search.before is not None:
        values |= {"until": search.before[0], "row": search.before[1]}
        wanted.append("held.until <= :until AND (held.until < :until OR held.id < :row)")
    if search.why is not None:
        values["why"] = int(search.why)
        wanted.append("held.ended = :why")
    if search.queue:
        rows = (
            row
            for row, facts in queues_by_row(connection).items()
            if search.queue in ([each.name for each in facts.path] if search.with_below else [facts.name])
        )
        wanted.append(f"held.queue IN ({','.join(map(str, rows))})")
    return wanted
