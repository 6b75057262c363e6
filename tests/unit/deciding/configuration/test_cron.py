"""Cron windows begin where the peer's begin."""

import datetime as dt

import pytest

from kai.deciding.configuration.past_usage import Cron


def at(*parts):
    return dt.datetime(*parts, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "now", "last"),
    [
        ("0 * * * *", at(2025, 1, 15, 14, 30), at(2025, 1, 15, 14)),
        ("0 * * * *", at(2025, 1, 15, 14), at(2025, 1, 15, 13)),
        ("0 * * * *", at(2025, 1, 15, 14, 0, 0, 1), at(2025, 1, 15, 14)),
        ("0 0 * * *", at(2025, 1, 15, 23, 59, 59), at(2025, 1, 15)),
        ("0 */6 * * *", at(2025, 1, 15, 12), at(2025, 1, 15, 6)),
        ("0 12 * * 1", at(2025, 1, 15, 15), at(2025, 1, 13, 12)),
        ("0 12 * * MON", at(2025, 1, 15, 15), at(2025, 1, 13, 12)),
        ("0 0 1 * *", at(2025, 3, 31, 23), at(2025, 3, 1)),
        ("*/15 * * * *", at(2025, 1, 15, 14, 37), at(2025, 1, 15, 14, 30)),
        ("30 22-23,4 * feb-mar 7", at(2025, 4, 1), at(2025, 3, 30, 23, 30)),
        ("5/20 0 * * *", at(2025, 1, 15), at(2025, 1, 14, 0, 45)),
        ("0 0 29 2 *", at(2025, 1, 15), at(2024, 2, 29)),
        ("@weekly", at(2025, 1, 15), at(2025, 1, 12)),
        ("@Daily", at(2025, 1, 15, 1), at(2025, 1, 15)),
    ],
)
def test_the_last_time_before_a_moment_is_found(text, now, last):
    assert Cron.read(text).before(now) == last


def test_with_a_date_and_a_weekday_either_suffices():
    times = Cron.read("0 0 1 * 1")
    assert times.before(at(2025, 1, 5)) == at(2025, 1, 1)  # a Wednesday, but the first
    assert times.before(at(2025, 1, 15)) == at(2025, 1, 13)  # a Monday


@pytest.mark.parametrize(
    "text",
    [
        *("", "0 0 * *", "0 0 * * * *", "60 * * * *", "* 24 * * *", "0 0 0 * *", "0 0 * 13 *", "a * * * *"),
        *("*/0 * * * *", "5-1 * * * *", "1,, * * * *", "0 0 31 2 *", "@reboot", "0 0 * * ٣", "-1 * * * *"),
    ],
)
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError, match="found"):
        Cron.read(text)


def test_cron_knows_the_last_day_and_the_nth_weekday():
    assert Cron.read("0 0 L * *").before(at(2025, 3, 15)) == at(2025, 2, 28)
    assert Cron.read("0 0 * * 1#2").before(at(2025, 3, 15)) == at(2025, 3, 10)
