"""Quota windows over a change of clocks, in eight zones: what docs/quotas-by-the-clock.md says of that day.

All instants are UTC, and were worked out by hand from the offsets of the zones, so no zone database helps to expect
them.
"""

import datetime as dt

import pytest

from kai.api.codec.structuring import structure_as
from kai.api.conventions.quota_windows import in_force
from kai.api.scheduling.queue import Queue

HALF_DAY = 12 * 3_600.0
CHANGES = [
    # Zone; when its clocks change; a start close to it, and when windows of 20 minutes open by that start; when the
    # window of eight hours opens that starts at 22:00 on the evening before.
    #
    # Clocks go forward: the start is in the hour that they skip, and no window opens.
    ("Europe/Berlin", "2026-03-29T01:00", "30 2", (), "2026-03-28T21:00"),
    ("America/New_York", "2026-03-08T07:00", "30 2", (), "2026-03-08T03:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30", "15 2", (), "2026-10-03T11:30"),  # skips 30 minutes
    ("Australia/Sydney", "2026-10-03T16:00", "30 2", (), "2026-10-03T12:00"),
    ("America/Santiago", "2026-09-06T04:00", "30 0", (), "2026-09-06T02:00"),  # skips the hour after midnight
    ("Antarctica/Troll", "2026-03-29T01:00", "30 2", (), "2026-03-28T22:00"),  # skips two hours
    # Clocks go back: the start is in the hour that comes twice, and two windows open.
    ("Europe/Berlin", "2026-10-25T01:00", "30 2", ("2026-10-25T00:30", "2026-10-25T01:30"), "2026-10-24T20:00"),
    ("America/New_York", "2026-11-01T06:00", "30 1", ("2026-11-01T05:30", "2026-11-01T06:30"), "2026-11-01T02:00"),
    ("Australia/Lord_Howe", "2026-04-04T15:00", "45 1", ("2026-04-04T14:45", "2026-04-04T15:15"), "2026-04-04T11:00"),
    ("Australia/Sydney", "2026-04-04T16:00", "30 2", ("2026-04-04T15:30", "2026-04-04T16:30"), "2026-04-04T11:00"),
    ("America/Santiago", "2026-04-05T03:00", "30 23", ("2026-04-05T02:30", "2026-04-05T03:30"), "2026-04-05T01:00"),
    ("Antarctica/Troll", "2026-10-25T01:00", "30 2", ("2026-10-25T00:30", "2026-10-25T02:30"), "2026-10-24T20:00"),
    # No change: one window opens, on the days of their old changes (Sao Paulo) and of Europe's (Kolkata).
    ("America/Sao_Paulo", "2026-10-18T03:00", "30 0", ("2026-10-18T03:30",), "2026-10-18T01:00"),
    ("America/Sao_Paulo", "2026-02-15T03:00", "30 23", ("2026-02-15T02:30",), "2026-02-15T01:00"),
    ("Asia/Kolkata", "2026-03-28T21:30", "30 2", ("2026-03-28T21:00",), "2026-03-28T16:30"),
    ("Asia/Kolkata", "2026-10-24T21:30", "30 2", ("2026-10-24T21:00",), "2026-10-24T16:30"),
]


def instant(text):
    return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC).timestamp()


def windows(start, zone, duration, around):
    """Return when windows open and close in the day around an instant."""
    entry = {"name": "w", "start": f"{start} * * *", "timeZone": zone, "duration": duration}
    spec = structure_as(Queue, {"metadata": {"name": "q"}, "spec": {"schedules": [entry]}}).spec
    found, at = [], around - HALF_DAY
    while at < around + HALF_DAY:
        now = in_force(spec, at)
        if now.names:
            found.append((at, now.until))
        at = now.until
    return found


@pytest.mark.parametrize(("zone", "change", "start", "opens", "_night"), CHANGES)
def test_a_start_opens_as_often_as_clocks_show_it(zone, change, start, opens, _night):
    wanted = [(instant(each), instant(each) + 20 * 60) for each in opens]
    assert windows(start, zone, "20m", instant(change)) == wanted


@pytest.mark.parametrize(("zone", "change", "_start", "_opens", "night"), CHANGES)
def test_a_window_across_a_change_keeps_its_duration(zone, change, _start, _opens, night):
    assert windows("0 22", zone, "8h", instant(change)) == [(instant(night), instant(night) + 8 * 3_600)]


@pytest.mark.parametrize(("zone", "change", "start", "opens", "_night"), CHANGES)
def test_repeated_starts_that_overlap_open_one_window(zone, change, start, opens, _night):
    wanted = [(instant(opens[0]), instant(opens[-1]) + 3 * 3_600)] if opens else []
    assert windows(start, zone, "3h", instant(change)) == wanted
