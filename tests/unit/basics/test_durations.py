import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api import values
from kai.api.values import BadValue
from kai.basics import parsing


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("1h30m", 5400.0), ("2d", 172800.0), ("1w", 604800.0), ("0", 0.0), ("-1m", -60.0), (".5s", 0.5)],
)
def test_a_duration_is_read_like_go_writes_it(text, seconds):
    assert parsing.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "1x", "1h 2m", "1h2", "٣s", "1e3s", "300000000w"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="expected a duration"):
        parsing.seconds(text)


@given(st.text(alphabet="0123456789.hmsdwnu-+ ", max_size=12))
def test_manifests_are_read_alike(text):
    try:
        wanted = parsing.nanoseconds(text)
    except parsing.DurationError as error:
        with pytest.raises(BadValue, match=error.wanted):
            values.nanoseconds(text)
    else:
        assert values.nanoseconds(text) == wanted


@pytest.mark.parametrize("seconds", [float("nan"), 1e10])
def test_what_does_not_fit_is_not_printed(seconds):
    with pytest.raises(ValueError, match="expected a duration of at most 292 years"):
        parsing.text(seconds)
