"""Times that come again, as cron writes them: ``0 0 * * 1`` is every Monday at midnight, in UTC.

Five fields: minute, hour, day of the month, month, day of the week, each with ``*``, lists, ranges and steps; months
and days of the week also by name. ``@hourly``, ``@daily``, ``@weekly``, ``@monthly`` and ``@yearly`` are the usual.
"""

import datetime as dt
from typing import Final, Self

import attrs

WANTED: Final = 'five fields such as "0 0 * * 1", or @hourly, @daily, @weekly, @monthly, @yearly'
_SHORT: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS: Final = {
    name: str(at)
    for at, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), start=1
    )
}
_WEEKDAYS: Final = {name: str(at) for at, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_MOST_DAYS: Final = 366 * 8 + 2
"""The 29th of February comes again after eight years at the latest."""
_SOME_DAY: Final = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)


@attrs.frozen(kw_only=True)
class Cron:
    """Minutes of the calendar: all those that every field allows."""

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    by_either_day: bool
    """Whether one of the two fields for days suffices: where both say something, as cron has it."""

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the times that ``text`` describes.

        Raises: ValueError for text that is none, or that no day fits.
        """
        fields = _SHORT.get(text.strip().lower(), text).lower().split()
        if len(fields) != 5:
            raise ValueError(f"found {len(fields)} fields, expected {WANTED}")
        minute, hour, day, month, weekday = fields
        weekdays = _values(weekday, 0, 7, _WEEKDAYS)
        made = cls(
            text=text,
            minutes=_values(minute, 0, 59),
            hours=_values(hour, 0, 23),
            days=_values(day, 1, 31),
            months=_values(month, 1, 12, _MONTHS),
            weekdays=frozenset(each % 7 for each in weekdays),
            by_either_day=not day.startswith(("*", "?")) and not weekday.startswith(("*", "?")),
        )
        if made.before(_SOME_DAY) is None:
            raise ValueError(f"found {text!r}, which no day fits, expected {WANTED}")
        return made

    def before(self, moment: dt.datetime) -> dt.datetime | None:
        """Return the last of these times before ``moment``, that one left out; None if there is none for years."""
        latest = moment - dt.timedelta(microseconds=1)
        for back in range(_MOST_DAYS):
            day = latest.date() - dt.timedelta(days=back)
            if not self._fits(day):
                continue
            until = (latest.hour, latest.minute) if back == 0 else (23, 59)
            for hour in sorted(self.hours, reverse=True):
                minutes = [each for each in self.minutes if (hour, each) <= until]
                if minutes:
                    at = dt.time(hour, max(minutes), tzinfo=dt.UTC)
                    return dt.datetime.combine(day, at)
        return None

    def _fits(self, day: dt.date) -> bool:
        if day.month not in self.months:
            return False
        by_date, by_weekday = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return by_date or by_weekday if self.by_either_day else by_date and by_weekday


def _values(field: str, least: int, most: int, words: dict[str, str] | None = None) -> frozenset[int]:
    """Return the numbers that one field allows.

    Raises: ValueError.
    """
    out: set[int] = set()
    for part in field.split(","):
        span, slash, step = part.partition("/")
        low, dash, high = span.partition("-")
        if span in {"*", "?"}:
            first, last = least, most
        else:
            first = _number(low, words)
            last = _number(high, words) if dash else most if slash else first
        every = _number(step, None) if slash else 1
        if not least <= first <= last <= most or every < 1:
            raise ValueError(f"found {part!r} in a field of {least} to {most}, expected {WANTED}")
        out.update(range(first, last + 1, every))
    return frozenset(out)


def _number(text: str, words: dict[str, str] | None) -> int:
    digits = (words or {}).get(text, text)
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 4:
        raise ValueError(f"found {text!r}, expected a number: {WANTED}")
    return int(digits)
