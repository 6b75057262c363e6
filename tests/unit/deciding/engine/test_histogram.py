"""What nodes object to is counted once for all groups that are told the same."""

import attrs
import numpy as np
import pytest

from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine import refusals
from kai.deciding.engine.cycle import run_cycle
from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import Session
from kai.framework.decisions import Recorder
from kai.framework.hooks import NodeFilter, NodeScore, Placement
from kai.testing import default_profile_with, snapshot

NODES = {"n1": {"gpu": 4, "cpu": 64}, "n2": {"gpu": 1, "cpu": 1}}
WANTED = {"gpu": 4, "cpu": 2}
GROUPS = {
    "runs": {"queue": "b", "each": {"gpu": 1, "cpu": 1}, "runs_on": "n1"},
    "one": {"queue": "a", "each": WANTED},
    "two": {"queue": "b", "each": WANTED},
    "other": {"queue": "a", "each": {"gpu": 4, "cpu": 1}},
    "small": {"queue": "a", "each": {"gpu": 1, "cpu": 62}},
}


@pytest.fixture
def counted(monkeypatch):
    """The pods for which nodes were counted, in turn."""
    pods, count = [], refusals._counted

    def counting(session, pod, *asked):
        pods.append(session.snapshot.pods[pod].name)
        return count(session, pod, *asked)

    monkeypatch.setattr(refusals, "_counted", counting)
    return pods


def opened(queues):
    return Session(snapshot(NODES, GROUPS, queues), default_profile(), Recorder(), Silent())


def row(session, name):
    return [pod.name for pod in session.snapshot.pods].index(f"{name}-0")


def told(session, name):
    found = refusals.histogram(session, row(session, name), session.all_nodes)
    return [(count, reason.subject) for count, reason in found.counts]


def test_equal_groups_of_two_queues_share_one_node_count(counted):
    session = opened({"a": {"quota": 9}, "b": {"quota": 9}})
    assert told(session, "one") == told(session, "two") == [(2, "gpu"), (1, "cpu")]
    assert counted == ["one-0"]


def test_another_shape_is_counted_by_itself(counted):
    session = opened({"a": {"quota": 9}, "b": {"quota": 9}})
    assert told(session, "one") != told(session, "other")
    assert counted == ["one-0", "other-0"]


def test_nodes_are_counted_again_after_a_placement(counted):
    session = opened({"a": {"quota": 9}, "b": {"quota": 9}})
    assert told(session, "one") == [(2, "gpu"), (1, "cpu")]
    with session.statement("test") as statement:
        small = np.array([row(session, "small")], np.int64)
        assert statement.place_pods(small, session.all_nodes, session.no_extra, promise=False) == 1
        assert told(session, "two") == [(2, "cpu"), (2, "gpu")]
    assert told(session, "two") == [(2, "gpu"), (1, "cpu")]
    assert counted == ["one-0", "two-0", "two-0"]


@attrs.frozen
class Picky:
    """A plugin that takes out nodes by one extension."""

    extension: object

    def open(self, session):
        return [self.extension]


@pytest.mark.parametrize(
    ("extension", "words"),
    [
        (NodeFilter(lambda _, nodes: nodes < 0), "node(s) were refused by plugin Picky"),
        (NodeScore(lambda _, nodes: np.full(len(nodes), np.nan)), "node(s) were scored with NaN by plugin Picky"),
        (Placement(choose=lambda _, __: None), "node(s) were refused by plugin Picky"),
    ],
)
def test_a_plugin_that_excludes_fitting_nodes_is_named(extension, words):
    cluster = snapshot(NODES, {"tiny": {"each": {"gpu": 1, "cpu": 1}}})
    session = Session(cluster, default_profile_with(Picky(extension)), Recorder(), Silent())
    found = refusals.histogram(session, row(session, "tiny"), session.all_nodes)
    assert [(count, reason.text) for count, reason in found.counts] == [(2, words)]


def test_nodes_that_a_plugin_leaves_are_not_told_of():
    cluster = snapshot(NODES, {"tiny": {"each": {"gpu": 1, "cpu": 1}}})
    choosing = Placement(choose=lambda _, node: "zone" if node else None)
    session = Session(cluster, default_profile_with(Picky(choosing)), Recorder(), Silent())
    found = refusals.histogram(session, row(session, "tiny"), session.all_nodes)
    assert [count for count, _ in found.counts] == [1]


def test_a_credit_reduces_what_a_pod_needs():
    fitting = {"n1": {"gpu": 1}}
    groups = {"runs": {"each": {"gpu": 1}, "runs_on": "n1"}, "shares": {"each": {"gpu": 1}}}
    all_of_it = Placement(credit=lambda _, nodes: np.full((2, len(nodes)), 1000, np.int64))
    bound = {}
    for name, plugins in {"with": (Picky(all_of_it),), "without": ()}.items():
        bound[name] = run_cycle(snapshot(fitting, groups), default_profile_with(*plugins), Recorder()).counts["binds"]
    assert bound == {"with": 1, "without": 0}
