"""Column maps: the meaning of each column of a trace, read from the data files in ``kai/lab/traces/formats``.

A format has a ``title``, the columns that it ``needs`` (by which it is recognised; ``A|B`` needs either), a
``separator`` other than a comma, and below ``job`` a rule for each property of a job. A rule names a ``column`` and how
its text is read; in a list of rules the first one whose column has a text applies:

    as          text (default), number, count, seconds, clock, time, moment, truth, mebibytes, types
    scale       a number to multiply by            default     the value of an empty or missing column
    map         other words for these              split       several values in one text
    part        of a text such as cpu=4,mem=64G    where_gpus  applies only where a pod asks for this number of GPUs
    empty       words that stand for no text

Properties: name, arrival, eligible, duration or start and end, suspended, pods, gpus, cpus and memory_mib of each pod
or all_gpus, all_cpus and all_memory_mib of all, share (of one GPU), all_share and all_shards, minimum, queue, user,
priority, preemptible, models, types. ``nodes`` has the rules of a file of nodes. ``assume`` lists assumptions. Each
table of ``leave_out`` has regular expressions for some columns, and the ``reason`` why rows that match all of them are
no jobs. ``together`` recognises rows that are parts of one job. ``free_text`` names columns that may contain a
separator. ``better`` says what is lost without a column, ``command`` is a command that writes all of them. ``called``
has alternative names of columns. A new format needs only a new file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from math import isfinite
from typing import Any, Final

import attrs

from kai.api import values as quantity
from kai.api import values as times
from kai.api.values import BadValue
from kai.basics import parsing
from kai.basics.errors import on_one_line

FOLDER: Final = "formats"
OWN: Final = "kai"
"""The format that people write by hand."""
_MIB: Final = 1 << 20
_TRUE: Final = frozenset({"true", "1", "yes"})
_FALSE: Final = frozenset({"false", "0", "no"})
_ZONE: Final = re.compile(r":[0-9]{2}(?:\.[0-9]+)?(?P<zone> ?(?:[Zz]|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?))$")
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_CLOCK: Final = re.compile(r"(?:(?P<days>[0-9]+)-)?(?:(?P<hours>[0-9]+):)?(?P<minutes>[0-9]+):(?P<seconds>[0-9]+)")
"""Slurm's notation of durations: days-hours:minutes:seconds."""

Row = Mapping[str, str]


class RowError(ValueError):
    """A row cannot be used; the message names the column and its text."""

    def __init__(self, message: str) -> None:
        """Keep the message on one line: a quoted field may span several."""
        super().__init__(on_one_line(message))


@attrs.frozen(kw_only=True)
class Rule:
    """How to read one property from a row."""

    column: str
    kind: str = "text"
    scale: float = 1.0
    default: Any = None
    words: Mapping[str, str] | None = None
    split: str = ""
    part: str = ""
    where_gpus: float | None = None
    empty: frozenset[str] = frozenset()
    otherwise: Rule | None = None
    """The rule to use if this one finds no text."""

    def of(self, row: Row) -> Rule:
        """Return the first rule of the chain that finds a text in a row; if none does, this one."""
        rule: Rule | None = self
        while rule is not None and not rule.text(row):
            rule = rule.otherwise
        return rule or self

    def text(self, row: Row) -> str:
        """Return the text in a row, "" for none."""
        found = (row.get(self.column) or "").strip()
        if found in self.empty:
            return ""
        if self.part and found:
            parts = [each.partition("=")[::2] for each in found.split(",")]
            same = [amount for name, amount in parts if name == self.part]
            kinds = {name.partition(":")[2]: amount for name, amount in parts if name.startswith(f"{self.part}:")}
            if self.kind == "types":
                return ",".join(kinds)
            found = same[0] if same else _sum_of(list(kinds.values()))  # gres/gpu includes gres/gpu:a100
        return found

    def read(self, row: Row) -> Any:  # noqa: ANN401 - of the kind that the rule says
        """Return the value in a row.

        Raises: RowError for a text that is no such value.
        """
        rule = self.of(row)
        if rule is not self:
            return rule.read(row)
        text = self.text(row)
        if not text:
            return next((each.default for each in self.chain() if each.default is not None), None)
        try:
            return self._value(text)
        except (ValueError, OverflowError, BadValue):
            raise RowError(f'{self.column} is "{text}", expected {_WANTED[self.kind]}') from None

    def chain(self) -> Iterator[Rule]:
        """Yield this rule and its fallbacks."""
        yield self
        if self.otherwise is not None:
            yield from self.otherwise.chain()

    def _value(self, text: str) -> Any:  # noqa: ANN401 - see read
        read = _READERS.get(self.kind)
        if read is not None:
            value = read(text)
            return value if self.scale == 1.0 else value * self.scale
        if self.split:
            return tuple(part.strip() for part in text.split(self.split) if part.strip())
        return text if self.words is None else self.words.get(text, text)


_WANTED: Final = {
    "text": "a text",
    "number": "a number",
    "seconds": "seconds, or a duration such as 2h30m",
    "clock": "a duration such as 1-02:03:04",
    "moment": "seconds from the start, or a time such as 2020-04-01 00:04:44",
    "types": "names of types",
    "count": "a whole number",
    "time": "a time such as 2020-04-01 00:04:44",
    "mebibytes": "an amount of memory such as 64G",
    "truth": "true or false",
}


@attrs.frozen(kw_only=True)
class Exclusion:
    """Rows that are no jobs: those in which every listed column matches its pattern."""

    patterns: Mapping[str, re.Pattern[str]]
    reason: str

    def holds(self, row: Row) -> bool:
        """Return whether a row is excluded; a missing column matches nothing."""
        return all(
            (text := row.get(column)) is not None and pattern.search(text.strip()) is not None
            for column, pattern in self.patterns.items()
        )


@attrs.frozen(kw_only=True)
class Format:
    """The column map of one kind of trace."""

    name: str
    title: str
    needs: tuple[str, ...]
    separator: str = ","
    rows: str = "table"
    job: Mapping[str, Rule]
    nodes: Mapping[str, Rule] = attrs.field(factory=dict)
    node_needs: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    exclusions: tuple[Exclusion, ...] = ()
    together: tuple[str, re.Pattern[str]] | None = None
    """A column, and a pattern of its texts in rows that are parts of one job; the first group names the job."""
    free_text: frozenset[str] = frozenset()
    """Columns of free text, which may contain the separator."""
    better: Mapping[str, str] = attrs.field(factory=dict)
    """What is lost without each of these columns."""
    command: str = ""
    """A command that writes a file with all columns."""
    called: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    """Alternative names of columns."""

    @property
    def columns(self) -> set[str]:
        """All columns that the format knows."""
        excluding = {column for each in self.exclusions for column in each.patterns}
        read = {each.column for rule in self.job.values() for each in rule.chain()}
        return {*(each for one in self.needs for each in one.split("|")), *excluding, *read}

    def missing(self, columns: Collection[str]) -> list[str]:
        """Return the needed columns that are missing."""
        return [one.replace("|", " or ") for one in self.needs if not set(one.split("|")) & set(columns)]


@cache
def formats() -> tuple[Format, ...]:
    """Return all column maps, by name."""
    folder = resources.files("kai.lab.traces").joinpath(FOLDER)
    files = sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name)
    return tuple(_format(each.name.removesuffix(".toml"), tomllib.loads(each.read_text("utf-8"))) for each in files)


def format_of(columns: Sequence[str], *, rows: str = "table") -> Format | None:
    """Return the format whose needed columns are all present; of several the one that needs most."""
    found = [each for each in formats() if each.rows == rows and not each.missing(columns)]
    # What one format needs may be among what a more special one needs.
    return max(found, key=lambda each: len(each.needs), default=None)


def node_format_of(columns: Sequence[str]) -> Format | None:
    """Return the format that reads nodes from these columns."""
    return next((each for each in formats() if each.node_needs and set(each.node_needs) <= set(columns)), None)


def _format(name: str, values: Mapping[str, Any]) -> Format:
    nodes = dict(values.get("nodes", {}))
    return Format(
        name=name,
        title=values["title"],
        needs=tuple(values["needs"]),
        separator=values.get("separator", ","),
        rows=values.get("rows", "table"),
        node_needs=tuple(nodes.pop("needs", ())),
        job={key: _rule(rule) for key, rule in values["job"].items()},
        nodes={key: _rule(rule) for key, rule in nodes.items()},
        assumptions=tuple(values.get("assume", ())),
        exclusions=tuple(map(_exclusion, values.get("leave_out", ()))),
        together=_together(values.get("together")),
        free_text=frozenset(values.get("free_text", ())),
        better=dict(values.get("better", {})),
        command=values.get("command", ""),
        called={key: tuple(names) for key, names in values.get("called", {}).items()},
    )


def _together(values: Mapping[str, str] | None) -> tuple[str, re.Pattern[str]] | None:
    return None if values is None else (values["column"], re.compile(values["like"]))


def _exclusion(values: Mapping[str, str]) -> Exclusion:
    patterns = {column: re.compile(text) for column, text in values.items() if column != "reason"}
    return Exclusion(patterns=patterns, reason=values["reason"])


def _rule(values: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Rule:
    names = {"as": "kind", "map": "words"}
    found: Rule | None = None
    for each in reversed([values] if isinstance(values, Mapping) else values):
        given = {names.get(key, key): value for key, value in each.items()}
        given["empty"] = frozenset(given.get("empty", ()))
        found = Rule(**given, otherwise=found)
    if found is None:
        raise ValueError("a property has no rule")
    return found


def instant_of(text: str) -> float:
    """Return a date or a time of a trace in seconds since the epoch; without a zone it is UTC.

    Raises: ValueError for any other text.
    """
    try:
        return _instant(f"{text}T00:00:00" if _DATE.fullmatch(text) else text)
    except BadValue as error:
        raise ValueError(str(error)) from None


def _instant(text: str) -> float:
    """Return a calendar time, or a number of seconds, in seconds since the epoch; without a zone it is UTC."""
    try:
        seconds = float(text)
    except ValueError:
        return times.instant(_zoned(text))
    if not isfinite(seconds):
        raise ValueError(text)
    return seconds


def is_local(text: str) -> bool:
    """Return whether a text is a calendar time without a zone."""
    # Without a colon it is a date or a number of seconds.
    return ":" in text and _ZONE.search(text) is None


def _zoned(text: str) -> str:
    """Return a time with its zone in RFC 3339 form: strftime writes +0100, without a colon."""
    match = _ZONE.search(text)
    if match is None:
        return f"{text.replace(' ', 'T')}Z"
    zone, plain = match["zone"].strip(), text[: match.start("zone")].replace(" ", "T")
    if zone[0] not in "+-":
        return f"{plain}Z"
    return f"{plain}{zone[:3]}:{zone[3:].lstrip(':') or '00'}"


def _moment(text: str) -> float:
    """Return seconds from the start, or a calendar time in seconds since the epoch."""
    try:
        return _instant(text)
    except BadValue:
        return _seconds(text)


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(text)
    return value


def _seconds(text: str) -> float:
    """Return seconds, also from a duration with units."""
    try:
        value = float(text)
    except ValueError:
        return parsing.seconds(text)
    if not isfinite(value):
        raise ValueError(text)
    return value


def _count(text: str) -> int:
    # Tables write whole numbers as "4.0", as Parquet does for columns with empty cells.
    count = float(text)
    if count != int(count):
        raise ValueError(text)
    return int(count)


def _clock(text: str) -> float:
    """Return the seconds of a duration in Slurm's notation: 1-02:03:04."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        raise ValueError(text)
    days, hours, minutes, seconds = (int(each or 0) for each in match.group("days", "hours", "minutes", "seconds"))
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def _truth(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(text)
    return text.lower() in _TRUE


def _mebibytes(text: str) -> float:
    return quantity.amount(_binary(text), 1) / _MIB


def _types(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "number": _finite,
    "count": _count,
    "seconds": _seconds,
    "clock": _clock,
    "time": _instant,
    "moment": _moment,
    "truth": _truth,
    "mebibytes": _mebibytes,
    "types": _types,
}


def _sum_of(amounts: Sequence[str]) -> str:
    """Return the sum of integers as text, "" for an empty sequence.

    Raises: RowError for a text that is no integer.
    """
    try:
        return str(sum(map(int, amounts))) if amounts else ""
    except ValueError:
        raise RowError(f"found {' and '.join(amounts)}, expected whole numbers") from None


def _binary(text: str) -> str:
    """Return an amount in Kubernetes' notation: Slurm's G are gibibytes."""
    # Older releases of Slurm append c or n, for memory by CPU or by node.
    plain = text.rstrip("cn")
    return f"{plain}i" if plain[-1:] in "KMGTP" else plain
