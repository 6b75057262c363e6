"""A pod that nobody can bind leaves its capacity to others, a little longer each time."""

from kai.scheduler.feedback.bind_backoff import BindBackoff


def test_the_rest_doubles_and_has_an_end():
    backoff = BindBackoff()
    pauses = []
    for _ in range(12):
        backoff.failed(("a",), 0.0)
        pauses.append(backoff.next_due(0.0))
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert pauses[-1] == 300.0


def test_who_rests_and_who_is_forgotten():
    backoff = BindBackoff()
    assert backoff.resting(0.0) == frozenset()
    backoff.failed(("a", "b"), 0.0)
    assert backoff.resting(0.5) == {"a", "b"}
    assert backoff.resting(1.0) == frozenset()
    assert backoff.next_due(1.0) is None
    backoff.failed(("a",), 1.0)
    assert backoff.next_due(1.0) == 3.0
    assert backoff.resting(1.5) == {"a"}
    assert backoff.resting(5000.0) == frozenset()
    backoff.failed(("a",), 5000.0)
    assert backoff.next_due(5000.0) == 5001.0, "what was long ago counts no more"
