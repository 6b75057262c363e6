"""Single values: the error of a bad value, quantities, instants and durations.

BadValue is the one exception for a value that cannot be read; it has the place, the value found and the form expected.

Quantities of manifests are parsed as in `kai.basics.parsing`, with an error that learns the place of a bad one.

Instants are converted between RFC 3339 text and seconds, durations between Go's duration text and seconds.
"""

from __future__ import annotations

import datetime as dt
import functools
import json
import re
from collections.abc import Mapping
from typing import Final, Self

from kai.api.fields import INT64_MAX
from kai.basics import parsing
from kai.basics.errors import InputError
from kai.basics.parsing import WANTED
from kai.basics.wording import counted

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_LONGEST: Final = 60


class BadValue(InputError):  # noqa: N818 - callers name the kind of value they met; the base class ends in Error
    """A value in a manifest, file or annotation is invalid.

    It is raised where the value is read and collects its place on the way up: each enclosing reader calls `under` with
    its key or index.
    """

    def __init__(self, found: object, wanted: str, *, subject: str = "", path: tuple[str | int, ...] = ()) -> None:
        super().__init__(wanted)
        self.found = show(found)
        self.wanted = wanted
        self.subject = subject
        self.path = path
        self._word()

    def under(self, step: object) -> Self:
        """Put one more step in front of the path, and return the exception."""
        self.path = (step if isinstance(step, int) else str(step), *self.path)
        self._word()
        return self

    def of(self, subject: str) -> Self:
        """Prefix the object or file that the value belongs to, and return the exception; an earlier subject follows."""
        self.subject = f"{subject}: {self.subject}" if self.subject else subject
        self._word()
        return self

    def _word(self) -> None:
        place = [part for part in (self.subject, show_path(self.path)) if part]
        self.messages = (": ".join([*place, f"found {self.found}, expected {self.wanted}"]),)


def show_path(path: tuple[str | int, ...]) -> str:
    """Return a path in the usual notation: ``spec.containers[0].resources.requests["nvidia.com/gpu"]``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{_quoted(step)}]"
    return text


def show(value: object) -> str:
    """Return a value as JSON on one line, shortened if it is long; of a collection only its size."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return f"an object with {counted(len(value), 'field')}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value):,}"
    try:
        text = _quoted(value)
    except (TypeError, ValueError):
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _quoted(value: object) -> str:
    """Return a value as JSON; half of a surrogate pair, which UTF-8 cannot encode, stays escaped.

    Raises: TypeError, ValueError.
    """
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()


@functools.lru_cache(maxsize=1 << 16)
def amount(text: str, parts: int = 1) -> int:
    """Return a quantity as a number of parts of a unit, rounded away from zero.

    Raises: BadValue if the text is not a quantity or the result does not fit into 64 bits.
    """
    try:
        return parsing.amount(text, parts)
    except parsing.QuantityError as error:
        raise BadValue(text, error.wanted) from None


WANTED_TIME: Final = 'a time such as "2026-01-31T12:00:00Z"'
WANTED_DURATION: Final = parsing.DURATION_WANTED

_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,30}))?([Zz]|[+-][0-9]{2}:[0-9]{2})",
)
# The forms that the API server writes, to the second or the microsecond; others may write milliseconds.
_USUAL: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-5][0-9](?:\.[0-9]{3}(?:[0-9]{3})?)?Z",
)


@functools.lru_cache(maxsize=1 << 10)
def _minute(text: str) -> float | None:
    """Return a date and a time to the minute, in UTC, as seconds since the epoch; None if there is no such time."""
    try:
        return dt.datetime.fromisoformat(f"{text}:00+00:00").timestamp()
    except (ValueError, OverflowError):
        return None


@functools.lru_cache(maxsize=1 << 11)
def instant(text: str) -> float:
    """Return an RFC 3339 time as seconds since the epoch, to the microsecond.

    Raises: BadValue if the text is no such time.
    """
    if _USUAL.fullmatch(text):
        moment = _minute(text[:16])
        if moment is None:
            raise BadValue(text, WANTED_TIME)
        moment += int(text[17:19])
        fraction = text[20:-1]
        return moment + int(fraction.ljust(6, "0")) / 1e6 if fraction else moment
    match = _TIME.fullmatch(text)
    if match is None:
        raise BadValue(text, WANTED_TIME)
    date, clock, fraction, zone = match.groups()
    try:
        moment = dt.datetime.fromisoformat(f"{date}T{clock}{zone.upper()}").timestamp()
    except (ValueError, OverflowError):
        raise BadValue(text, WANTED_TIME) from None
    return moment + int(fraction[:6].ljust(6, "0")) / 1e6 if fraction else moment


def instant_of_date(moment: dt.date) -> float:
    """Return the instant of a date or time that a YAML loader has parsed; without a zone it is UTC.

    Raises: BadValue if it is out of range.
    """
    if not isinstance(moment, dt.datetime):
        moment = dt.datetime(moment.year, moment.month, moment.day, tzinfo=dt.UTC)
    elif moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    try:
        return moment.timestamp()
    except OverflowError:
        raise BadValue(str(moment), WANTED_TIME) from None


def instant_text(seconds: float) -> str:
    """Return an instant as RFC 3339 text in UTC, with a fraction only if there is one.

    Raises: BadValue if the year would not have four digits.
    """
    try:
        moment = dt.datetime.fromtimestamp(seconds, tz=dt.UTC)
    except (ValueError, OverflowError, OSError):
        raise BadValue(repr(seconds), "seconds since the epoch within the years 1 to 9999") from None
    return moment.isoformat().replace("+00:00", "Z")


def nanoseconds(text: str) -> int:
    """Return a duration as nanoseconds; see `kai.basics.parsing.nanoseconds`.

    Raises: BadValue if the text is no duration or the result does not fit into 64 bits.
    """
    try:
        return parsing.nanoseconds(text)
    except parsing.DurationError as error:
        raise BadValue(text, error.wanted) from None


def seconds(text: str) -> float:
    """Return a duration in seconds.

    Raises: BadValue if the text is no duration.
    """
    return nanoseconds(text) / parsing.SECOND


def seconds_of_nanoseconds(count: int) -> float:
    """Return a duration in seconds from a JSON number of nanoseconds, as in the peer's snapshots.

    Raises: BadValue if the count does not fit into 64 bits.
    """
    if abs(count) > INT64_MAX:
        raise BadValue(count, parsing.WANTED_SHORTER)
    return count / parsing.SECOND


def duration_text(duration: float) -> str:
    """Return a duration in seconds as Go prints it: ``1h30m0s``, ``1.5s``, ``250ms``.

    Raises: BadValue if it does not fit into 64 bits of nanoseconds.
    """
    try:
        return parsing.text(duration)
    except parsing.DurationError as error:
        raise BadValue(repr(duration), error.wanted) from None


__all__ = ["WANTED", "amount"]
