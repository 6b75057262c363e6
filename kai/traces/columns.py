"""Column maps: which column of a trace means what, read from the data files in ``kai/traces/formats``.

A format has a ``title``, the columns that it ``needs`` (by which it is recognised), a ``separator`` where that is no
comma, and below ``job`` a rule for each property of a job. A rule names a ``column`` and how its text is read:

    as          text (default), number, count, seconds, time, truth, mebibytes
    scale       a number to multiply by            default     what an empty or missing column stands for
    map         other words for these              split       several values in one text
    part        of a text such as cpu=4,mem=64G    where_gpus  counts only where a pod asks for so many GPUs

Properties: name, arrival, duration or start and end, pods, gpus, cpus and memory_mib of each pod or all_gpus, all_cpus
and all_memory_mib of all, share (of one GPU), minimum, queue, user, priority, preemptible, models. ``nodes`` has the
rules of a file of nodes. ``assume`` says what is taken for granted. Each table of ``leave_out`` has regular expressions
for some columns, and the ``reason`` why rows that match all of them are no jobs. A new trace is a new file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from math import isfinite
from typing import Any, Final

import attrs

from kai.api.values import quantity, times
from kai.api.values.bad_value import BadValue
from kai.errors import on_one_line

FOLDER: Final = "formats"
OWN: Final = "kai"
"""The format that people write themselves."""
_MIB: Final = 1 << 20
_TRUE: Final = frozenset({"true", "1", "yes"})
_FALSE: Final = frozenset({"false", "0", "no"})
_ZONE: Final = re.compile(r"(?:[Zz]|[+-][0-9]{2}:[0-9]{2})$")

Row = Mapping[str, str]


class RowError(ValueError):
    """A row cannot be used: what was found in which column."""

    def __init__(self, message: str) -> None:
        """Keep the message on one line: a quoted field may hold several."""
        super().__init__(on_one_line(message))


@attrs.frozen(kw_only=True)
class Rule:
    """How one property is read from a row."""

    column: str
    kind: str = "text"
    scale: float = 1.0
    default: Any = None
    words: Mapping[str, str] | None = None
    split: str = ""
    part: str = ""
    where_gpus: float | None = None

    def text(self, row: Row) -> str:
        """Return the text of a row, "" for none."""
        found = (row.get(self.column) or "").strip()
        if self.part and found:
            parts = [each.partition("=")[::2] for each in found.split(",")]
            same = [amount for name, amount in parts if name == self.part]
            kinds = [amount for name, amount in parts if name.startswith(f"{self.part}:")]
            found = same[0] if same else _sum_of(kinds)  # gres/gpu:a100: beside gres/gpu it is a part of that
        return found

    def read(self, row: Row) -> Any:  # noqa: ANN401 - of the kind that the rule says
        """Return the value of a row.

        Raises: RowError for a text that is no such value.
        """
        text = self.text(row)
        if not text:
            return self.default
        try:
            return self._value(text)
        except (ValueError, OverflowError, BadValue):
            raise RowError(f'{self.column} is "{text}", expected {_WANTED[self.kind]}') from None

    def _value(self, text: str) -> Any:  # noqa: ANN401 - see read
        match self.kind:
            case "number" | "seconds":
                value = float(text) * self.scale
                if not isfinite(value):
                    raise ValueError(text)
                return value
            case "count":
                count = float(text)
                if count != int(count):
                    raise ValueError(text)
                return int(count)
            case "time":
                return _instant(text)
            case "mebibytes":
                return quantity.amount(_binary(text), 1) / _MIB
            case "truth":
                if text.lower() not in _TRUE | _FALSE:
                    raise ValueError(text)
                return text.lower() in _TRUE
        if self.split:
            return tuple(part.strip() for part in text.split(self.split) if part.strip())
        return text if self.words is None else self.words.get(text, text)


_WANTED: Final = {
    "text": "a text",
    "number": "a number",
    "seconds": "seconds",
    "count": "a whole number",
    "time": "a time such as 2020-04-01 00:04:44",
    "mebibytes": "an amount of memory such as 64G",
    "truth": "true or false",
}


@attrs.frozen(kw_only=True)
class Exclusion:
    """Rows that are no jobs: those in which each of some columns matches its pattern."""

    patterns: Mapping[str, re.Pattern[str]]
    reason: str

    def holds(self, row: Row) -> bool:
        """Return whether a row is left out; a missing column has the text ""."""
        return all(pattern.search((row.get(column) or "").strip()) for column, pattern in self.patterns.items())


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

    @property
    def columns(self) -> set[str]:
        """All columns that it knows."""
        return {*self.needs, *(rule.column for rule in self.job.values())}


@cache
def formats() -> tuple[Format, ...]:
    """Return all column maps, by name."""
    folder = resources.files("kai.traces").joinpath(FOLDER)
    files = sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name)
    return tuple(_format(each.name.removesuffix(".toml"), tomllib.loads(each.read_text("utf-8"))) for each in files)


def format_of(columns: Sequence[str], *, rows: str = "table") -> Format | None:
    """Return the format whose needed columns are all there; of several the one that needs most."""
    found = [each for each in formats() if each.rows == rows and set(each.needs) <= set(columns)]
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
    )


def _exclusion(values: Mapping[str, str]) -> Exclusion:
    patterns = {column: re.compile(text) for column, text in values.items() if column != "reason"}
    return Exclusion(patterns=patterns, reason=values["reason"])


def _rule(values: Mapping[str, Any]) -> Rule:
    names = {"as": "kind", "map": "words"}
    return Rule(**{names.get(key, key): value for key, value in values.items()})


def _instant(text: str) -> float:
    """Return a time of the calendar, or seconds, in seconds since the epoch."""
    try:
        seconds = float(text)
    except ValueError:
        return times.instant(text if _ZONE.search(text) else f"{text.replace(' ', 'T')}Z")
    if not isfinite(seconds):
        raise ValueError(text)
    return seconds


def _sum_of(amounts: Sequence[str]) -> str:
    """Return whole numbers added up, "" for none of them.

    Raises: RowError for what is none.
    """
    try:
        return str(sum(map(int, amounts))) if amounts else ""
    except ValueError:
        raise RowError(f"found {' and '.join(amounts)}, expected whole numbers") from None


def _binary(text: str) -> str:
    """Return an amount as Kubernetes writes it: Slurm's G are gibibytes."""
    plain = text.rstrip("cn")
    return f"{plain}i" if plain[-1:] in "KMGTP" else plain
