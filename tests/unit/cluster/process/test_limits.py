"""The same failure is written a few times, then now and then, and what was left out is counted."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import structlog

from kai.cluster.process.logs import Limits


class Log:
    def __init__(self):
        self.now = 0.0
        self.limits = Limits(lambda: self.now)
        self.lines = []

    def write(self, event, method="info", **facts):
        try:
            self.lines.append(self.limits(None, method, {"event": event, **facts}))
        except structlog.DropEvent:
            return


def test_repeated_failures_give_few_lines_with_suppressed_counts():
    log = Log()
    for number in range(2400):
        log.now = number * 0.05
        log.write("not written", what="patch", why=f"podgroups/yg{number}: the connection was cut")
    assert len(log.lines) <= 9
    assert sum(line.get("suppressed", 0) for line in log.lines) + len(log.lines) > 1700
    assert "suppressed" not in log.lines[0]


@pytest.mark.parametrize("method", ["warning", "error"])
def test_repeated_warnings_and_errors_are_suppressed_without_reasons(method):
    log = Log()
    for _ in range(100):
        log.write("work failed", method)
    assert len(log.lines) == 5


def test_another_reason_or_event_passes_beside_a_flood():
    log = Log()
    for _ in range(100):
        log.write("not written", why="the connection was cut")
    log.write("not written", why="a webhook said no")
    log.write("bind refused", "warning", why="the connection was cut")
    assert [line["why"] for line in log.lines[5:]] == ["a webhook said no", "the connection was cut"]


def test_reasons_that_are_always_new_are_bounded_as_well():
    log = Log()
    for number in range(5000):
        log.write("not written", why=f"{'ab'[number % 2]}{'x' * (number % 250)}")
    assert len(log.lines) == 30


def test_what_went_well_is_never_held_back():
    log = Log()
    for number in range(500):
        log.write("bind ordered", pod=f"team/p{number}")
    assert len(log.lines) == 500


def test_what_is_remembered_is_bounded():
    log = Log()
    for number in range(5000):
        log.write(f"event {'x' * number}", why="x")
    assert len(log.limits._counts) <= 2000


def test_threads_may_write_at_once(monkeypatch):
    monkeypatch.setattr("kai.cluster.process.logs._REMEMBERED", 20)
    log = Log()

    def write(thread):
        for number in range(3000):
            log.write(f"{thread * 'a'}-{number}", why="it failed")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(1, 5)))
    finally:
        sys.setswitchinterval(interval)
    assert len(log.lines) == 12_000
