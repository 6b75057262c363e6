import math
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.cluster.requesting.window import Window


def test_a_window_holds_so_many_and_no_more():
    window = Window(width=2.0)
    numbers = [window.offer(key, 0.0) for key in "abc"]
    assert window.take(0.0) == tuple(numbers[:2])
    assert window.take(0.0) == ()
    window.answered(numbers[0], 0.01)
    assert window.take(0.01) == (numbers[2],)


def test_requests_with_one_key_are_sent_in_turn():
    window = Window()
    first, second, other = window.offer("a", 0.0), window.offer("a", 0.0), window.offer("b", 0.0)
    assert window.take(0.0) == (first, other)
    window.answered(first, 0.1)
    assert window.take(0.1) == (second,)


def test_a_throttled_request_is_first_after_its_pause():
    window = Window(width=16.0)
    first, second, third = window.offer("a", 0.0), window.offer("b", 0.0), window.offer("c", 0.0)
    window.take(0.0)
    window.throttled(first, 1.0, 5.0)
    window.throttled(second, 1.0, 5.0)
    later = window.offer("d", 0.0)
    assert window.take(5.9) == ()
    assert window.next_due(later, 5.9) == 6.0
    assert window.take(6.0) == (first, second, later)
    assert window.width == 8.0
    window.throttled(third, 6.5, 1.0)
    assert window.width == 8.0, "what was sent before the window was cut says nothing about what is left of it"


def test_a_request_throttled_alone_delays_only_its_key():
    window = Window(width=16.0)
    denied, behind, other = window.offer("a", 0.0), window.offer("a", 0.0), window.offer("b", 0.0)
    assert window.take(0.0) == (denied, other)
    window.throttled(denied, 1.0, 50.0, alone=True)
    later = window.offer("c", 1.0)
    assert window.take(1.0) == (later,)
    assert window.next_due(denied, 1.0) == 51.0
    assert window.next_due(behind, 1.0) is None
    assert window.width == 16.0
    for number in (other, later):
        window.answered(number, 1.1)
    assert window.take(50.9) == ()
    assert window.take(51.0) == (denied,)
    window.answered(denied, 51.1)
    assert window.take(51.1) == (behind,)


def test_throttling_without_a_time_pauses_for_a_second():
    window = Window()
    number = window.offer("a", 0.0)
    window.take(0.0)
    window.throttled(number, 1.0, None)
    assert window.next_due(number, 1.0) == 2.0


def test_an_object_that_rests_does_not_widen_the_window():
    window = Window()
    denied = window.offer("denied", 0.0)
    window.take(0.0)
    window.throttled(denied, 0.0, 50.0)
    for number in range(30, 48):
        ticket = window.offer(number, float(number))
        assert window.take(float(number)) == (ticket,)
        window.answered(ticket, number + 0.01)
    assert window.width == 8.0
    window.withdraw(denied)
    assert (window.in_flight, window.waiting) == (0, 0)
    assert window.take(60.0) == ()


def test_throttling_delays_other_requests_and_narrows_the_window():
    window = Window()
    read = window.offer("a", 0.0)
    window.take(0.0)
    window.throttled(read, 0.0, 5.0)
    other = window.offer("b", 0.0)
    assert window.take(4.9) == ()
    assert window.take(5.0) == (read, other)
    assert window.width == 8.0


def test_an_hours_retry_after_pauses_for_half_a_minute():
    window = Window()
    numbers = [window.offer(key, 0.0) for key in "ab"]
    window.take(0.0)
    for number in numbers:
        window.throttled(number, 0.0, 3600.0)
    other = window.offer("c", 0.0)
    assert window.next_due(other, 0.0) == 30.0
    assert window.take(29.9) == ()
    assert window.take(30.0) == (other,)
    window.throttled(other, 30.0, 3600.0)
    window.offer("d", 30.0)
    assert window.take(59.9) == (), "no answer came since"
    assert window.next_due(numbers[0], 60.0) == 3600.0


def test_quick_answers_widen_the_window_and_slow_narrow_it():
    window = Window(width=12.0, widest=14)
    now = 0.0
    for round_ in range(20):
        numbers = [window.offer((round_, index), now) for index in range(16)]
        while window.waiting or window.in_flight:
            for number in window.take(now):
                window.answered(number, now + 0.01)
            now += 0.02
    assert window.width == 14.0
    assert numbers
    number = window.offer("slow", now)
    window.take(now)
    window.answered(number, now + 3.0)
    assert window.width < 14.0


@pytest.mark.parametrize("fate", ["slow", "failed", "throttled"])
def test_nothing_narrows_the_window_below_eight(fate):
    window = Window(width=64.0)
    now = 0.0
    for round_ in range(40):
        number = window.offer(round_, now)
        assert window.take(now) == (number,)
        now += 2.0
        if fate == "throttled":
            window.throttled(number, now, 0.0)
            window.withdraw(number)
        else:
            window.answered(number, now, failed=fate == "failed")
        now += 0.001
        if fate == "slow" and not round_ % 8:  # a quick answer in between makes all others slow again
            quick = window.offer("quick", now)
            window.take(now)
            window.answered(quick, now + 0.01)
    assert window.width == 8.0


def test_a_window_that_is_not_full_does_not_widen():
    window = Window(width=4.0)
    for number in range(20):
        ticket = window.offer(number, float(number))
        window.take(float(number))
        window.answered(ticket, number + 0.01)
    assert window.width == 4.0


def test_deferrable_requests_leave_half_of_the_window_to_others():
    window = Window(width=4.0)
    lazy = [window.offer(("event", index), 0.0, urgent=False) for index in range(5)]
    assert window.take(0.0) == tuple(lazy[:2])
    urgent = window.offer("a", 0.0)
    assert window.take(0.0) == (urgent,)


def test_whoever_waits_no_more_leaves_no_trace():
    window = Window(width=1.0)
    sent, waiting, behind = window.offer("a", 0.0), window.offer("b", 0.0), window.offer("a", 0.0)
    window.take(0.0)
    for number in (behind, waiting, sent):
        window.withdraw(number)
    assert (window.in_flight, window.waiting) == (0, 0)
    assert window.take(0.0) == ()


def test_a_withdrawn_request_makes_room_for_the_next():
    window = Window()
    first, second = window.offer("a", 0.0), window.offer("a", 0.0)
    window.withdraw(first)
    assert window.take(0.0) == (second,)


# --- Peaks ---------------------------------------------------------------------------------------------------------


def peaking(window, since, until, step=0.01):
    """Keep four urgent requests in flight, one answered at each step, and return when deferrable ones were sent."""
    lazy, urgent, now = {}, deque(), since
    while now < until:
        if len(urgent) == 4:
            window.answered(urgent.popleft(), now)
        while len(urgent) < 4:
            urgent.append(window.offer(object(), now))
        for taken in set(window.take(now)) - set(urgent):
            window.answered(taken, now)
            lazy[taken] = now
        now += step
    for number in urgent:
        window.answered(number, now - step)
    return lazy


def test_deferrable_requests_wait_until_a_peak_ends():
    window = Window()
    peaking(window, 0.0, 1.0)
    report = window.offer("event", 1.0, urgent=False)
    assert window.take(1.0) == ()
    due = window.next_due(report, 1.0)
    assert 1.2 < due < 1.4
    assert window.take(due - 0.01) == ()
    assert window.take(due + 0.001) == (report,)


def test_an_endless_peak_delays_deferrable_requests_five_seconds():
    window = Window()
    peaking(window, 0.0, 1.0)
    reports = [window.offer(("event", index), 1.0, urgent=False) for index in range(4)]
    sent = peaking(window, 1.0, 30.0)
    assert set(sent) == set(reports)
    assert 4.9 < sent[reports[0]] < 5.1
    peaking(window, 30.0, 31.0)
    late = [window.offer(("event", index), 20.0, urgent=False) for index in range(4)]
    assert window.take(31.0) == tuple(late[:2]), "those that waited longer go several at a time"


def test_deferrable_requests_get_a_share_during_endless_urgency():
    window = Window()
    reports = {window.offer(("event", index), 0.0, urgent=False) for index in range(100)}
    now, sent, urgent = 0.0, {}, 0
    flying = ()
    for step in range(3000):
        for number in flying:
            window.answered(number, now)
        for index in range(len(flying) or 200):  # as many come as go
            window.offer(("bind", step, index), now)
        flying = window.take(now)
        sent |= {number: now for number in flying if number in reports}
        urgent += len(flying) - len(reports & set(flying))
        assert len(reports & set(flying)) <= max(1, int(window.width) // 8)
        now += 0.01
    assert 3.9 < min(sent.values()) < 4.1
    assert set(sent) == reports
    assert urgent > 3000 * 14


@given(st.lists(st.tuples(st.floats(0.0, 0.05), st.integers(1, 3)), max_size=50))
def test_few_urgent_requests_at_once_are_no_peak(rounds):
    window, now = Window(), 0.0
    for pause, count in rounds:
        now += pause
        numbers = [window.offer(object(), now) for _ in range(count)]
        report = window.offer(object(), now, urgent=False)
        assert window.take(now) == (*numbers, report)
        for number in (*numbers, report):
            window.answered(number, now)


def test_unanswered_urgent_requests_count_as_a_peak():
    window = Window()
    numbers = [window.offer(("bind", index), 0.0) for index in range(4)]
    assert window.take(0.0) == tuple(numbers)
    report = window.offer("event", 2.0, urgent=False)
    assert window.take(2.0) == ()
    assert window.next_due(report, 2.0) > 2.1, "and nobody looks again and again meanwhile"
    window.answered(numbers[0], 2.2)
    assert window.take(2.4) == ()
    assert window.take(2.5) == (report,)


def test_urgent_requests_in_the_queue_count_as_a_peak():
    window = Window(width=2.0)
    numbers = [window.offer(("bind", index), 0.0) for index in range(4)]
    assert window.take(0.0) == tuple(numbers[:2])
    for number in numbers[:2]:
        window.answered(number, 0.1)
    assert window.take(0.2) == tuple(numbers[2:])
    for number in numbers[2:]:
        window.answered(number, 0.2)
    report = window.offer("event", 0.2, urgent=False)
    assert window.take(0.39) == ()
    assert window.take(0.4) == (report,)


def test_reports_of_a_full_window_go_after_its_peak():
    window = Window(width=4.0)
    binds, report = [window.offer(object(), 0.0) for _ in range(4)], window.offer("event", 0.0, urgent=False)
    assert window.take(0.0) == tuple(binds)
    due = window.next_due(report, 0.0)
    for number in binds:
        window.answered(number, 0.2)
        assert window.take(0.2) == ()
    assert window.take(due) == (), "the answers prolonged the peak"
    assert window.take(window.next_due(report, due)) == (report,)


STEPS = st.lists(
    st.tuples(st.sampled_from(["offer", "take", "answer", "throttle", "withdraw"]), st.integers(0, 7), st.booleans()),
    max_size=80,
)


@given(STEPS)
def test_whatever_happens_order_width_and_patience_hold(steps):
    window = Window(width=3.0, widest=5)
    now, offered, flying, done, held_until, rests = 0.0, {}, [], set(), 0.0, {}
    for name, pick, flag in steps:
        now += 0.1
        if name == "offer":
            offered[window.offer(pick % 3, now, urgent=flag)] = pick % 3
        elif name == "take":
            taken = window.take(now)
            assert not taken or now >= held_until
            flying += taken
            assert len(flying) <= math.ceil(5)
            assert len({offered[number] for number in flying}) == len(flying), "one of each key at a time"
            for number in taken:
                assert now >= rests.get(number, 0.0)
                earlier = {other for other, key in offered.items() if key == offered[number] and other < number}
                assert earlier <= done, "in the order in which they were offered"
        elif flying and name in {"answer", "throttle"}:
            number = flying.pop(pick % len(flying))
            if name == "answer":
                window.answered(number, now)
                done.add(number)
            else:
                window.throttled(number, now, 0.3)
                rests[number] = now + 0.3
                held_until = now + 0.3
        elif name == "withdraw":
            left = sorted(offered.keys() - done)
            if left:
                number = left[pick % len(left)]
                window.withdraw(number)
                done.add(number)
                flying = [other for other in flying if other != number]
        assert window.in_flight == len(flying)
        assert window.waiting == len(offered) - len(done) - len(flying)
        assert 1.0 <= window.width <= 5.0
    now += 1.0
    while window.waiting or flying:
        flying += window.take(now)
        if not flying:
            due = max((window.next_due(number, now) or 0.0) for number in offered.keys() - done)
            assert due, "something can always be sent"
            assert due - now < 5.0, "and soon"
            now = due + 0.001
            continue
        window.answered(flying.pop(), now)
