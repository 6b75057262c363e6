from math import inf

from kai.cli.demonstrating.playing import SLOW, Pacing


def test_virtual_time_follows_the_clock_at_its_speed():
    pacing = Pacing(speed=60.0, clock=100.0)
    pacing.follow(101.0)
    assert pacing.virtual == 60.0
    pacing.follow(101.5)
    assert pacing.virtual == 90.0


def test_virtual_time_never_passes_what_is_still_to_happen():
    pacing = Pacing(speed=60.0, clock=0.0)
    pacing.follow(10.0, most=100.0)
    assert pacing.virtual == 100.0
    pacing.follow(11.0, most=100.0)
    assert pacing.virtual == 100.0


def test_paused_time_stands_still_and_goes_on_from_there():
    pacing = Pacing(speed=60.0, clock=0.0, is_paused=True)
    pacing.follow(10.0)
    assert pacing.virtual == 0.0
    assert pacing.wait_for(60.0) == inf
    pacing.is_paused = False
    pacing.follow(11.0)
    assert pacing.virtual == 60.0


def test_time_passes_slowly_until_what_is_watched_is_over():
    pacing = Pacing(speed=300.0, clock=0.0)
    pacing.slow_down("reclaim", 10.0)
    assert pacing.pace == SLOW
    assert pacing.wait_for(10.0) == 2.0
    pacing.follow(2.0)
    assert (pacing.virtual, pacing.why_slow) == (10.0, "")
    assert pacing.pace == 300.0


def test_a_speed_below_the_slow_one_stays_the_same():
    pacing = Pacing(speed=2.0, clock=0.0)
    pacing.slow_down("reclaim", 10.0)
    assert pacing.pace == 2.0


def test_a_clock_that_goes_back_takes_no_time_away():
    pacing = Pacing(speed=10.0, clock=5.0)
    pacing.follow(4.0)
    assert pacing.virtual == 0.0


def test_the_speed_has_bounds():
    pacing = Pacing(speed=2.0, clock=0.0)
    for _ in range(40):
        pacing.faster(0.5)
    assert pacing.speed == 1.0
    for _ in range(40):
        pacing.faster(2.0)
    assert pacing.speed == 100_000.0
