"""Groups of one pod that ask for no less than one that failed, and those that a pass closes with it."""

import numpy as np
import pytest

from kai.actions import preempt
from kai.actions.preempt import Preempt
from kai.actions.search import waiting
from kai.actions.search.hopeless import NoLess
from tests.unit.actions.search.stage import opened, row, told

QUEUES = {"root": {}, "mine": {"parent": "root", "quota": 2}, "theirs": {"parent": "root", "quota": 2}}
FULL = {"n1": {"gpu": 2}}
RUNS = {"queue": "mine", "each": {"gpu": 2}, "runs_on": "n1"}


@pytest.fixture
def session():
    groups = {
        "runs": RUNS,
        "one": {"queue": "mine", "each": {"gpu": 1}},
        "two": {"queue": "mine", "each": {"gpu": 2}},
        "busy": {"queue": "mine", "each": {"gpu": 1, "cpu": "3"}},
        "pair": {"queue": "mine", "members": 2, "each": {"gpu": 2}},
        "tied": {"queue": "mine", "each": {"gpu": 2}, "selector": {"rack": "a"}},
        "other": {"queue": "theirs", "each": {"gpu": 2}},
    }
    return opened(groups, FULL, queues=QUEUES)


def asked_by(session, name):
    return session.footprint(int(session.facts.pods.shape[session.portion(row(session, name)).pods()[0]]))


@pytest.mark.parametrize(
    ("failed", "per_queue", "expected"),
    [
        pytest.param("one", True, {"one", "two", "busy"}, id="all amounts of the queue"),
        pytest.param("one", False, {"one", "two", "busy", "other"}, id="all amounts of any queue"),
        pytest.param("two", True, {"two", "busy"}, id="less of one thing and more of another is not less"),
    ],
)
def test_single_pod_groups_asking_no_less_are_found(session, failed, per_queue, expected):
    every = np.arange(len(session.snapshot.groups), dtype=np.int64)
    found = NoLess(session, every, per_queue=per_queue).than(row(session, "one"), asked_by(session, failed))
    assert {session.snapshot.groups[at].name for at in found} == expected


def test_a_group_of_several_pods_excludes_no_others(session):
    every = np.arange(len(session.snapshot.groups), dtype=np.int64)
    no_less = NoLess(session, every, per_queue=True)
    assert not len(no_less.than(row(session, "pair"), asked_by(session, "pair")))


def looked_at(monkeypatch, **parameters):
    """Return how many groups a pass looks at in which 20 that differ wait in vain, and what it decides."""
    looked = []

    def signature_of(session, portion, of=waiting.signature_of):
        looked.append(portion.group)
        return of(session, portion)

    monkeypatch.setattr(waiting, "signature_of", signature_of)
    # Without this the pass would see that no group has victims, and look at none.
    monkeypatch.setattr(preempt, "_some_have_lower", lambda *_: True)
    waits = {f"w{at:02}": {"queue": "mine", "each": {"gpu": 1, "cpu": str(1 + at)}} for at in range(20)}
    session = opened({"runs": RUNS, **waits}, FULL, queues=QUEUES, **parameters)
    Preempt().run(session)
    return len(set(looked)), told(session)


def test_a_pass_skips_groups_asking_no_less(monkeypatch):
    assert looked_at(monkeypatch) == (2, [])
    assert looked_at(monkeypatch, without=("no-less",)) == (20, [])
