"""Instants and durations: RFC 3339 text and Go duration text to and from seconds."""

from __future__ import annotations

import datetime as dt
import functools
import re
from typing import Final

from kai import durations
from kai.api.fields import INT64_MAX
from kai.api.values.bad_value import BadValue

WANTED_TIME: Final = 'a time such as "2026-01-31T12:00:00Z"'
WANTED_DURATION: Final = durations.WANTED

_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,30}))?([Zz]|[+-][0-9]{2}:[0-9]{2})",
)
# As the API server writes them, to the second or the microsecond; others may write to the millisecond.
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
    """Return the instant of a date or time that a YAML loader has already recognised; without a zone it is UTC.

    Raises: BadValue if it lies outside of what can be counted.
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
    """Return a duration as nanoseconds; see `kai.durations.nanoseconds`.

    Raises: BadValue if the text is no duration or the result does not fit into 64 bits.
    """
    try:
        return durations.nanoseconds(text)
    except durations.DurationError as error:
        raise BadValue(text, error.wanted) from None


def seconds(text: str) -> float:
    """Return a duration in seconds.

    Raises: BadValue if the text is no duration.
    """
    return nanoseconds(text) / durations.SECOND


def seconds_of_nanoseconds(count: int) -> float:
    """Return a duration in seconds where the JSON holds nanoseconds, as the peer's snapshots do.

    Raises: BadValue if the count does not fit into 64 bits.
    """
    if abs(count) > INT64_MAX:
        raise BadValue(count, durations.WANTED_SHORTER)
    return count / durations.SECOND


def duration_text(duration: float) -> str:
    """Return a duration in seconds as Go prints it: ``1h30m0s``, ``1.5s``, ``250ms``.

    Raises: BadValue if it does not fit into 64 bits of nanoseconds.
    """
    try:
        return durations.text(duration)
    except durations.DurationError as error:
        raise BadValue(repr(duration), error.wanted) from None
