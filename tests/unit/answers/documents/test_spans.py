import pytest

from kai.answers.documents.envelope import span


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-1, "0s"), (45.9, "45s"), (60, "1m"), (3599, "59m"), (3600, "1h00m"), (6600, "1h50m"), (273600, "3d4h")],
)
def test_a_length_of_time_has_two_units_at_most(seconds, text):
    assert span(seconds) == text
