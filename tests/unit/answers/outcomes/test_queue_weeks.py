import datetime as dt
import zoneinfo

import pytest

from kai.answers.outcomes.queue_lines import weeks_of
from kai.api.codec.structuring import structure_as
from kai.api.scheduling.queue import Queue
from kai.dashboard.views import _days

NIGHTS = {"name": "nights", "start": "0 22 * * *", "duration": "8h", "timeZone": "Europe/Berlin"}


def queue(**entry):
    schedule = {**NIGHTS, "resources": {"gpu": {"quota": 24}}, **entry}
    spec = {"resources": {"gpu": {"quota": 8, "limit": -1}}, "schedules": [schedule]}
    return structure_as(Queue, {"metadata": {"name": "night"}, "spec": spec})


def at(text):
    return dt.datetime.fromisoformat(text).replace(tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")).timestamp()


@pytest.mark.parametrize(
    ("day", "cells", "night"), [("2026-03-29", 46, 12), ("2026-10-25", 50, 12), ("2026-06-01", 48, 12)]
)
def test_a_day_has_the_half_hours_of_its_clock(day, cells, night):
    (week,) = weeks_of([queue()], at(f"{day}T12:00"))
    found = dict(week.days("gpu"))
    assert len(found) == 7
    quotas = next(iter(found.values()))
    assert (len(quotas), quotas[0], quotas[20]) == (cells, 24, 8)
    assert quotas.index(8) == 12


def test_a_week_has_each_slice_once_and_no_gap():
    (week,) = weeks_of([queue()], at("2026-06-01T12:00"))
    assert week.slices[0].since == at("2026-06-01T00:00")
    assert week.slices[-1].until == at("2026-06-08T00:00")
    assert all(one.until == other.since for one, other in zip(week.slices, week.slices[1:], strict=False))


def test_queues_without_usable_windows_have_no_week():
    assert weeks_of([queue(timeZone="Mars")], 0.0) == ()


def test_a_days_bars_fill_it_at_quota_height():
    (week,) = weeks_of([queue()], at("2026-06-01T12:00"))
    day, bars = _days(week, "gpu")[0]
    assert (day, [bar.quota for bar in bars]) == ("Mon", [24, 8, 24])
    assert sum(bar.width for bar in bars) == pytest.approx(1000)
    assert [bar.height for bar in bars] == [1000, pytest.approx(1000 / 3), 1000]
    assert _days(None, "gpu") == []
