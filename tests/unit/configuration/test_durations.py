import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api import times
from kai.configuration import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90.0), ("1h30m", 5400.0), ("2d", 172800.0), ("1w", 604800.0), ("0", 0.0), ("-1m", -60.0), (".5s", 0.5)],
)
def test_text_is_read_as_go_and_the_peer_write_it(text, seconds):
    assert durations.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "s", "1x", "1h 2m", "1h2", "٣s", "1e3s", "300000000w"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match="expected a duration"):
        durations.seconds(text)


@given(st.text(alphabet="0123456789.hmsdwnu-+ ", max_size=12))
def test_it_reads_what_manifests_may_say(text):
    try:
        wanted = times.seconds(text)
    except ValueError:
        wanted = None
    except Exception as error:  # noqa: BLE001 - the other reader has its own family of errors
        wanted = None if "expected" in str(error) else error
    try:
        found = durations.seconds(text)
    except ValueError:
        found = None
    assert found == wanted


@pytest.mark.parametrize("seconds", [0.0, 0.25, 1.5, 60.0, 5400.0, 86400.0, -90.0])
def test_durations_are_printed_as_in_manifests(seconds):
    assert durations.text(seconds) == times.duration_text(seconds)
