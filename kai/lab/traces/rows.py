"""Files to rows: tables as text, Parquet, and JSON logs, in which each job becomes one row."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from kai.basics.errors import InputError, load_extra
from kai.basics.parsing import list_of, mapping_of, mappings_of, part_of
from kai.basics.wording import found_by
from kai.lab.traces.columns import Row, RowError, formats

Placed = tuple[int, Row]
"""A row with its line number."""
MORE: Final = "\0"
"""The key in a row of fields beyond the last column."""
_TABLE, _PHILLY = "table", "philly"
_SEPARATORS: Final = (",", "|", "\t", ";")
_LARGEST_TIME: Final = 4_294_967_000
"""Larger values mean no time: Slurm reserves two 32-bit numbers for that."""


def read_rows(path: str) -> tuple[Sequence[str], Iterator[Placed], str]:
    """Return the columns of a file, its rows with their line numbers, and the kind of rows.

    Raises: InputError for a file that is no table.
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
    begin = text.lstrip()[:1]
    if begin == "[":
        return _philly(text, path)
    if begin == "{":
        return _sacct(text, path)
    lines = io.StringIO(text)
    head = lines.readline()
    # By the header, which has no free text; later lines may hold more commas than separators.
    separator = max(_SEPARATORS, key=head.count)
    # Slurm does not quote fields, so a name may begin with a quotation mark.
    quote = None if separator == "|" else '"'
    reader = csv.DictReader(
        io.StringIO(text, newline=None),
        delimiter=separator,
        restkey=MORE,
        quotechar=quote,
        quoting=csv.QUOTE_NONE if quote is None else csv.QUOTE_MINIMAL,
    )
    with _as_table(reader, path):
        columns = [str(name).strip() for name in reader.fieldnames or ()]
    if not columns:
        raise InputError(f"{path}: found nothing, expected a trace")
    # Stripped names: tables written by hand have blanks after commas, and the rules look columns up by name.
    reader.fieldnames = columns
    return columns, _placed(reader, path), _TABLE


def _placed(reader: csv.DictReader[str], path: str) -> Iterator[Placed]:
    with _as_table(reader, path):
        yield from ((reader.line_num, row) for row in reader)


@contextmanager
def _as_table(reader: csv.DictReader[str], path: str) -> Iterator[None]:
    """Turn errors of the CSV parser into InputError."""
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
    """Return one job of Philly's log as a row; missing values are empty."""
    values = mapping_of(job)
    attempts = mappings_of(values, "attempts")
    row = {key: str(values.get(key) or "") for key in ("jobid", "vc", "user", "submitted_time")}
    spans = [(str(each.get("start_time") or ""), str(each.get("end_time") or "")) for each in attempts]
    # The first attempt has what was asked for; later ones may run on other machines.
    servers = mappings_of(attempts[0], "detail") if attempts else []
    most = max((len(list_of(each, "gpus")) for each in servers), default=0)
    row["run_seconds"] = _philly_seconds(spans)
    return {**row, "servers": str(len(servers) or ""), "gpus_per_server": str(most)}


def _philly_seconds(spans: Sequence[tuple[str, str]]) -> str:
    """Return the total seconds of all attempts; a non-numeric word if a time is missing."""
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


# --- Slurm's JSON --------------------------------------------------------------------------------------------------


def _sacct(text: str, path: str) -> tuple[Sequence[str], Iterator[Placed], str]:
    """Return the jobs of ``sacct --json``, each as the row that ``sacct -P`` would write.

    Source: outputs of Slurm 22.05.8 and 24.11.5; between them numbers became objects and the state a list.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: found {error}, expected the output of sacct --json") from None
    jobs = document.get("jobs") if isinstance(document, Mapping) else None
    if not isinstance(jobs, list):
        raise InputError(f"{path}: found no list of jobs, expected the output of sacct --json")
    if jobs and part_of(jobs[0], "time", "submission") is None:
        raise InputError(f"{path}: found jobs without time.submission, expected those of sacct --json, not of squeue")
    # An empty list is reported as a trace without jobs, not as one of an unknown format.
    columns = tuple(_sacct_row({})) if not jobs else tuple(_sacct_row(jobs[0]))
    return columns, ((at, _sacct_row(job)) for at, job in enumerate(jobs, start=1)), _TABLE


def _sacct_row(job: object) -> Row:
    values = mapping_of(job)
    times = mapping_of(values.get("time"))
    states = mapping_of(values.get("state")).get("current")
    tres = mapping_of(values.get("tres"))
    suspended = _number(times.get("suspended")) or 0
    return {
        "JobID": _job_id(values),
        "User": _text(values.get("user") or part_of(values, "association", "user")),
        "Account": _text(values.get("account") or part_of(values, "association", "account")),
        "Submit": _time(times.get("submission")),
        "Eligible": _time(times.get("eligible")),
        "Start": _time(times.get("start")),
        "End": _time(times.get("end")),
        "ElapsedRaw": _text(_number(times.get("elapsed"))),
        "Suspended": f"{suspended // 60}:{suspended % 60}",
        "NNodes": _text(_number(values.get("allocation_nodes")) or ""),
        "NodeList": _text(values.get("nodes")),
        "ReqTRES": _tres(mappings_of(tres, "requested")),
        "AllocTRES": _tres(mappings_of(tres, "allocated")),
        "State": _text(states[0] if isinstance(states, list) and states else states),
    }


def _job_id(job: Mapping[str, Any]) -> str:
    """Return the job ID as sacct prints it: 83_2 for a task of an array, 3+1 for a part of a heterogeneous job."""
    array, het = mapping_of(job.get("array")), mapping_of(job.get("het"))
    # A task of an array that has started has its own row; tasks that wait share one, with a range.
    task, waiting = _number(array.get("task_id")), array.get("task")
    if of_array := _number(array.get("job_id")):
        if task is not None:
            return f"{of_array}_{task}"
        if isinstance(waiting, str) and waiting:
            return f"{of_array}_[{waiting}]"
    offset = _number(het.get("job_offset"))
    if (of_het := _number(het.get("job_id"))) and offset is not None:
        return f"{of_het}+{offset}"
    return _text(_number(job.get("job_id")))


def _number(value: object) -> int | None:
    """Return an integer; newer versions wrap it in an object that may be marked as unset or infinite."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") is True and value.get("infinite") is not True else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _time(value: object) -> str:
    seconds = _number(value)
    return str(seconds) if seconds is not None and 0 < seconds < _LARGEST_TIME else "Unknown"


def _tres(listed: Sequence[Mapping[str, Any]]) -> str:
    """Return resources as sacct -P prints them; memory is in mebibytes."""
    found: list[str] = []
    for each in listed:
        kind, name, count = _text(each.get("type")), _text(each.get("name")), _number(each.get("count"))
        if count is not None and count >= 0:
            found.append(f"{kind}{'/' if name else ''}{name}={count}{'M' if kind == 'mem' else ''}")
    return ",".join(found)


def _text(value: object) -> str:
    return "" if value is None else str(value)
