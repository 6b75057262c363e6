from kai.roles.scheduler.feedback.refusals import ProtectedPods


def test_pods_are_protected_for_their_time_in_order():
    protected = ProtectedPods()
    protected.note("b", now=10.0, seconds=60.0)
    protected.note("a", now=20.0, seconds=10.0)
    assert protected.current(29.0) == ("a", "b")
    assert (protected.holds("a", 29.0), protected.holds("a", 30.0), protected.holds("c", 29.0)) == (True, False, False)
    assert protected.next_due(29.0) == 30.0
    assert (protected.next_due(30.0), protected.current(30.0)) == (70.0, ("b",))
    assert (protected.next_due(70.0), protected.current(70.0)) == (None, ())


def test_what_is_known_for_longer_is_not_shortened():
    protected = ProtectedPods()
    protected.note("a", now=0.0, seconds=60.0)
    protected.note("a", now=10.0, seconds=10.0)
    assert protected.next_due(10.0) == 60.0
