"""Read traces: the columns determine the format, and every unusable row is reported with its line.

Rows are read once; the jobs are sorted by arrival, whatever the order of the file.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from kai.api import values
from kai.basics.errors import InputError, on_one_line
from kai.basics.wording import counted, first_of, number_text, span_text
from kai.lab.traces.columns import OWN, Format, Row, RowError, format_of, formats, is_local, node_format_of
from kai.lab.traces.jobs import Demand, TraceJob, TraceNode, job_of, node_of
from kai.lab.traces.rows import MORE, read_rows
from kai.manifests import Finding, RefusedError

_FEW: Final = 6
_OLDEST: Final = 631152000.0
"""The year 1990: smaller numbers are seconds from a zero of the trace's own, and no dates."""
_HOUR: Final = 3600.0
_LONG: Final = 6 * _HOUR
_SHIFT_SLACK: Final = 2.0
_LONG_BEGIN: Final = 0.1
"""A fraction of the trace's length.

If no job ends in so long a beginning, although jobs are listed that began before it, jobs that ended early are missing.
"""
_ROW_OF_SACCT: Final = re.compile(r"[0-9]+(?:_[0-9]+)?\|.*[0-9]{2}:[0-9]{2}:[0-9]{2}")


@attrs.frozen(kw_only=True)
class Trace:
    """The jobs of a trace in order of arrival, from 0 on."""

    form: Format
    jobs: tuple[TraceJob, ...]
    rows: int
    dropped: Mapping[str, int]
    """Number of excluded rows, by reason."""
    unread: tuple[str, ...] = ()
    """Columns that no property of a job is read from."""
    began: float | None = None
    """The instant of time 0 in seconds since the epoch; None where arrivals are no calendar times."""
    notes: tuple[str, ...] = ()
    """Doubts about the file as a whole."""
    assumptions: tuple[str, ...] = ()


def read_trace(path: str, *, skips_bad_rows: bool = False, since: float | None = None) -> Trace:
    """Return the jobs of a trace; with ``since``, the jobs that ran or arrived from that instant on.

    Raises: RefusedError for an unusable row, unless ``skips_bad_rows``, and for columns of no known format; InputError
    for a file that is no table.
    """
    columns, placed, kind = read_rows(path)
    form = format_of(columns, rows=kind)
    if form is None:
        raise RefusedError([_unknown(path, columns)])
    jobs: list[TraceJob] = []
    parts: list[tuple[tuple[str, float], TraceJob]] = []
    wrong: list[tuple[int, str]] = []
    dropped: Counter[str] = Counter()
    clock = _Clock(form=form)
    count = 0
    for line, found in placed:
        count += 1
        try:
            row = _evened(found, columns, form)
            # Before the row is read as a job: a row that is none, such as a step of sacct, need not have valid fields.
            reason = next((each.reason for each in form.exclusions if each.holds(row)), None)
            if reason is not None:
                dropped[reason] += 1
                continue
            job = job_of(row, line, form)
        except RowError as error:
            wrong.append((line, str(error)))
            continue
        # Only rows that are jobs: excluded ones may have times of another kind.
        clock.look(row, line)
        whole = _whole_of(row, form)
        if whole:
            parts.append(((whole, job.arrival), job))
        else:
            jobs.append(job)
    if wrong and not skips_bad_rows:
        raise RefusedError([_refused(path, wrong, count)])
    if wrong:
        dropped["they cannot be used"] += len(wrong)
    jobs += _joined(parts)
    if not jobs:
        why = ", ".join(f"{reason}: {number}" for reason, number in dropped.items())
        raise InputError(f"{path}: found no job in {counted(count, 'row')}" + (f" ({why})" if why else ""))
    return _trace(path, form, jobs, columns, clock, rows=count, dropped=dropped, since=since)


def _trace(
    path: str,
    form: Format,
    jobs: Sequence[TraceJob],
    columns: Sequence[str],
    clock: _Clock,
    *,
    rows: int,
    dropped: Counter[str],
    since: float | None,
) -> Trace:
    """Return the trace; its first job arrives at 0, or with ``since``, time 0 is that instant."""
    # Ties by line, so that a file gives one order whatever sorts it.
    ordered = sorted(jobs, key=lambda job: (job.arrival, job.line))
    ordered, shares = _with_shares(_named_apart(ordered))
    notes = [*clock.notes(), *_lost(form, columns), *_unread(form, columns)]
    if since is None:
        zero = _zero(ordered, form)
        notes += _early(ordered)
    else:
        zero = since
        ordered = _from(ordered, since, path)
        dropped["jobs that ended before --since"] += len(jobs) - len(ordered)
    return Trace(
        form=form,
        jobs=tuple(attrs.evolve(job, arrival=job.arrival - zero) for job in ordered),
        rows=rows,
        dropped={reason: number for reason, number in dropped.items() if number},
        unread=_unread_in(form, columns),
        began=zero if zero > _OLDEST else None,
        notes=tuple(notes),
        assumptions=(*form.assumptions, *shares, *clock.assumptions()),
    )


def read_nodes(path: str) -> tuple[TraceNode, ...]:
    """Return the nodes of a file.

    Raises: RefusedError for an unusable row, InputError for a file that is no table.
    """
    columns, placed, _ = read_rows(path)
    form = node_format_of(columns)
    if form is None:
        raise RefusedError([_unknown_nodes(path, columns)])
    nodes: list[TraceNode] = []
    for line, row in placed:
        try:
            nodes.append(node_of(_evened(row, columns, form), line, form))
        except RowError as error:
            raise RefusedError([Finding(code="R001", message=str(error), file=path, line=line, column=1)]) from None
    if not nodes:
        raise InputError(f"{path}: found no node in 0 rows")
    return tuple(nodes)


# --- Rows ----------------------------------------------------------------------------------------------------------


def _evened(row: Row, columns: Sequence[str], form: Format) -> Row:
    """Return a row with one field for each column; surplus separators belong to the one column of free text.

    Raises: RowError for a row with fewer or more fields than columns. Empty fields at its end are ignored, unless free
    text may have shifted the fields.
    """
    more = list(row.get(MORE, ()))
    short = sum(row[name] is None for name in columns)
    free = [at for at, name in enumerate(columns) if name in form.free_text]
    if not short and not more:
        return row
    # Some programs end each line with a separator.
    if not form.free_text and not short and not any(more):
        return {name: row[name] for name in columns}
    if more and len(free) == 1:
        fields = [*(row[name] for name in columns), *more]
        first, behind = free[0], free[0] + len(more) + 1
        fields = [*fields[:first], form.separator.join(fields[first:behind]), *fields[behind:]]
        return dict(zip(columns, fields, strict=True))
    found = counted(len(columns) - short + len(more), "field")
    said = f"found {found}, expected {len(columns)}, one for each column"
    if form.free_text:
        named = " and ".join(columns[at] for at in free) or "columns of free text"
        said += f"; a separator or a line break in a text shifts them: leave out {named}"
    raise RowError(said)


def _whole_of(row: Row, form: Format) -> str:
    """Return the job that a row is a part of, "" for a row that is a whole job."""
    if form.together is None:
        return ""
    column, like = form.together
    match = like.match((row.get(column) or "").strip())
    return match[1] if match is not None else ""


def _joined(parts: Sequence[tuple[tuple[str, float], TraceJob]]) -> Iterator[TraceJob]:
    """Yield jobs that span several rows: their pods start together, and run as long as the longest part."""
    found: dict[tuple[str, float], list[TraceJob]] = {}
    for key, job in parts:
        found.setdefault(key, []).append(job)
    for (name, _), jobs in found.items():
        durations = [job.duration for job in jobs if job.duration is not None]
        yield attrs.evolve(
            jobs[0],
            name=name,
            duration=max(durations, default=None),
            parts=tuple(part for job in jobs for part in job.parts),
            minimum=sum(job.minimum for job in jobs),
        )


def _named_apart(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """Return jobs with unique names: repeated names get numbers."""
    taken = {job.name for job in jobs}
    seen: set[str] = set()
    runs: Counter[str] = Counter()
    found: list[TraceJob] = []
    for job in jobs:
        name = job.name
        # A number must not give a job the name that a later one has by itself.
        while name in seen or (name != job.name and name in taken):
            runs[job.name] += 1
            name = f"{job.name}-{runs[job.name] + 1}"
        seen.add(name)
        found.append(job if name == job.name else attrs.evolve(job, name=name))
    return found


def _with_shares(jobs: Sequence[TraceJob]) -> tuple[list[TraceJob], tuple[str, ...]]:
    """Return jobs of shards as jobs with fractions of a GPU: the largest request of shards counts as a whole GPU."""
    most = max((part.shards for job in jobs for part in job.parts), default=0.0)
    if not most:
        return list(jobs), ()

    def shared(part: Demand) -> Demand:
        if not part.shards:
            return part
        share = part.shards / most
        return attrs.evolve(part, gpus=int(share == 1), share=None if share == 1 else share)

    said = f"A GPU has {number_text(most)} shards, the most that a pod asks for: accounting does not say how many."
    return [attrs.evolve(job, parts=tuple(map(shared, job.parts))) for job in jobs], (said,)


# --- Times ---------------------------------------------------------------------------------------------------------


def _zero(jobs: Sequence[TraceJob], form: Format) -> float:
    """Return the zero of arrivals: the first arrival in traces with calendar times, else 0."""
    # Seconds from a start of the trace's own keep their zero: its authors
    # chose it, and time before the first job counts.
    kind, first = form.job["arrival"].kind, jobs[0].arrival
    return first if kind == "time" or (kind == "moment" and first > _OLDEST) else 0.0


def _from(jobs: Sequence[TraceJob], since: float, path: str) -> list[TraceJob]:
    """Return jobs from an instant on: running ones, with their remaining time, come before waiting ones.

    Raises: InputError for a trace without start times, or without jobs from then on.
    """
    if all(job.start is None for job in jobs):
        raise InputError(f"{path}: found no time at which jobs started, expected a column Start for --since")
    found: list[TraceJob] = []
    for job in jobs:
        if job.start is not None and job.start <= since:
            left = None if job.duration is None else job.duration - (since - job.start)
            if left is None or left > 0:
                found.append(attrs.evolve(job, arrival=since, duration=left))
        else:
            # A second later than running jobs, which are bound in the first
            # cycle: else waiting jobs could take their places.
            found.append(job if job.arrival > since else attrs.evolve(job, arrival=since + 1))
    if not found:
        raise InputError(f"{path}: found no job that ran after --since, expected some")
    return sorted(found, key=lambda job: (job.arrival, job.line))


def _early(jobs: Sequence[TraceJob]) -> Iterator[str]:
    """Yield a note if nothing ends at the beginning: then the trace lacks jobs that ended before its first arrivals."""
    ends = [job.start + job.duration for job in jobs if job.start is not None and job.duration is not None]
    if len(ends) < len(jobs):
        return
    alone, whole = min(ends) - jobs[0].arrival, max(ends) - jobs[0].arrival
    if alone > max(_LONG, _LONG_BEGIN * whole):
        yield (
            f"Nothing ended in the first {span_text(alone)}: sacct -S lists jobs that were there before, and none that "
            f"had ended. --since TIME, with the time of -S, begins there; the first job ended at "
            f"{values.instant_text(round(min(ends)))[:19]}."
        )


@attrs.define(kw_only=True)
class _Clock:
    """Detects rows whose times contradict each other, as local time does when it is set back in autumn."""

    form: Format
    lines: list[int] = attrs.field(factory=list)
    """Lines of rows with contradicting times."""
    has_local: bool = False

    def look(self, row: Row, line: int) -> None:
        rules = self.form.job
        if rules["arrival"].kind != "time" or not is_local(rules["arrival"].text(row)):
            return
        self.has_local = True
        read = {name: rules[name].read(row) for name in ("arrival", "start", "end", "duration") if name in rules}
        came, start, end, ran = (read.get(name) for name in ("arrival", "start", "end", "duration"))
        if start is None or came is None:
            return
        apart = 0.0 if end is None or ran is None else end - start - ran
        # A clock that is set back makes a job start before it came; one that is set while it runs makes its times
        # disagree with its elapsed time by the hour.
        if start < came - _SHIFT_SLACK or abs(abs(apart) - _HOUR) <= _SHIFT_SLACK:
            self.lines.append(line)

    def notes(self) -> Iterator[str]:
        if self.lines:
            rows = counted(len(self.lines), "row")
            yield (
                f"Clocks were changed while jobs were there: the times of {rows} do not fit each other, first in line "
                f"{self.lines[0]}. Arrivals near that are up to an hour wrong. With SLURM_TIME_FORMAT=%s sacct writes "
                "times that no change of clocks touches."
            )

    def assumptions(self) -> tuple[str, ...]:
        return ("Times that do not say their zone are taken as UTC.",) if self.has_local else ()


# --- Columns -------------------------------------------------------------------------------------------------------


def _unread_in(form: Format, columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(name for name in columns if name and name not in form.columns)


def _unread(form: Format, columns: Sequence[str]) -> Iterator[str]:
    """Yield a note about columns that no property is read from."""
    unread = _unread_in(form, columns)
    if unread:
        named = first_of([on_one_line(name) for name in unread])
        known = ", ".join(rule.column for rule in form.job.values()) if form.name == OWN else ""
        yield f"{counted(len(unread), 'column')} not read: {named}." + (f" Columns are {known}." if known else "")


def _lost(form: Format, columns: Sequence[str]) -> Iterator[str]:
    """Yield a note for each optional column that is missing."""
    lost = {name: said for name, said in form.better.items() if name not in columns}
    for name, said in lost.items():
        yield f"Without column {name}, {said}."
    if lost and form.command:
        yield f"All columns: {form.command}"


# --- Mistakes ------------------------------------------------------------------------------------------------------


def _refused(path: str, wrong: Sequence[tuple[int, str]], rows: int) -> Finding:
    line, message = wrong[0]
    count = f"{len(wrong):,} of {rows:,} rows would be left out"
    return Finding(
        code="R001",
        message=message,
        file=path,
        line=line,
        column=1,
        help=f"kai simulate {path} --skip-bad-rows    {count}",
    )


def _unknown(path: str, columns: Sequence[str]) -> Finding:
    """Return the finding for columns of no known format: it offers kai's own, unless another format nearly matches."""
    words = {word for name in columns for word in name.split()}
    # Output of sacct without -P, or without a header, is answered with the command that writes it.
    slurm = next(form for form in formats() if form.command)
    if "JobID" in words or "JOBID" in words or _ROW_OF_SACCT.match("|".join(columns)):
        said = f"columns {', '.join(slurm.missing(columns))} are missing for {slurm.title}"
        if len(columns) == 1 or not slurm.columns & set(columns):
            lacks = "columns in fixed places" if len(columns) == 1 else "no line with the names of columns"
            said = f"found {lacks}, expected the output of sacct -P"
        return _r002(path, said, f"{slurm.command} > trace.txt")
    for form in formats():
        missing = form.missing(columns)
        if form.name != OWN and 3 * len(missing) <= len(form.needs):
            said = f"columns {', '.join(missing)} are missing for {form.title}, the nearest format"
            return _r002(path, said, f"formats: {', '.join(each.title for each in formats())}")
    own = next(form for form in formats() if form.name == OWN)
    known = [rule.column for rule in own.job.values()]
    renames = [f"{name} → {to}" for name in columns if name not in known and (to := _meant(name, own))]
    others = "other formats: " + ", ".join(each.title for each in formats() if each.name != OWN)
    said = f"found columns {_some(columns)}, expected kai's own: {own.needs[0]}, and where known "
    said += ", ".join(name for name in known if name not in own.needs)
    return _r002(path, said, "; ".join([f"rename {', '.join(renames)}"] * bool(renames) + [others]))


def _r002(path: str, said: str, help_text: str) -> Finding:
    return Finding(code="R002", message=said, file=path, line=1, column=1, help=help_text)


def _meant(name: str, own: Format) -> str:
    """Return kai's own column that ``name`` is an alternative name of; "" for none."""
    plain = name.lower().replace(" ", "_").replace("-", "_")
    return next((column for column, names in own.called.items() if plain in names), "")


def _unknown_nodes(path: str, columns: Sequence[str]) -> Finding:
    known = "; ".join(f"{each.title}: {', '.join(each.node_needs)}" for each in formats() if each.node_needs)
    return _r002(path, f"found columns {_some(columns)}, expected those of nodes", f"columns of nodes: {known}")


def _some(columns: Sequence[str]) -> str:
    return on_one_line(first_of(columns, _FEW))
