"""Expressions of alerts on drawn samples: the part of Prometheus' query language that they need, and no more.

A sample is drawn as in Prometheus' own tests: a number, or ``_`` where a scrape found nothing. `value` returns what an
expression is at an instant, by labels. An instant selector takes the sample of that scrape alone, as Prometheus does
of a target that it still knows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

Labels: TypeAlias = frozenset[tuple[str, str]]
Vector: TypeAlias = Mapping[Labels, float]

_TOKEN: Final = re.compile(r"\s*(?:(\d+(?:\.\d+)?)(?![smhd\d])|(\d+[smhd])|([A-Za-z_]\w*)|(==|[()\[\]<>,]))")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_COMPARE: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
    "==": lambda a, b: a == b,
}


@attrs.frozen
class Series:
    """One series: the name of a metric, its labels, and a sample a scrape."""

    name: str
    labels: Labels
    samples: Sequence[float | None]


def series(drawn: Mapping[str, str]) -> list[Series]:
    """Return series that are drawn: ``{'up{pod="a"}': "1 1 _ 0x10"}``; ``0x10`` is a 0, and ten more of them."""
    out = []
    for head, text in drawn.items():
        name, _, rest = head.partition("{")
        labels = frozenset(re.findall(r'(\w+)="([^"]*)"', rest))
        samples: list[float | None] = []
        for each in text.split():
            value, _, more = each.partition("x")
            samples += [None if value == "_" else float(value)] * (1 + int(more or 0))
        out.append(Series(name, labels, samples))
    return out


def value(expression: str, drawn: Iterable[Series], at: int, step: int = 60) -> Vector:
    """Return what an expression is at the scrape of this number, ``step`` seconds after the one before it."""
    reading = _Reading(_tokens(expression), list(drawn), at, step)
    out = reading.either()
    assert not reading.tokens, reading.tokens
    return out


def _tokens(text: str) -> list[str]:
    out, at = [], 0
    while at < len(text.rstrip()):
        found = _TOKEN.match(text, at)
        assert found, f"unknown: {text[at:]}"
        out.append(found.group().strip())
        at = found.end()
    return out


@attrs.define
class _Reading:
    """What is left of an expression, and what there is to read."""

    tokens: list[str]
    drawn: list[Series]
    at: int
    step: int

    def take(self, *wanted: str) -> bool:
        """Take what follows if it is this."""
        if tuple(self.tokens[: len(wanted)]) != wanted:
            return False
        del self.tokens[: len(wanted)]
        return True

    def names(self) -> frozenset[str]:
        """Take names in parentheses."""
        assert self.take("(")
        out = set()
        while not self.take(")"):
            out.add(self.tokens.pop(0))
            self.take(",")
        return frozenset(out)

    def either(self) -> Vector:
        """Return what is on the left of ``or``, and of what is on the right that which has no match there."""
        out = dict(self.both())
        while self.take("or"):
            on = self.names() if self.take("on") else None
            known = {_key(labels, on) for labels in out}
            out |= {labels: each for labels, each in self.both().items() if _key(labels, on) not in known}
        return out

    def both(self) -> Vector:
        """Return what is on the left of ``and`` or ``unless``, as far as the right lets it."""
        out = self.compared()
        while (is_and := self.take("and")) or self.take("unless"):
            on = self.names() if self.take("on") else None
            known = {_key(labels, on) for labels in self.compared()}
            out = {labels: each for labels, each in out.items() if (_key(labels, on) in known) == is_and}
        return out

    def compared(self) -> Vector:
        out = self.single()
        if self.tokens and self.tokens[0] in _COMPARE:
            holds, limit = _COMPARE[self.tokens.pop(0)], float(self.tokens.pop(0))
            out = {labels: each for labels, each in out.items() if holds(each, limit)}
        return out

    def single(self) -> Vector:
        if self.take("("):
            out = self.either()
        elif self.take("max", "by"):
            by = self.names()
            assert self.take("(")
            groups: dict[Labels, float] = {}
            for labels, each in self.either().items():
                group = frozenset(pair for pair in labels if pair[0] in by)
                groups[group] = max(groups.get(group, each), each)
            out = groups
        elif self.take("absent", "("):
            out = {} if self.either() else {frozenset(): 1.0}
        elif self.take("max_over_time", "("):
            out = self.over(self.tokens.pop(0), max)
        else:
            return self.over(self.tokens.pop(0), max, 0)
        assert self.take(")"), self.tokens
        return out

    def over(self, name: str, fold: Callable[[list[float]], float], scrapes: int | None = None) -> Vector:
        """Return a fold of the samples of each series of a name, of the last one if there is no range."""
        if scrapes is None:
            assert self.take("[")
            span = self.tokens.pop(0)
            assert self.take("]")
            scrapes = int(span[:-1]) * _UNITS[span[-1]] // self.step - 1
        out = {}
        for each in self.drawn:
            seen = [one for one in each.samples[max(0, self.at - scrapes) : self.at + 1] if one is not None]
            if each.name == name and seen:
                out[each.labels] = fold(seen)
        return out


def _key(labels: Labels, on: frozenset[str] | None) -> Labels:
    return labels if on is None else frozenset(pair for pair in labels if pair[0] in on)
