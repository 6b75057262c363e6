import pytest

from kai.framework import Bind, Evict
from kai.framework.decisions import Cause
from kai.testing import RecordingSink, RejectingSink, snapshot
from kai.testing.views import decision_lines

BIND = Bind(pod=0, node=0)


def test_a_recording_sink_keeps_statements_apart():
    sink = RecordingSink()
    sink.take((BIND,))
    sink.take((BIND, BIND))
    assert [len(statement) for statement in sink.statements] == [1, 2]
    assert sink.decisions == [BIND] * 3


def test_a_rejecting_sink_takes_just_its_statements():
    sink = RejectingSink(accepts=1)
    sink.take((BIND,))
    with pytest.raises(ConnectionError, match="takes 1 statements"):
        sink.take((BIND,))
    assert sink.taken == [(BIND,)]


def test_decisions_are_told_by_name():
    taken = snapshot({"n1": {"gpu": 1}}, {"g": {}})
    assert decision_lines([BIND, Evict(pod=0, cause=Cause.STALE)], taken) == [
        "Bind default/g-0 -> n1",
        "Evict default/g-0",
    ]
