from math import inf, nan

import numpy as np

from kai.deciding.engine.host import Clock


def test_clock_answers_hold_until_the_nearest_queried_deadline():
    clock = Clock(100.0)
    assert clock.holds_until == inf
    assert clock.is_past(100.0)
    assert not clock.is_past(130.0)
    assert not clock.has_lasted(90.0, 20.0)
    assert clock.has_lasted(80.0, 20.0)
    assert clock.holds_until == 110.0 - 1e-3
    assert clock.are_past(np.array([105.0, 99.0, nan])).tolist() == [False, True, False]
    assert clock.holds_until == 105.0 - 1e-3


def test_a_nan_deadline_never_passes_and_bounds_nothing():
    clock = Clock(100.0)
    assert not clock.is_past(nan)
    assert not clock.are_past(np.array([nan])).any()
    assert clock.holds_until == inf


def test_reading_the_instant_makes_answers_hold_only_now():
    clock = Clock(100.0)
    assert clock.read() == 100.0
    assert clock.holds_until == -inf
