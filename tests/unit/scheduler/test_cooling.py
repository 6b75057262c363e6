"""A pod that nobody can bind leaves its capacity to others, a little longer each time."""

from kai.scheduler.cooling import Cooling


def test_the_rest_doubles_and_has_an_end():
    cooling = Cooling()
    pauses = []
    for _ in range(12):
        cooling.failed(("a",), 0.0)
        pauses.append(cooling.next_due(0.0))
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == 300.0


def test_who_rests_and_who_is_forgotten():
    cooling = Cooling()
    assert cooling.resting(0.0) == frozenset()
    cooling.failed(("a", "b"), 0.0)
    assert cooling.resting(0.5) == {"a", "b"}
    assert cooling.resting(1.0) == frozenset()
    assert cooling.next_due(1.0) is None
    cooling.failed(("a",), 1.0)
    assert cooling.next_due(1.0) == 3.0
    cooling.forget(lambda uid: uid == "a")
    assert cooling.resting(1.5) == frozenset()
    assert cooling.resting(5000.0) == frozenset()
