"""The week of a queue whose amounts follow the clock: its slices, and half hours for a picture.

A week begins at midnight of the day of an instant, on the clock of the queue's zone. The same values make the picture
of a terminal, that of the dashboard, and the document.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final

import attrs

from kai.api.conventions.quota_windows import is_usable, slices
from kai.api.scheduling.queue import Queue, QueueResources
from kai.basics.schedules import read_zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PARTS: Final = ("gpu", "cpu", "memory")
DAYS: Final = 7
CELLS: Final = 48
"""The cells of a day in a picture: half hours."""
_DAY_SECONDS: Final = 86_400.0
_NO_RESOURCES: Final = QueueResources()


@attrs.frozen(kw_only=True)
class WeekSlice:
    """A time in which the amounts of a queue do not change. Units: seconds since the epoch."""

    since: float
    until: float
    windows: tuple[str, ...]
    """The windows that are open."""
    resources: QueueResources


@attrs.frozen(kw_only=True)
class QueueWeek:
    """The week of one queue."""

    queue: str
    zone: str
    """The IANA zone of its clock; "" for UTC."""
    slices: tuple[WeekSlice, ...]

    def days(self, part: str) -> Iterator[tuple[str, list[float]]]:
        """Yield each day of the week with the quota of one resource in its half hours; -1 is unlimited.

        A day on which clocks change has as many cells as it has half hours.
        """
        zone = read_zone(self.zone)
        day = dt.datetime.fromtimestamp(self.slices[0].since, zone).date()
        for _ in range(DAYS):
            begin = dt.datetime.combine(day, dt.time(), tzinfo=zone).timestamp()
            end = dt.datetime.combine(day + dt.timedelta(days=1), dt.time(), tzinfo=zone).timestamp()
            halves = range(round((end - begin) / 1_800))
            yield f"{day:%a}", [getattr(self.at(begin + 1_800 * at).resources, part).quota for at in halves]
            day += dt.timedelta(days=1)

    def at(self, instant: float) -> WeekSlice:
        """Return the slice of an instant."""
        return next((each for each in reversed(self.slices) if each.since <= instant), self.slices[0])


def weeks_of(queues: Iterable[Queue], now: float) -> tuple[QueueWeek, ...]:
    """Return the week of each queue whose amounts follow the clock, by name."""
    found = [each for each in queues if any(map(is_usable, each.spec.schedules))]
    return tuple(_week(each, now) for each in sorted(found, key=lambda queue: queue.metadata.name))


def _week(queue: Queue, now: float) -> QueueWeek:
    name = next(each.time_zone for each in queue.spec.schedules if is_usable(each))
    zone = read_zone(name)
    day = dt.datetime.fromtimestamp(now, zone).date()
    begin = dt.datetime.combine(day, dt.time(), tzinfo=zone).timestamp()
    end = dt.datetime.combine(day + dt.timedelta(days=DAYS), dt.time(), tzinfo=zone).timestamp()
    made = [
        WeekSlice(
            since=since,
            until=min(now.until, end),
            windows=now.names,
            resources=now.resources or _NO_RESOURCES,
        )
        for since, now in slices(queue.spec, begin, end)
    ]
    return QueueWeek(queue=queue.metadata.name, zone=name, slices=tuple(made))
