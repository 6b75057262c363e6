"""Each signal has a line in the log: a text, and the fields that are known."""

from typing import get_args

import pytest
from structlog.testing import capture_logs

from kai.roles.scheduler.effects import _TEXTS, BindOrdered, Evicted, EvictionRefused, Signal, log_signal


def test_every_signal_has_a_text_of_its_own():
    assert set(_TEXTS) == set(get_args(Signal))
    assert len(set(_TEXTS.values())) == len(_TEXTS)


@pytest.mark.parametrize(
    ("signal", "line"),
    [
        (
            BindOrdered(pod="a/p", node="n", seconds=0.5, waited=2.0),
            {"event": "bind ordered", "log_level": "info", "pod": "a/p", "node": "n", "seconds": 0.5, "waited": 2.0},
        ),
        (
            Evicted(pod="a/p", cause="reclaim", seconds=0.5, group=None),
            {"event": "evicted", "log_level": "info", "pod": "a/p", "cause": "reclaim", "seconds": 0.5, "gpus": 0},
        ),
        (
            EvictionRefused(pod="a/p", why="a budget", cause="preempt"),
            {"event": "eviction refused", "log_level": "warning", "pod": "a/p", "why": "a budget", "cause": "preempt"},
        ),
    ],
)
def test_a_signal_is_one_line(signal, line):
    with capture_logs() as lines:
        log_signal(signal)
    assert lines == [line]
