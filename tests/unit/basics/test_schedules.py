"""Schedules of CronJobs: the answers of robfig/cron v3.0.1, and a twin that looks at each minute."""

import datetime as dt
import zoneinfo
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.basics.schedules import Schedule

ZONES = ("UTC", "America/New_York", "Europe/Berlin", "Africa/Cairo", "Asia/Kolkata")


def times(text, zone, since, count=3):
    moment = dt.datetime.fromisoformat(since).replace(tzinfo=zoneinfo.ZoneInfo(zone))
    return [found.strftime("%m-%d %H:%M %Z") for found in islice(Schedule.read(text).after(moment), count)]


@pytest.mark.parametrize(
    ("text", "zone", "since", "found"),
    [
        # A time that the clocks leave out does not come; one that they show twice comes twice.
        ("30 2 * * *", "America/New_York", "2026-03-07", ["03-07 02:30 EST", "03-09 02:30 EDT", "03-10 02:30 EDT"]),
        ("30 1 * * *", "America/New_York", "2026-11-01", ["11-01 01:30 EDT", "11-01 01:30 EST", "11-02 01:30 EST"]),
        (
            "0 * * * *",
            "America/New_York",
            "2026-03-08T00:30",
            ["03-08 01:00 EST", "03-08 03:00 EDT", "03-08 04:00 EDT"],
        ),
        ("0 0 * * *", "Africa/Cairo", "2026-04-22T12:00", ["04-23 00:00 EET", "04-25 00:00 EEST", "04-26 00:00 EEST"]),
        # With a date and a weekday either suffices, and a step counts as either.
        ("0 0 1-7 * MON", "UTC", "2026-06-06", ["06-07 00:00 UTC", "06-08 00:00 UTC", "06-15 00:00 UTC"]),
        ("0 0 */2 * 1", "UTC", "2026-06-06", ["06-07 00:00 UTC", "06-08 00:00 UTC", "06-09 00:00 UTC"]),
        ("0 0 1 * */2", "UTC", "2026-06-01T12:00", ["06-02 00:00 UTC", "06-04 00:00 UTC", "06-06 00:00 UTC"]),
        ("5/15 * * * *", "UTC", "2026-06-01T12:00", ["06-01 12:05 UTC", "06-01 12:20 UTC", "06-01 12:35 UTC"]),
        ("@every 1h30m", "UTC", "2026-06-01T12:07", ["06-01 13:37 UTC", "06-01 15:07 UTC", "06-01 16:37 UTC"]),
        ("@weekly", "UTC", "2026-06-01", ["06-07 00:00 UTC", "06-14 00:00 UTC", "06-21 00:00 UTC"]),
        ("0 0 29 feb ?", "UTC", "2026-06-01", ["02-29 00:00 UTC", "02-29 00:00 UTC", "02-29 00:00 UTC"]),
        ("0 0 31 2 *", "UTC", "2026-06-01", []),
    ],
)
def test_times_are_those_of_the_controller(text, zone, since, found):
    assert times(text, zone, since) == found


@pytest.mark.parametrize(
    "text",
    [
        *("0 0 * * 7", "0 0 L * *", "0 0 15W * *", "0 0 * * 1#2", "0 0 * * 5-1", "@Daily", "@reboot", "* * * *", ""),
        *("* * * * * *", "60 * * * *", "*/0 * * * *", "a * * * *", "@every soon", "TZ=UTC 0 0 * * *", "1,, * * * *"),
    ],
)
def test_what_an_api_server_refuses_is_no_schedule(text):
    with pytest.raises(ValueError, match="found"):
        Schedule.read(text)


def fields(least, most):
    number = st.integers(least, most).map(str)
    steps = st.integers(1, 9).map("*/{}".format)
    spans = st.tuples(st.integers(least, most), st.integers(least, most)).map(lambda two: f"{min(two)}-{max(two)}")
    return st.one_of(st.just("*"), steps, number, spans, st.tuples(number, spans).map(",".join))


@given(
    st.tuples(*(fields(*each) for each in ((0, 59), (0, 23), (1, 31), (1, 12), (0, 6)))),
    st.sampled_from(ZONES),
    st.integers(0, 300),
)
def test_times_are_the_minutes_whose_clock_fits(five, zone, day):
    schedule, tzinfo = Schedule.read(" ".join(five)), zoneinfo.ZoneInfo(zone)
    begin = dt.datetime(2026, 2, 1, tzinfo=dt.UTC) + dt.timedelta(days=day)
    end = begin + dt.timedelta(days=2)
    found = []
    for moment in schedule.after(begin.astimezone(tzinfo)):
        if moment >= end:
            break
        found.append(moment.timestamp())
    assert found == [
        at for at in range(int(begin.timestamp()) + 60, int(end.timestamp()), 60) if fits(five, at, tzinfo)
    ]


def fits(five, at, zone):
    clock = dt.datetime.fromtimestamp(at, zone)
    shown = (clock.minute, clock.hour, clock.day, clock.month, clock.isoweekday() % 7)
    minute, hour, date, month, weekday = (
        any(holds(part, value, least) for part in text.split(","))
        for text, value, least in zip(five, shown, (0, 0, 1, 1, 0), strict=True)
    )
    day = date and weekday if "*" in {five[2], five[4]} or "*/1" in {five[2], five[4]} else date or weekday
    return minute and hour and month and day


def holds(part, value, least):
    span, _, step = part.partition("/")
    first, _, last = ("0", "", "59") if span == "*" else span.partition("-")
    begin = least if span == "*" else int(first)
    return begin <= value <= int(last or first) and (value - begin) % int(step or 1) == 0
