import pytest

from kai.basics.deadlines import doubling_pause
from kai.roles.scheduler.feedback.refusals import BindBackoff


@pytest.mark.parametrize(
    ("failures", "pause"), [(0, 1.0), (1, 1.0), (2, 2.0), (3, 4.0), (9, 256.0), (10, 300.0), (10**9, 300.0)]
)
def test_a_pause_doubles_up_to_a_bound(failures, pause):
    assert doubling_pause(failures, 1.0, 300.0) == pause


def test_a_pause_begins_with_the_first_one():
    assert [doubling_pause(failures, 5.0, 60.0) for failures in (1, 2, 5)] == [5.0, 10.0, 60.0]


def test_a_pod_failing_for_days_waits_the_longest_pause():
    backoff = BindBackoff()
    for _ in range(1100):
        backoff.failed("a", "no", 0.0, 0.0)
    assert backoff.next_due(0.0) == 300.0
