"""Schedules in the five fields of cron, and the windows that open by them.

`Schedule` has the times at which a CronJob creates Jobs, and those at which a quota's window opens. `Openings` adds a
time zone and a duration: is a window open at an instant, and when does that change?

Kubernetes reads them with robfig/cron, which differs from Debian's cron:

- a local time that a change of clocks skips has no Job, and one that occurs twice has two;
- with a day of the month and a day of the week, either suffices, and ``*/2`` counts as such a day;
- Sunday is 0 and never 7; ``L``, ``W`` and ``#`` are refused; ``@every 90m`` is a schedule.

On the day of a change, robfig/cron itself skips some hours in zones whose clocks change by half an hour or at
midnight; those hours are not skipped here.

Source: robfig/cron v3.0.1, which Kubernetes 1.36 and 1.37 use; a test has its answers.
"""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import inf
from typing import Final, Self

import attrs

from kai.basics import parsing
from kai.basics.wording import shown

WANTED: Final = 'five fields such as "0 3 * * 1", @hourly, @daily, @weekly, @monthly, @yearly, or @every 90m'
_EVERY: Final = "@every "
_LONGEST: Final = 1_000
_YEARS: Final = 5
"""How many years ahead a matching time is searched for, as in robfig/cron."""
_DAY: Final = dt.timedelta(days=1)
_MONTH_NAMES: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS: Final = {name: at for at, name in enumerate(_MONTH_NAMES, 1)}
_DAYS: Final = {name: at for at, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}


@attrs.frozen(kw_only=True)
class _Field:
    """One of the five fields."""

    name: str
    least: int
    most: int
    names: Mapping[str, int] = {}

    def read(self, text: str) -> tuple[frozenset[int], bool]:
        """Return the matching values, and whether the field leaves the day open, as ``*`` and ``?`` do.

        Raises: ValueError for invalid text.
        """
        values: set[int] = set()
        is_open = False
        for part in text.split(","):
            span, slash, step_text = part.partition("/")
            first, dash, last = span.partition("-")
            if first in {"*", "?"} and not dash:
                low, high = self.least, self.most
            else:
                low = self._value(first)
                high = self._value(last) if dash else self.most if slash else low
            step = self._number(step_text) if slash else 1
            if not step or low > high or low < self.least or high > self.most:
                raise ValueError(f"the {self.name} {shown(part)} is none")
            # As in robfig/cron: */2 restricts the day, and */1 does not.
            is_open |= first in {"*", "?"} and step == 1
            values.update(range(low, high + 1, step))
        return frozenset(values), is_open

    def _value(self, text: str) -> int:
        named = self.names.get(text.lower())
        return self._number(text) if named is None else named

    def _number(self, text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 4):
            raise ValueError(f"the {self.name} {shown(text)} is none")
        return int(text)


_FIELDS: Final = (
    _Field(name="minute", least=0, most=59),
    _Field(name="hour", least=0, most=23),
    _Field(name="day of the month", least=1, most=31),
    _Field(name="month", least=1, most=12, names=_MONTHS),
    _Field(name="day of the week", least=0, most=6, names=_DAYS),
)


@attrs.frozen(kw_only=True)
class Schedule:
    """The times at which a CronJob creates Jobs."""

    every: dt.timedelta | None = None
    """The interval, if the schedule has nothing else."""
    times: Sequence[dt.time] = ()
    """The times of a matching day, in order."""
    dates: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    is_any_date: bool = False
    is_any_weekday: bool = False

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the schedule that ``text`` describes.

        Raises: ValueError for text that an API server refuses.
        """
        if text.startswith(_EVERY):
            try:
                seconds = parsing.seconds(text.removeprefix(_EVERY))
            except ValueError:
                raise ValueError(f"found {shown(text)}, expected {WANTED}") from None
            # robfig/cron cuts off fractions of a second, and waits for one second at least.
            return cls(every=dt.timedelta(seconds=max(1, int(seconds))))
        fields = parsing.USUAL_TIMES.get(text, text).split()
        if len(fields) != len(_FIELDS) or len(text) > _LONGEST:
            raise ValueError(f"found {shown(text)}, expected {WANTED}")
        try:
            minutes, hours, dates, months, weekdays = (
                field.read(part) for field, part in zip(_FIELDS, fields, strict=True)
            )
        except ValueError as error:
            raise ValueError(f"found {shown(text)} ({error}), expected {WANTED}") from None
        return cls(
            times=tuple([dt.time(hour, minute) for hour in sorted(hours[0]) for minute in sorted(minutes[0])]),
            dates=dates[0],
            months=months[0],
            weekdays=weekdays[0],
            is_any_date=dates[1],
            is_any_weekday=weekdays[1],
        )

    def after(self, moment: dt.datetime) -> Iterator[dt.datetime]:
        """Yield the times after ``moment``, exclusive, in its time zone; none that is years away."""
        if self.every is not None:
            while True:
                # In real time: on a clock that changes, an interval would be an hour longer or shorter.
                moment = (moment.astimezone(dt.UTC) + self.every).astimezone(moment.tzinfo)
                yield moment
        # A clock that goes back over midnight repeats part of the day before, so that day is searched as well.
        day, quiet, seen = moment.date() - _DAY, 0, moment.timestamp()
        while quiet <= _YEARS * 366 and day.year < dt.MAXYEAR:
            found = [at for at in self._on(day, moment.tzinfo) if at.timestamp() > seen] if self._fits(day) else []
            yield from found
            seen, quiet = (found[-1].timestamp(), 0) if found else (seen, quiet + 1)
            day += _DAY

    def before(self, moment: dt.datetime) -> dt.datetime | None:
        """Return the last time at or before ``moment``, in its time zone; None if there was none for years."""
        day, until = moment.date() + _DAY, moment.timestamp()
        for _ in range(_YEARS * 366):
            found = [at for at in self._on(day, moment.tzinfo) if at.timestamp() <= until] if self._fits(day) else []
            if found:
                return found[-1]
            day -= _DAY
        return None

    def _fits(self, day: dt.date) -> bool:
        by_date, by_weekday = day.day in self.dates, day.isoweekday() % 7 in self.weekdays
        # An open field says nothing, so the other one decides; two restricted fields are alternatives.
        is_day = by_date and by_weekday if self.is_any_date or self.is_any_weekday else by_date or by_weekday
        return is_day and day.month in self.months

    def _on(self, day: dt.date, zone: dt.tzinfo | None) -> list[dt.datetime]:
        """Return the instants of a day at which its clock shows one of the times, in order."""
        found = {}
        for time in self.times:
            # An hour that a clock repeats has each of its times twice.
            for fold in (0, 1):
                local = dt.datetime.combine(day, time, tzinfo=zone).replace(fold=fold)
                real = local.astimezone(dt.UTC).astimezone(zone)
                if (real.date(), real.time()) == (day, time):  # else the change of clocks skips this time
                    found[real.timestamp()] = real
        return [found[at] for at in sorted(found)]


_MOST_MERGED: Final = 100
"""How many windows without a gap between them are joined. A later edge at which nothing changes does no harm."""


@attrs.frozen
class Openings:
    """Windows of one duration that open by a schedule, on the clock of a zone.

    A window lasts as long as it says in real time, whatever the clocks do meanwhile. At the instant at which it closes
    it is closed. A start that a change of clocks skips opens no window, and one that occurs twice opens two; windows
    that overlap are one.
    """

    schedule: Schedule
    zone: dt.tzinfo
    seconds: float

    @classmethod
    def read(cls, start: str, zone: str, seconds: float) -> Self:
        """Return the openings by ``start``, the five fields of cron, in the IANA zone ``zone``; "" is UTC.

        Raises: ValueError for a schedule, a zone or a duration that is none.
        """
        schedule = Schedule.read(start)
        if schedule.every is not None:
            raise ValueError(f"found {shown(start)}, expected times of the day: an interval has no begin")
        if not 0 < seconds <= _LONGEST_WINDOW:
            raise ValueError(f"found {seconds:g} s, expected more than 0 s and at most 366 days")
        return cls(schedule, read_zone(zone), seconds)

    def at(self, instant: float) -> tuple[bool, float]:
        """Return whether a window is open at ``instant``, and until when that holds; infinity for ever.

        Units: seconds since the epoch.
        """
        edge, is_open = inf, False
        # A window that is open now began at most its duration ago.
        for start in islice(self.schedule.after(self._moment(instant - self.seconds)), _MOST_MERGED):
            opens = start.timestamp()
            if not is_open and opens > instant:
                return False, opens
            if is_open and opens > edge:
                break
            is_open, edge = True, opens + self.seconds
        return is_open, edge

    def covers(self, instant: float) -> bool:
        """Return whether a window is open at ``instant``."""
        last = self.schedule.before(self._moment(instant))
        return last is not None and instant < last.timestamp() + self.seconds

    def closed(self, instant: float) -> float | None:
        """Return when the last window closed, at or before ``instant``; None while one is open, or if none closed."""
        last = self.schedule.before(self._moment(instant))
        closes = inf if last is None else last.timestamp() + self.seconds
        return closes if closes <= instant else None

    def _moment(self, instant: float) -> dt.datetime:
        return dt.datetime.fromtimestamp(instant, self.zone)


_LONGEST_WINDOW: Final = 366 * 86_400.0


_CLOCK: Final = re.compile(r"(?:([a-z]{3})[a-z]*\s+)?(\d{1,2}):(\d{2})(?:\s+([a-z][\w+/-]*))?", re.IGNORECASE)


def is_clock(text: str) -> bool:
    """Return whether a text has the form of a time of a clock, such as ``Fri 22:00``."""
    return _CLOCK.fullmatch(text.strip()) is not None


def next_clock(text: str, after: float) -> float:
    """Return when a clock shows ``Fri 22:00`` or ``22:00 Europe/Berlin`` next, at or after an instant; UTC by default.

    Units: seconds since the epoch.
    Raises: ValueError for a time that no clock shows.
    """
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"found {shown(text)}, expected a time such as {shown(CLOCK_WANTED)}")
    day, hour, minute, zone = found.groups()
    moment = dt.datetime.fromtimestamp(after - 1e-3, read_zone(zone or ""))
    return next(Schedule.read(f"{int(minute)} {int(hour)} * * {day or '*'}").after(moment)).timestamp()


CLOCK_WANTED: Final = "Fri 22:00 Europe/Berlin"


def clock_text(instant: float, zone: str = "") -> str:
    """Return a weekday and a time as the clock of a zone shows them: ``Fri 22:00 (Europe/Berlin)``."""
    return f"{dt.datetime.fromtimestamp(instant, read_zone(zone)):%a %H:%M} ({zone or 'UTC'})"


def read_zone(name: str) -> dt.tzinfo:
    """Return the time zone with an IANA name; UTC for "".

    Raises: ValueError for a name that this machine does not know.
    """
    try:
        return zoneinfo.ZoneInfo(name) if name else dt.UTC
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f'found {shown(name)}, expected an IANA time zone such as "Europe/Berlin"') from None
