"""Files to jobs and nodes: the format is told by the columns, every row that cannot be used has its line.

Rows are read once and kept in the order of their arrival, whatever the order of the file.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from kai.errors import InputError, on_one_line
from kai.extras import load_extra
from kai.lenient import list_of, mapping_of, mappings_of
from kai.manifests import Finding, RefusedError
from kai.traces.columns import Format, Row, RowError, format_of, formats, node_format_of
from kai.traces.jobs import TraceJob, TraceNode, job_of, node_of
from kai.wording import counted, first_of, found_by

Placed = tuple[int, Row]
"""A row with its line."""
_TABLE, _PHILLY = "table", "philly"
_MORE: Final = "\0"
"""Where the fields of a row stand for which there is no column."""
_SEPARATORS: Final = (",", "|", "\t", ";")
_FEW: Final = 6
_OLDEST: Final = 631152000.0
"""The year 1990: a column of times may count seconds from a zero of its own instead, which is no date."""


@attrs.frozen(kw_only=True)
class Trace:
    """The jobs of a trace in the order of their arrival, from 0 on."""

    form: Format
    jobs: tuple[TraceJob, ...]
    rows: int
    dropped: Mapping[str, int]
    """Rows that are left out, counted by reason."""
    unread: tuple[str, ...] = ()
    """Columns that no property of a job is read from."""
    began: float | None = None
    """When the first job arrived, in seconds since the epoch; None where arrivals are no times of the calendar."""


def read_trace(path: str, *, skips_bad_rows: bool = False) -> Trace:
    """Return the jobs of a trace.

    Raises: RefusedError for a row that cannot be used, unless such rows are to be left out, and for columns that no
        format has; InputError for what is no table.
    """
    columns, placed, kind = read_rows(path)
    form = format_of(columns, rows=kind)
    if form is None:
        raise RefusedError([_unknown(path, columns)])
    jobs: list[TraceJob] = []
    wrong: list[tuple[int, str]] = []
    dropped: Counter[str] = Counter()
    count = 0
    for line, row in placed:
        count += 1
        reason = next((each.reason for each in form.exclusions if each.holds(row)), None)
        if reason is not None:
            dropped[reason] += 1
            continue
        try:
            _refuse_uneven(row, columns)
            jobs.append(job_of(row, line, form))
        except RowError as error:
            wrong.append((line, str(error)))
    if wrong and not skips_bad_rows:
        raise RefusedError([_refused(path, wrong, count)])
    if wrong:
        dropped["they cannot be used"] += len(wrong)
    if not jobs:
        why = ", ".join(f"{reason}: {number}" for reason, number in dropped.items())
        raise InputError(f"{path}: found no job in {counted(count, 'row')}" + (f" ({why})" if why else ""))
    jobs.sort(key=lambda job: (job.arrival, job.line))
    unread = tuple(name for name in columns if name and name not in form.columns)
    first = jobs[0].arrival if form.job["arrival"].kind == "time" else 0.0
    return Trace(
        form=form,
        jobs=tuple(attrs.evolve(job, arrival=job.arrival - first) for job in jobs) if first else tuple(jobs),
        rows=count,
        dropped=dict(dropped),
        unread=unread,
        began=first if first > _OLDEST else None,
    )


def read_nodes(path: str) -> tuple[TraceNode, ...]:
    """Return the nodes of a file.

    Raises: RefusedError for a row that cannot be used, InputError for what is no table.
    """
    columns, placed, _ = read_rows(path)
    form = node_format_of(columns)
    if form is None:
        raise RefusedError([_unknown_nodes(path, columns)])
    nodes: list[TraceNode] = []
    for line, row in placed:
        try:
            _refuse_uneven(row, columns)
            nodes.append(node_of(row, line, form))
        except RowError as error:
            raise RefusedError([Finding(code="R001", message=str(error), file=path, line=line, column=1)]) from None
    if not nodes:
        raise InputError(f"{path}: found no node in 0 rows")
    return tuple(nodes)


def _refuse_uneven(row: Row, columns: Sequence[str]) -> None:
    """Refuse a row that was cut, or in a field of which a separator stands.

    Raises: RowError for a row with fewer or more fields than columns; empty ones at its end are passed over.
    """
    short, more = sum(value is None for value in row.values()), [each for each in row.get(_MORE, ()) if each]
    if short or more:
        found = counted(len(columns) - short + len(more), "field")
        raise RowError(f"found {found}, expected {len(columns)}, one for each column")


# --- Files ---------------------------------------------------------------------------------------------------------


def read_rows(path: str) -> tuple[Sequence[str], Iterator[Placed], str]:
    """Return the columns of a file, its rows with their lines, and what sort of rows they are.

    Raises: InputError for what is no table.
    """
    if path.endswith(".parquet"):
        return _parquet(path)
    try:
        data = Path(path).read_bytes()
        data = gzip.decompress(data) if path.endswith(".gz") else data
        is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # as spreadsheets write "Unicode text"
        text = data.decode("utf-16" if is_wide else "utf-8-sig", errors="replace")
    except EOFError:
        raise InputError(f"{path}: found a gzip that ends too soon, expected the whole file") from None
    except gzip.BadGzipFile:
        raise InputError(f"{path}: found no gzip, expected one by the name of the file") from None
    except OSError as error:
        raise InputError(f"{path}: found {found_by(error)}, expected a trace") from None
    except zlib.error as error:
        raise InputError(f"{path}: found {error}, expected a trace") from None
    if text.lstrip().startswith("["):
        return _philly(text, path)
    lines = io.StringIO(text)
    head = lines.readline()
    separator = max(_SEPARATORS, key=head.count)
    reader = csv.DictReader(io.StringIO(text, newline=None), delimiter=separator, restkey=_MORE)
    with _as_table(reader, path):
        columns = [str(name).strip() for name in reader.fieldnames or ()]
    if not columns:
        raise InputError(f"{path}: found nothing, expected a trace")
    reader.fieldnames = columns
    return columns, _placed(reader, path), _TABLE


def _placed(reader: csv.DictReader[str], path: str) -> Iterator[Placed]:
    with _as_table(reader, path):
        yield from ((reader.line_num, row) for row in reader)


@contextmanager
def _as_table(reader: csv.DictReader[str], path: str) -> Iterator[None]:
    """Have text that is no table end in an InputError."""
    try:
        yield
    except csv.Error as error:
        raise InputError(f"{path}:{reader.line_num}: found no table ({error}), expected a trace") from None


def _parquet(path: str) -> tuple[Sequence[str], Iterator[Placed], str]:
    parquet = load_extra("pyarrow.parquet", "traces", f"{path}: Parquet is read by pyarrow")
    try:
        table = parquet.read_table(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: found {error}, expected a Parquet file") from None
    return table.column_names, _texts(table.to_pylist()), _TABLE


def _texts(rows: Iterable[Mapping[str, Any]]) -> Iterator[Placed]:
    for line, row in enumerate(rows, start=1):
        yield line, {key: "" if value is None else str(value) for key, value in row.items()}


def _philly(text: str, path: str) -> tuple[Sequence[str], Iterator[Placed], str]:
    """Return the jobs of Philly's log, each as one row."""
    try:
        jobs = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: found {error}, expected a list of jobs") from None
    columns = ("jobid", "vc", "user", "submitted_time", "run_seconds", "servers", "gpus_per_server")
    return columns, ((at, _philly_row(job)) for at, job in enumerate(jobs, start=1)), _PHILLY


def _philly_row(job: object) -> Row:
    """Return one job of Philly's log as a row; what it does not tell is empty."""
    values = mapping_of(job)
    attempts = mappings_of(values, "attempts")
    row = {key: str(values.get(key) or "") for key in ("jobid", "vc", "user", "submitted_time")}
    spans = [(str(each.get("start_time") or ""), str(each.get("end_time") or "")) for each in attempts]
    servers = mappings_of(attempts[0], "detail") if attempts else []
    most = max((len(list_of(each, "gpus")) for each in servers), default=0)
    row["run_seconds"] = _philly_seconds(spans)
    return {**row, "servers": str(len(servers) or ""), "gpus_per_server": str(most)}


def _philly_seconds(spans: Sequence[tuple[str, str]]) -> str:
    """Return how long all attempts ran together; a word for what is missing, which no number is."""
    rule = attrs.evolve(next(each for each in formats() if each.name == _PHILLY).job["arrival"], column="at")
    total = 0.0
    for start, end in spans:
        try:
            began, ended = rule.read({"at": start}), rule.read({"at": end})
        except RowError:
            began = ended = None
        if began is None or ended is None:
            return "unknown"
        total += ended - began
    return f"{total:g}" if spans else "no attempts"


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
    nearest = max(formats(), key=lambda each: len(each.columns & set(columns)) / len(each.columns))
    missing = [name for name in nearest.needs if name not in columns]
    known = ", ".join(each.title for each in formats())
    said = f"columns {', '.join(missing)} are missing for {nearest.title}, the nearest format"
    if not nearest.columns & set(columns):
        said = f"found columns {_some(columns)}, expected those of a format"
    return Finding(
        code="R002",
        message=said,
        file=path,
        line=1,
        column=1,
        help=f"formats: {known}",
    )


def _unknown_nodes(path: str, columns: Sequence[str]) -> Finding:
    known = "; ".join(f"{each.title}: {', '.join(each.node_needs)}" for each in formats() if each.node_needs)
    return Finding(
        code="R002",
        message=f"found columns {_some(columns)}, expected those of nodes",
        file=path,
        line=1,
        column=1,
        help=f"columns of nodes: {known}",
    )


def _some(columns: Sequence[str]) -> str:
    return on_one_line(first_of(columns, _FEW))
