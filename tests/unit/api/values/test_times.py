import datetime as dt
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.fields import INT64_MAX
from kai.api.values import (
    BadValue,
    duration_text,
    instant,
    instant_of_date,
    instant_text,
    nanoseconds,
    seconds,
    seconds_of_nanoseconds,
)

HOUR = 3600 * 10**9


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0.0),
        ("2026-01-01T12:00:00Z", 1767268800.0),
        ("2026-01-01t12:00:00z", 1767268800.0),
        ("2026-01-01 12:00:00Z", 1767268800.0),
        ("2026-01-01T13:00:00+01:00", 1767268800.0),
        ("2026-01-01T12:00:00.25Z", 1767268800.25),
        ("2026-01-01T12:00:00.123456789Z", 1767268800.123456),
        ("1969-12-31T23:59:59.5Z", -0.5),
        ("0001-01-01T00:00:00Z", -62135596800.0),
    ],
)
def test_a_time_is_read_as_seconds_since_the_epoch(text: str, expected: float) -> None:
    assert instant(text) == expected


NO_TIMES = [
    *("", "now", "1767268800", "2026-01-01", "2026-01-01T12:00:00", "2026-01-01T12:00Z", "2026-13-01T12:00:00Z"),
    *("2026-02-30T12:00:00Z", "2026-01-01T24:00:01Z", "2026-01-01T12:00:60Z", "0000-01-01T00:00:00Z"),
    *("2026-01-01T12:00:00+99:00", "2026-01-01T12:00:00.Z", "20260101T120000Z", " 2026-01-01T12:00:00Z"),
]


@pytest.mark.parametrize("text", NO_TIMES)
def test_text_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match='expected a time such as "2026-01-31T12:00:00Z"'):
        instant(text)


@given(st.integers(-62135596800, 253402300799))
def test_an_instant_survives_being_written(moment: int) -> None:
    assert instant(instant_text(float(moment))) == moment


@given(st.integers(0, 4 * 10**9), st.integers(0, 999_999))
def test_a_fraction_of_a_second_survives_to_the_microsecond(moment: int, micro: int) -> None:
    assert instant(instant_text(moment + micro / 1e6)) == pytest.approx(moment + micro / 1e6, abs=1e-6)


@pytest.mark.parametrize("value", [1e300, -1e300, float("inf"), float("nan")])
def test_an_instant_outside_of_the_calendar_cannot_be_written(value: float) -> None:
    with pytest.raises(BadValue, match="within the years 1 to 9999"):
        instant_text(value)


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        (dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC), 1767268800.0),
        (dt.datetime(2026, 1, 1, 12), 1767268800.0),  # noqa: DTZ001 - YAML loaders give naive ones
        (dt.datetime(2026, 1, 1, 13, tzinfo=dt.timezone(dt.timedelta(hours=1))), 1767268800.0),
        (dt.date(2026, 1, 1), 1767225600.0),
    ],
)
def test_dates_recognised_by_a_yaml_loader_are_instants(moment: dt.date, expected: float) -> None:
    assert instant_of_date(moment) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("-0", 0),
        ("0s", 0),
        ("1h30m", HOUR * 3 // 2),
        ("90s", 90 * 10**9),
        ("1.5h", HOUR * 3 // 2),
        (".5s", 5 * 10**8),
        ("1.s", 10**9),
        ("-1m", -60 * 10**9),
        ("+1m", 60 * 10**9),
        ("2d", 48 * HOUR),
        ("1w1d", 192 * HOUR),
        ("1d12h", 36 * HOUR),
        ("100ms", 10**8),
        ("3us", 3000),
        ("3µs", 3000),
        ("3μs", 3000),
        ("7ns", 7),
        ("0.3ns", 0),
        ("5m0s", 300 * 10**9),
    ],
)
def test_a_duration_is_read_exactly(text: str, expected: int) -> None:
    assert nanoseconds(text) == expected
    assert seconds(text) == expected / 1e9


NO_DURATIONS = [
    *("", "s", "1", "-", "abc", "1x", "1h ", " 1h", "1 h", "1h-30m", "1H", "1hh", "1.2.3s", "NaN", "inf", "1y", "1M"),
    *("1e3s", ".s", "1s" * 60),
]


@pytest.mark.parametrize("text", NO_DURATIONS)
def test_text_that_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="expected a duration such as"):
        nanoseconds(text)


@pytest.mark.parametrize("text", ["99999999h", "-99999999h", "20000w"])
def test_a_duration_beyond_64_bits_is_refused(text: str) -> None:
    with pytest.raises(BadValue, match="at most 292 years"):
        nanoseconds(text)


def test_whole_numbers_count_nanoseconds() -> None:
    assert seconds_of_nanoseconds(60_000_000_000) == 60.0
    with pytest.raises(BadValue, match="at most 292 years"):
        seconds_of_nanoseconds(INT64_MAX + 1)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0s"),
        (1.0, "1s"),
        (60.0, "1m0s"),
        (90.5, "1m30.5s"),
        (3600.0, "1h0m0s"),
        (172800.0, "48h0m0s"),
        (-60.0, "-1m0s"),
        (0.25, "250ms"),
        (0.0000015, "1.5µs"),
        (0.000000007, "7ns"),
    ],
)
def test_a_duration_is_written_as_go_writes_it(value: float, expected: str) -> None:
    assert duration_text(value) == expected


@pytest.mark.parametrize("value", [1e300, float("inf"), float("nan")])
def test_a_duration_that_go_cannot_hold_cannot_be_written(value: float) -> None:
    with pytest.raises(BadValue, match="at most 292 years"):
        duration_text(value)


@given(st.integers(-(10**12), 10**12))
def test_a_duration_survives_being_written(milliseconds: int) -> None:
    assert seconds(duration_text(milliseconds / 1000)) == milliseconds / 1000


@given(
    st.lists(st.tuples(st.integers(0, 999), st.sampled_from(["ns", "us", "ms", "s", "m", "h", "d", "w"])), min_size=1)
)
def test_the_parts_of_a_duration_add_up(parts: list[tuple[int, str]]) -> None:
    scale = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": HOUR // 60, "h": HOUR, "d": 24 * HOUR, "w": 168 * HOUR}
    text = "".join(f"{count}{unit}" for count, unit in parts[:10])
    assert Fraction(nanoseconds(text)) == sum(count * scale[unit] for count, unit in parts[:10])


@given(st.text(alphabet="0123456789.hmsund w-+eµ", max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    value, refusal = 0, "expected a duration"
    try:
        value = nanoseconds(text)
    except BadValue as bad:
        refusal = str(bad)
    assert abs(value) <= INT64_MAX
    assert "expected a duration" in refusal
