import pytest

from kai.cluster.process.tracing import PluginTimes


class Clock:
    now = 0.0

    def __call__(self):
        return self.now

    def lasting(self, seconds, *more):
        def work():
            self.now += seconds
            for each in more:
                each()
            return seconds

        return work


def test_calls_and_seconds_are_counted_by_plugin_and_hook():
    clock = Clock()
    times = PluginTimes(clock)
    ask = times.timed("rack", "NodeScore.score", clock.lasting(2.0))
    assert (ask(), ask()) == (2.0, 2.0)
    taken = times.taken["rack", "NodeScore.score"]
    assert (taken.calls, taken.seconds) == (2, 4.0)


def test_a_nested_call_counts_once_for_its_plugin():
    clock = Clock()
    times = PluginTimes(clock)
    inner = times.timed("zones", "Placement.recorded", clock.lasting(3.0))
    engine = times.paused(clock.lasting(10.0, inner))
    times.timed("rack", "Placement.choose", clock.lasting(1.0, engine, inner))()
    assert {key: each.seconds for key, each in times.taken.items()} == {
        ("zones", "Placement.recorded"): 6.0,
        ("rack", "Placement.choose"): 1.0,
    }


def test_a_call_that_fails_is_counted():
    times = PluginTimes(Clock())

    def fail():
        raise KeyError("rack")

    with pytest.raises(KeyError):
        times.timed("rack", "open", fail)()
    assert times.taken["rack", "open"].calls == 1
