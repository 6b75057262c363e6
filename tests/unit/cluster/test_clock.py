import time

from kai.cluster.clock import SystemClock


def test_the_sleep_of_the_machine_counts(monkeypatch):
    """A term must not seem to last because the machine was suspended: only one of the clocks goes on then."""
    asked = []
    monkeypatch.setattr(time, "clock_gettime", lambda clock: asked.append(clock) or 7.5)
    assert SystemClock().monotonic() == 7.5
    assert asked == [getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)]
