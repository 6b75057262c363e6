"""Windows that open by a schedule: edges on days of a change of clocks, and how they follow from starts."""

import datetime as dt
import zoneinfo
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.basics.schedules import Openings

HOUR = 3_600.0
DAYS = {  # zone: the days of 2026 on which clocks go forward and back
    "America/New_York": ("2026-03-08", "2026-11-01"),
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "Europe/London": ("2026-03-29", "2026-10-25"),
    "Africa/Cairo": ("2026-04-24", "2026-10-30"),
    "Australia/Lord_Howe": ("2026-10-04", "2026-04-05"),
    "Asia/Jerusalem": ("2026-03-27", "2026-10-25"),
    "America/Santiago": ("2026-09-06", "2026-04-05"),
    "Pacific/Auckland": ("2026-09-27", "2026-04-05"),
}
# What a window of an hour does that opens at 02:30, and one that opens at midnight and at half past one, on these days.
# Each is the UTC time of the opening, or - where the clock skips the start; two where it shows the start twice.
TABLE = {
    ("America/New_York", 0): {"02:30": "-", "00:00": "05:00", "01:30": "06:30"},
    ("America/New_York", 1): {"02:30": "07:30", "00:00": "04:00", "01:30": "05:30 06:30"},
    ("Europe/Berlin", 0): {"02:30": "-", "00:00": "23:00", "01:30": "00:30"},
    ("Europe/Berlin", 1): {"02:30": "00:30 01:30", "00:00": "22:00", "01:30": "23:30"},
    ("Europe/London", 0): {"02:30": "01:30", "00:00": "00:00", "01:30": "-"},
    ("Europe/London", 1): {"02:30": "02:30", "00:00": "23:00", "01:30": "00:30 01:30"},
    ("Africa/Cairo", 0): {"02:30": "23:30", "00:00": "-", "01:30": "22:30"},
    ("Africa/Cairo", 1): {"02:30": "00:30", "00:00": "22:00", "01:30": "23:30"},
    ("Australia/Lord_Howe", 0): {"02:30": "15:30", "00:00": "13:30", "01:30": "15:00"},
    ("Australia/Lord_Howe", 1): {"02:30": "16:00", "00:00": "13:00", "01:30": "14:30 15:00"},
    ("Asia/Jerusalem", 0): {"02:30": "-", "00:00": "22:00", "01:30": "23:30"},
    ("Asia/Jerusalem", 1): {"02:30": "00:30", "00:00": "21:00", "01:30": "22:30 23:30"},
    ("America/Santiago", 0): {"02:30": "05:30", "00:00": "-", "01:30": "04:30"},
    ("America/Santiago", 1): {"02:30": "06:30", "00:00": "04:00", "01:30": "05:30"},
    ("Pacific/Auckland", 0): {"02:30": "-", "00:00": "12:00", "01:30": "13:30"},
    ("Pacific/Auckland", 1): {"02:30": "13:30 14:30", "00:00": "11:00", "01:30": "12:30"},
}


def openings(start="30 2 * * *", zone="UTC", seconds=HOUR):
    return Openings.read(start, zone, seconds)


def instant(text, zone="UTC"):
    return dt.datetime.fromisoformat(text).replace(tzinfo=zoneinfo.ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize("edge", [0, 1])
@pytest.mark.parametrize("zone", sorted(DAYS))
def test_windows_open_when_cron_would_start_a_job(zone, edge):
    begin = dt.datetime.fromisoformat(DAYS[zone][edge]).replace(tzinfo=zoneinfo.ZoneInfo(zone))
    end = (begin.replace(tzinfo=None) + dt.timedelta(days=1)).replace(tzinfo=zoneinfo.ZoneInfo(zone)).timestamp()
    for clock, wanted in TABLE[zone, edge].items():
        hour, minute = clock.split(":")
        windows = openings(f"{int(minute)} {int(hour)} * * *", zone, 60.0)  # so short that two do not become one
        found, at = [], begin.timestamp() - 1
        while True:
            is_open, until = windows.at(at)
            if not is_open:
                if until >= end:
                    break
                found.append(f"{dt.datetime.fromtimestamp(until, dt.UTC):%H:%M}")
                assert windows.at(until) == (True, until + 60)
            at = until
        assert " ".join(found) == wanted.replace("-", "")


def test_a_window_includes_its_start_but_not_end():
    windows, opens = openings("0 22 * * *", seconds=8 * HOUR), instant("2026-06-01T22:00")
    closes = opens + 8 * HOUR
    assert windows.at(opens - 1e-3) == (False, opens)
    assert windows.at(opens) == windows.at(closes - 1e-3) == (True, closes)
    assert windows.at(closes) == (False, opens + 24 * HOUR)


def test_a_window_over_a_clock_change_keeps_its_length():
    windows = openings("0 22 * * *", "Europe/Berlin", 8 * HOUR)
    _, closes = windows.at(instant("2026-03-28T23:00", "Europe/Berlin"))
    assert closes == instant("2026-03-29T07:00", "Europe/Berlin")


def test_windows_that_meet_are_one():
    assert openings("0 * * * *", seconds=HOUR).at(instant("2026-06-01T12:30"))[0]
    _, until = openings("0 0,1,2 * * *", seconds=HOUR).at(instant("2026-06-01T00:30"))
    assert until == instant("2026-06-01T03:00")


def test_overlapping_repeated_starts_make_one_long_window():
    windows = openings("30 1 * * *", "America/New_York", 2 * HOUR)
    is_open, closes = windows.at(instant("2026-11-01T05:30"))
    assert (is_open, closes) == (True, instant("2026-11-01T08:30"))


def test_the_last_close_is_known_while_closed():
    windows = openings("0 22 * * *", seconds=8 * HOUR)
    assert windows.closed(instant("2026-06-02T12:00")) == instant("2026-06-02T06:00")
    assert windows.closed(instant("2026-06-02T06:00")) == instant("2026-06-02T06:00")
    assert windows.closed(instant("2026-06-02T05:59")) is None


def test_a_date_that_never_comes_opens_no_window():
    assert openings("0 0 31 2 *").at(0.0) == (False, inf)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (("* * * *", "UTC", 60.0), "five fields"),
        (("0 0 * * *", "Europe/Atlantis", 60.0), "Europe/Atlantis.*IANA"),
        (("0 0 * * *", "../../etc/passwd", 60.0), "IANA"),
        (("0 0 * * *", "UTC", 0.0), "more than 0 s"),
        (("@every 2h", "UTC", 60.0), "an interval has no begin"),
    ],
)
def test_an_invalid_window_is_refused_with_the_expected(arguments, found):
    with pytest.raises(ValueError, match=found):
        Openings.read(*arguments)


starts = st.sampled_from(("0 22 * * *", "30 2 * * *", "30 1 * * sun", "*/45 * * * *", "0 0 1,15 * *", "15 3-5 * * 1-5"))
zones = st.sampled_from(sorted(DAYS))
minutes = st.integers(1, 3_000)


@given(starts, zones, minutes, st.floats(0, 366 * 86_400))
def test_a_window_is_open_exactly_its_duration_after_starts(start, zone, length, offset):
    windows, now = openings(start, zone, length * 60.0), instant("2026-01-05T00:00") + offset
    last = windows.schedule.before(dt.datetime.fromtimestamp(now, windows.zone))
    is_open, until = windows.at(now)
    assert is_open == windows.covers(now) == (last is not None and now < last.timestamp() + windows.seconds)
    assert (windows.closed(now) is None) == is_open
    assert until > now
    halfway = now + (until - now) / 2
    assert windows.at(halfway)[0] == is_open
    if windows.at(until)[0] == is_open:  # windows without a gap are not joined for ever
        assert is_open
    else:
        assert windows.at(halfway)[1] == until
