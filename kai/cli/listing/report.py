"""``kai report`` and ``kai history``: what was held over days, weeks and months.

Both read the file that the scheduler writes, here or in a pod (``kubectl exec``), and need neither a cluster nor numpy.
"""

from __future__ import annotations

import csv
import datetime as dt
import html
import io
import json
import re
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from kai.answers.cases.origin import Origin
from kai.answers.documents.document import as_json, enveloped
from kai.answers.documents.listings import SpanItem, UsageHistory, UsageItem, UsageReport
from kai.api.codec.structuring import structure
from kai.api.kinds import key_of
from kai.api.scheduling.queue import Queue
from kai.basics.errors import CommandLineError
from kai.basics.parsing import is_postgresql, place_text
from kai.basics.schedules import read_zone
from kai.basics.wording import number_text, shown
from kai.cli.console import FORMATS, Console, console_options, write_kind, yaml_text
from kai.cli.tables import Column, table, wrapped
from kai.history.database import heard_until, queues_by_row, reading
from kai.history.facts import HOURS, NOTHING, RESOURCES
from kai.history.reports import capacity, held_by_queue
from kai.history.tables import BUDGETS, KINDS, PERIODS, Report, Row, Span, instant, midnight, report, spans

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

PLACE: Final = "/var/lib/kai/history.db"
_ORIGIN: Final = Origin(type="history")
_EXACT: Final = ("gpuMicroseconds", "lostGpuMicroseconds", "uid", "depth")
"""Keys of documents that tables for people leave out."""
_INSTANTS: Final = ("started", "begins", "resets")
"""Keys of instants, which tables for people show in the time zone of the report."""
_WANTED_TIME: Final = 'a day such as "2026-01-31", a time such as "2026-01-31T12:00", or "7d" for that long ago'
_AGO: Final = re.compile(r"([0-9]{1,5})([hdw])")
_UNITS: Final = {"h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_BAR: Final = 40
_PLACE_HELP: Final = "The history: a file, or the address of PostgreSQL."
_BLOCK: Final = 1000
"""Rows of a report that are in memory at once."""


@attrs.frozen(kw_only=True)
class _Time:
    since: str
    until: str
    zone: str

    def span(self, heard: int) -> tuple[Span, dt.tzinfo]:
        """Return the time that was asked for; by default the present month up to the last record.

        Raises: CommandLineError.
        """
        try:
            zone = read_zone(self.zone)
        except ValueError as error:
            raise CommandLineError(f"--tz: {error}") from None
        # A record that ends at midnight of the first is of the month before, as a simulated month is.
        today = dt.datetime.fromtimestamp((heard - 1) / 1000, zone).date()
        since = _instant(self.since, "--from", heard, zone) if self.since else midnight(today.replace(day=1), zone)
        until = _instant(self.until, "--to", heard, zone) if self.until else heard
        if since > until:
            raise CommandLineError(f"--from: found {instant(since)}, expected a time before --to, {instant(until)}")
        return Span(since=since, until=until), zone


def _instant(text: str, flag: str, heard: int, zone: dt.tzinfo) -> int:
    ago = _AGO.fullmatch(text)
    if ago:
        return heard - int(ago[1]) * _UNITS[ago[2]]
    try:
        moment = dt.datetime.fromisoformat(text)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise CommandLineError(f"{flag}: found {shown(text)}, expected {_WANTED_TIME}") from None


def _time_options(function: Any) -> Any:  # noqa: ANN401 - as decorators of click return
    for option in reversed(
        (
            click.option("--file", "place", default=PLACE, show_default=True, metavar="FILE", help=_PLACE_HELP),
            click.option("--from", "since", default="", metavar="TIME", help=f"From when: {_WANTED_TIME}."),
            click.option("--to", "until", default="", metavar="TIME", help="Up to when. Default: the last record."),
            click.option("--tz", "zone", default="UTC", show_default=True, help="The time zone of days."),
        )
    ):
        function = option(function)
    return function


# -------------------------------------------------------------------------------------------------------------- report


@click.command(name="report")
@click.argument("kind", metavar="REPORT", type=click.Choice((*KINDS, BUDGETS)))
@_time_options
@click.option(
    "--queues",
    "queues_file",
    default="",
    metavar="FILE",
    help="Queues with the budgets to report, as `kubectl get queues.scheduling.run.ai -o yaml` writes them; - for"
    " standard input.",
)
@click.option("--by", type=click.Choice(PERIODS), default=None, help="A report for each of these.")
@console_options((*FORMATS, "csv", "html"))
def report_command(
    console: Console, *, kind: str, place: str, since: str, until: str, zone: str, by: str | None, queues_file: str
) -> None:
    """Report who used what over a time: from the file with the history of usage.

    REPORT is one of jobs, queues, users, namespaces, sizes, models, nodes, endings, evictions, utilisation and budgets.
    """
    if kind == BUDGETS and by is not None:
        raise CommandLineError(f"--by: found {by}, expected none with budgets: each of their periods has rows")
    queues = _queues(kind, queues_file)
    with reading(place) as connection:
        heard = heard_until(connection) or 0
        since = since or ("0h" if kind == BUDGETS else "")  # budgets have periods of their own: the present ones
        span, local = _Time(since=since, until=until, zone=zone).span(heard)
        made = report(connection, kind, span, by=by or "", zone=local, queues=queues)
        # Written while the file is read: a month may have a million jobs.
        if console.is_for_machines:
            for part in _document(made, console):
                console.write_part(part)
            return
        for part in _FORMS[console.output if console.output in _FORMS else "table"](made, console):
            console.write(part)


def _queues(kind: str, place: str) -> list[Queue]:
    """Return the queues of a file, by name.

    Raises: CommandLineError; RefusedError and InputError for a file that cannot be read.
    """
    if kind != BUDGETS:
        if place:
            raise CommandLineError(f"--queues: found {shown(place)}, expected none with the report {kind}")
        return []
    if not place:
        wanted = "a file with queues, or - for standard input: kubectl get queues.scheduling.run.ai -o yaml"
        raise CommandLineError(f"--queues: found nothing, expected {wanted}")
    from kai.manifests.manifest_reading import documents_of, open_text

    try:
        text = sys.stdin.buffer.read() if place == "-" else Path(place).read_bytes()
    except OSError as error:
        raise CommandLineError(f"--queues: {place}: {error.strerror}") from None
    found = [each.manifest for each in documents_of(*open_text(text, place))]
    queues = [structure(each) for each in found if each.get("kind") == Queue.__name__]
    return sorted((each for each in queues if isinstance(each, Queue)), key=key_of)


def as_csv(made: Report, console: Console) -> Iterator[str]:
    """Yield all rows with the begin and the end of their spans, `_BLOCK` at a time."""
    del console
    heads: list[str] | None = None
    for span, rows in made.spans:
        times = [instant(span.since), instant(span.until)]
        for block in _blocks(rows):
            lines = [] if heads is not None else [["from", "to", *block[0]]]
            heads = heads or list(block[0])
            yield _csv_text([*lines, *([*times, *(row[head] for head in heads)] for row in block)])
    if heads is None:
        yield "from,to"


def _csv_text(lines: Iterable[Sequence[object]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue().rstrip("\n")


def _blocks(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield rows, `_BLOCK` at a time."""
    left = iter(rows)
    while block := list(islice(left, _BLOCK)):
        yield block


def _document(made: Report, console: Console) -> Iterator[str]:
    """Yield the document with all rows and exact amounts, `_BLOCK` rows at a time; its bytes are those of one piece."""
    recorded = None if made.recorded is None else instant(made.recorded)
    whole = UsageReport(report=made.kind, recorded_until=recorded, spans=())
    around = enveloped(type(whole).__name__, as_json(whole), _ORIGIN)
    spans = (
        (as_json(SpanItem(from_=instant(span.since), to=instant(span.until), rows=())), _blocks(rows))
        for span, rows in made.spans
    )
    yield from (_json_parts if console.output == "json" else _yaml_parts)(around, spans, console)


def _json_parts(
    around: dict[str, Any], spans: Iterable[tuple[dict[str, Any], Iterable[list[Row]]]], console: Console
) -> Iterator[str]:
    def text(value: object) -> str:
        return json.dumps(value, ensure_ascii=console.plain)

    # Spans are the last key of the document, and rows of a span: each time the brackets are opened for what follows.
    yield text(around).removesuffix("]}")
    gap = ""
    for span, blocks in spans:
        yield gap + text(span).removesuffix("]}")
        gap, comma = ", ", ""
        for block in blocks:
            yield comma + text(block)[1:-1]
            comma = ", "
        yield "]}"
    yield "]}\n"


def _yaml_parts(
    around: dict[str, Any], spans: Iterable[tuple[dict[str, Any], Iterable[list[Row]]]], console: Console
) -> Iterator[str]:
    yield "---\n" + yaml_text(around, console).removesuffix(" []")
    is_empty = True
    for span, blocks in spans:
        is_empty, has_rows = False, False
        yield "\n" + yaml_text([span], console).removesuffix(" []")
        for block in blocks:
            # In a list of its own, for the depth of the lines.
            yield "\n" + yaml_text([{"rows": block}], console).partition("\n")[2]
            has_rows = True
        yield "" if has_rows else " []"
    yield " []\n" if is_empty else "\n"


def as_table(made: Report, console: Console) -> Iterator[str]:
    """Yield a table for each span; one of more than `_BLOCK` rows in parts, each with its own widths and heads."""
    gap = ""
    for span, rows in made.spans:
        yield f"{gap}{_title(made, span)}"
        gap, is_empty = "\n", True
        for block in _blocks(rows):
            yield _table(block, made, console)
            is_empty = False
        if is_empty:
            yield "nothing was held"
    if not made.spans:
        yield "no time to report on"


def _title(made: Report, span: Span) -> str:
    name = f"{made.kind} {span.name}".strip()
    since, until = (_local(instant(each), made.zone) for each in (span.since, span.until))
    zone = "" if str(made.zone) == "UTC" else f" ({made.zone})"
    return f"{name}: {since}{f' to {until}' if span.until > span.since else ''}{zone}"


def _local(text: str, zone: dt.tzinfo) -> str:
    """Return an instant on the clock of the zone that was asked for; in UTC as it is."""
    # With the offset, for in autumn an hour comes twice.
    return text if str(zone) == "UTC" else dt.datetime.fromisoformat(text).astimezone(zone).isoformat(" ")


def _keys(rows: Sequence[Row]) -> dict[str, bool]:
    """Return the columns for people, and whether each has numbers."""
    keys = [key for key in rows[0] if key not in _EXACT and not key.endswith("Exact")]
    return {key: not any(isinstance(row[key], str) for row in rows) for key in keys}


def _table(rows: Sequence[Row], made: Report, console: Console) -> str:
    keys = _keys(rows)
    heads = [Column(head=_head(key), right=keys[key], drop=at if at > 1 else 0) for at, key in enumerate(keys)]
    return table(heads, [[_cell(row, key, made.zone) for key in keys] for row in rows], console.width)


def _head(key: str) -> str:
    words = "".join(f" {each}" if each.isupper() else each for each in key)
    return words.upper().replace("PERCENT", "%")


def _cell(row: Row, key: str, zone: dt.tzinfo) -> str:
    value = row[key]
    if key in _INSTANTS and isinstance(value, str):
        return _local(value, zone)
    text = "-" if value is None else number_text(value, 6) if isinstance(value, int | float) else str(value) or "-"
    return "  " * row["depth"] + text if key == "queue" and "depth" in row else text


_NUMBER: Final = ' class="n"'
_STYLE: Final = (
    ":root{color-scheme:light dark}body{font:14px sans-serif;margin:2em}h1{font-size:1.4em}h2{font-size:1.1em}"
    ".wide{overflow-x:auto;margin:1em 0}table{border-collapse:collapse}"
    "th,td{padding:.3em .8em;border-bottom:1px solid #8888;text-align:left;white-space:nowrap}"
    "th{vertical-align:bottom;white-space:normal}.n{text-align:right}"
)


def as_html(made: Report, console: Console) -> Iterator[str]:
    """Yield a page without scripts and without anything from elsewhere, `_BLOCK` rows at a time."""
    del console
    yield f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{made.kind}</title><style>{_STYLE}</style>'
    yield "<main>" if len(made.spans) == 1 else f"<main><h1>{made.kind}</h1>"
    level = "h1" if len(made.spans) == 1 else "h2"
    for span, rows in made.spans:
        yield f"<{level}>{html.escape(_title(made, span))}</{level}>"
        keys: dict[str, bool] = {}
        for block in _blocks(rows):
            if not keys:
                keys = _keys(block)
                heads = "".join(f"<th{_NUMBER if keys[key] else ''}>{_head(key)}</th>" for key in keys)
                yield f'<div class="wide" tabindex="0"><table><tr>{heads}</tr>'
            lines = ("".join(_html_cell(row, key, made.zone, keys[key]) for key in keys) for row in block)
            yield "\n".join(f"<tr>{line}</tr>" for line in lines)
        yield "</table></div>" if keys else "<p>nothing was held</p>"
    yield "</main></html>"


def _html_cell(row: Row, key: str, zone: dt.tzinfo, is_number: bool) -> str:  # noqa: FBT001 - as the table of columns has it
    text = html.escape(_cell(row, key, zone)).replace("  ", "&emsp;")
    return f"<td{_NUMBER if is_number else ''}>{text}</td>"


_FORMS: Final = {"table": as_table, "csv": as_csv, "html": as_html}


# ------------------------------------------------------------------------------------------------------------- history


@click.command()
@click.argument("queue", required=False, default="")
@_time_options
@click.option("--by", type=click.Choice(PERIODS), default="day", show_default=True, help="A line for each of these.")
@click.option("--resource", type=click.Choice(RESOURCES), default="gpu", show_default=True, help="Show this resource.")
@console_options()
def history(
    console: Console, *, queue: str, place: str, since: str, until: str, zone: str, by: str, resource: str
) -> None:
    """Show over time what QUEUE and those below it held, or all queues together."""
    at = RESOURCES.index(resource)
    with reading(place) as connection:
        heard = heard_until(connection) or 0
        span, local = _Time(since=since, until=until, zone=zone).span(heard)
        named = {each.name: each.uid for each in queues_by_row(connection).values()}
        if queue and queue not in named:
            known = ", ".join(sorted(name for name in named if name)) or "no queue yet"
            raise CommandLineError(f"queue: found {shown(queue)}, expected one of {known}")
        lines = []
        for each in spans(span.since, min(span.until, heard), by, local):
            had = capacity(connection, each.since, each.until)
            uses = held_by_queue(connection, each.since, each.until) if queue else {}
            held = uses.get(named[queue], NOTHING)[at] if queue else had.held[at]
            lines.append(_line(each, held, had.capacity[at], had.unrecorded, at))
    if console.is_for_machines:
        write_kind(UsageHistory(queue=queue or None, resource=resource, items=tuple(lines)), console, _ORIGIN)
        return
    console.write(_chart(lines, queue, resource, place, console))


def _line(span: Span, held: int, whole: int, unrecorded: int, resource: int) -> UsageItem:
    return UsageItem(
        name=span.name,
        from_=instant(span.since),
        to=instant(span.until),
        hours=round((span.until - span.since) / 3_600_000, 4),
        held_hours=round(held / HOURS[resource], 4),
        capacity_hours=round(whole / HOURS[resource], 4),
        fraction=round(held / whole, 6) if whole else 0.0,
        unrecorded_hours=round(unrecorded / 3_600_000, 4),
        held=held,
        capacity=whole,
    )


def _chart(lines: Sequence[UsageItem], queue: str, resource: str, place: str, console: Console) -> str:
    title = f"{resource}-hours of {queue or 'all queues'}, and what part of the cluster that is"
    if not lines:
        name = place_text(place) if is_postgresql(place) else Path(place).name
        return f"{name} has no record of that time"
    most = max(line.fraction for line in lines) or 1.0
    heads = [
        Column(head="FROM"),
        Column(head="HOURS", right=True, drop=3),
        Column(head="HELD", right=True),
        Column(head="OF", right=True, drop=2),
        Column(head="%", right=True),
        Column(head=""),
    ]
    rows = [
        [
            line.name,
            number_text(line.hours, 4),
            number_text(line.held_hours, 6),
            number_text(line.capacity_hours, 6),
            f"{100 * line.fraction:.1f}",
            "█" * round(line.fraction / most * _BAR),
        ]
        for line in lines
    ]
    gaps = sum(line.unrecorded_hours for line in lines)
    note = f"no scheduler recorded for {number_text(gaps, 3)} hours of it" if gaps else ""
    return "\n".join([title, table(heads, rows, console.width), *([wrapped(note, console.width)] if note else [])])
