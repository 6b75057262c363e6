"""What plugins say about nodes is asked for as seldom as they allow, and decides the same on the long way."""

import attrs
import numpy as np
import pytest

from kai.deciding.engine import fast_path
from kai.deciding.engine.cycle import run_cycle
from kai.framework import Dependence, NodeFilter, NodeScore
from kai.framework.terms import Density
from kai.testing import RecordingSink, default_profile_with, snapshot

RACKS = {"n1": "a", "n2": "b", "n3": "b", "n4": "c"}


@attrs.define
class Company:
    """Go where pods of the group are; never to rack c, and not to rack a without company."""

    depends: Dependence
    filters: bool = True
    weight: float = 50.0
    asked: int = 0

    def open(self, session):
        racks = session.label_codes("rack")

        def count(pod, nodes):
            held = np.bincount(racks[session.nodes_of(session.group_of(pod))], minlength=racks.max() + 1)
            return held[racks[nodes]]

        def filter_nodes(pod, nodes):
            return (racks[nodes] != 3) & ((racks[nodes] != 1) | (count(pod, nodes) > 0))

        def score_nodes(pod, nodes):
            self.asked += 1
            return count(pod, nodes) * self.weight + (racks[nodes] == 2) * 20.0

        scores = NodeScore(score_nodes, depends=self.depends)
        return [NodeFilter(filter_nodes, depends=self.depends), scores] if self.filters else [scores]


@pytest.fixture
def taken():
    return snapshot(
        nodes={name: {"gpu": 4, "labels": {"rack": rack}} for name, rack in RACKS.items()},
        groups={
            "kin": {"members": 2, "each": {"gpu": 1}, "runs_on": ["n1"]},
            "gang": {"members": 3, "minimum": 3, "each": {"gpu": 1}},
            **{f"one-{number}": {"each": {"gpu": 1}} for number in range(9)},
            "half": {"each": {"fraction": 0.5}},
        },
    )


def outcome(taken, *plugins, **parameters):
    """Return what was decided, in order, and why the others wait."""
    profile = default_profile_with(*plugins)
    profile = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, **parameters))
    sink = RecordingSink()
    report = run_cycle(taken, profile, sink)
    return list(sink.decisions), {group: repr(record) for group, record in report.records.items()}


@pytest.mark.parametrize("filters", [True, False])
def test_decisions_are_the_same_at_every_declared_dependence(taken, filters):
    expected = outcome(taken, Company(Dependence.SESSION, filters), shortcuts=False)
    for depends in (Dependence.GROUP, Dependence.SESSION):
        for shortcuts in (True, False):
            assert outcome(taken, Company(depends, filters), shortcuts=shortcuts) == expected
    assert len(expected[0]) == (9 if filters else 14)


def test_one_answer_serves_all_groups_of_one_equal_pod(taken):
    alone = snapshot(
        nodes={name: {"gpu": 4, "labels": {"rack": rack}} for name, rack in RACKS.items()},
        groups={f"one-{number}": {"each": {"gpu": 1}} for number in range(9)},
    )
    plugin, other = Company(Dependence.GROUP, filters=False), Company(Dependence.SESSION, filters=False)
    assert outcome(alone, plugin) == outcome(alone, other)
    assert (plugin.asked, other.asked) == (1, 9)


def test_inexact_sums_decide_the_same_with_and_without_shortcuts(taken):
    """Two plugins' fractions in one sum: the order of additions might decide."""

    class Static:
        def open(self, session):
            del session
            return [NodeScore(lambda _, nodes: nodes * 0.1, depends=Dependence.SHAPE)]

    def run(*, shortcuts):
        profile = default_profile_with(Company(Dependence.GROUP), Static())
        profile = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, shortcuts=shortcuts))
        sink = RecordingSink()
        run_cycle(taken, profile, sink)
        return list(sink.decisions)

    assert run(shortcuts=True) == run(shortcuts=False)


@pytest.mark.parametrize(("weight", "node"), [(1.0, "n2"), (2.0, "n1")])
@pytest.mark.parametrize("shortcuts", [True, False])
def test_double_density_weight_outweighs_ten_points_on_every_path(weight, node, shortcuts):
    """n1 has one GPU left of four, so density gives it nine points for each unit of weight; n2 has ten in any case."""

    class Heavy:
        def open(self, session):
            del session
            ten = NodeScore(lambda _, nodes: (nodes == 1) * 10.0, depends=Dependence.SHAPE)
            return [Density(gpu_binpack=weight - 1.0), ten]  # binpack has the first unit

    half_full = snapshot(
        nodes={"n1": {"gpu": 4}, "n2": {"gpu": 4}},
        groups={"old": {"each": {"gpu": 3}, "runs_on": ["n1"]}, "new": {"each": {"gpu": 1}}},
    )
    ((bound,), _) = outcome(half_full, Heavy(), shortcuts=shortcuts)
    assert half_full.nodes[bound.node].name == node


@pytest.fixture
def worded(monkeypatch):
    """The groups whose refusal was put into words, in turn."""
    names, record = [], fast_path.record_no_node

    def noted(session, portion, *rest):
        names.append(session.snapshot.groups[portion.group].name)
        return record(session, portion, *rest)

    monkeypatch.setattr(fast_path, "record_no_node", noted)
    return names


def crowded(gpus, **more):
    """Return a cluster with ``gpus`` on one node and one on another, where a pod waits in each of six queues."""
    full = {"full": {"queue": "q0", "members": 2, "each": {"gpu": 1}, "runs_on": ["n1", "n2"]}}
    asks = {f"one-{at}": {"queue": f"q{at}", "each": {"gpu": 1}} for at in range(6)}
    queues = {f"q{at}": {"quota": 1} for at in range(6)}
    return snapshot(nodes={"n1": {"gpu": gpus}, "n2": {"gpu": 1}}, queues=queues, groups=full | asks | more)


def test_where_nodes_are_short_one_refusal_serves_all_queues(worded):
    gangs = {f"gang-{at}": {"queue": f"q{at}", "members": 2, "minimum": 2, "each": {"gpu": 1}} for at in range(2)}
    grows = {"queue": "q2", "members": 2, "minimum": 1, "each": {"gpu": 1}, "runs_on": ["n1"]}
    taken = crowded(2, **gangs, grows=grows)
    quick, words = outcome(taken), list(worded)
    assert quick == outcome(taken, shortcuts=False)
    # One for all that run nothing, and one for the group that has a pod running.
    assert len(words) == 2
    assert "grows" in words


def test_refusals_that_name_nodes_are_worded_for_each_queue(worded):
    quick, words = outcome(crowded(1), detailed_fit_errors=True), sorted(worded)
    assert quick == outcome(crowded(1), detailed_fit_errors=True, shortcuts=False)
    assert words == [f"one-{at}" for at in range(6)]


def test_full_queues_are_worded_by_their_limits(worded):
    queues = {f"q{at}": {"quota": 1, "limit": 1} for at in range(3)}
    asks = {f"half-{at}": {"queue": f"q{at}", "members": 3, "minimum": 3, "each": {"fraction": 0.5}} for at in range(3)}
    taken = snapshot(nodes={"n1": {"gpu": 1}}, queues=queues, groups=asks)
    assert outcome(taken) == outcome(taken, shortcuts=False)
    assert worded == []
