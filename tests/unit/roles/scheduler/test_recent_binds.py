"""Pods whose bind was ordered a moment ago, and what waits for them."""

from kai.roles.scheduler.feedback.memories import RecentBinds


def test_an_order_holds_ten_seconds_from_its_last_note():
    ordered = RecentBinds()
    ordered.note("a", 0.0)
    ordered.note("b", 5.0)
    assert [ordered.holds("a", now) for now in (0.0, 9.9, 10.0)] == [True, True, False]
    ordered.note("a", 12.0)
    assert (ordered.holds("a", 13.0), ordered.holds("b", 13.0), ordered.holds("c", 13.0)) == (True, True, False)
    ordered.clear()
    assert not ordered.holds("a", 13.0)


def test_a_cycle_waits_only_for_orders_that_rejected_statements():
    ordered = RecentBinds()
    for uid, at in (("a", 0.0), ("b", 5.0)):
        ordered.note(uid, at)
    assert (ordered.is_awaited, ordered.next_due()) == (False, None)
    for uid in ("b", "a"):
        ordered.wait_for(uid)
    assert (ordered.is_awaited, ordered.next_due()) == (True, 10.0)
    ordered.decided()
    assert not ordered.is_awaited
    ordered.begin_cycle()
    assert (ordered.is_awaited, ordered.next_due()) == (False, None)
