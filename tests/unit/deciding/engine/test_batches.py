"""A plugin of another package that places pods in batches decides what it decides for one pod at a time."""

from collections.abc import Sequence

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.basics.errors import PluginError
from kai.deciding.engine.cycle import run_cycle
from kai.framework import (
    Batch,
    Bools,
    Effect,
    Extension,
    Int64s,
    NodeFilter,
    NodeRow,
    NodeRows,
    NodeScore,
    Placement,
    PodRow,
    PodRows,
    Rates,
    Scores,
    SessionView,
    Taken,
)
from kai.framework.decisions import Recorder
from kai.intake import take_snapshot
from kai.lab.scenarios.scenario import read_objects
from kai.lab.scenarios.shorthand import NOW, expand
from kai.testing import default_profile_with

WANTS = {"few": 1, "many": 3}


@attrs.frozen(kw_only=True)
class Licences:
    """Give pods numbered licences of their node: as many as a label asks for, the lowest that are free."""

    each: int = 4
    counts: bool = True
    rates: bool = False
    """Prefer nodes more than half of whose licences are free."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Begin with all licences free."""
        shapes, nodes = session.snapshot.shapes, len(session.nodes)
        wanted = np.array([WANTS.get(dict(shape.constraints.node_selector).get("wants", ""), 0) for shape in shapes])
        used = session.track(np.zeros((nodes, self.each), np.int64))
        room = session.track(np.zeros((len(WANTS), nodes), np.int64))
        ask = np.where(wanted > 0, wanted // 2, -1).astype(np.int64)

        def free() -> Int64s:
            return (used.values == 0).sum(axis=1)

        def lowest(pod: PodRow, node: NodeRow, taken: Bools) -> tuple[int, ...]:
            return tuple(np.flatnonzero(~taken[node])[: wanted[session.shape_of(pod)]].tolist())

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            return free()[nodes] >= wanted[session.shape_of(pod)]

        def effects(pod: PodRow, node: NodeRow, detail: object) -> Sequence[Effect]:
            return [Effect(used, node * self.each + at, 1) for at in detail or ()]

        def score(nodes: NodeRows) -> Scores:
            return np.where(2 * free()[nodes] > self.each, 100.0, 0.0)

        def until_rated_anew(want: int) -> Int64s:
            return np.where(score(session.nodes) > 0, -((self.each // 2 - free()) // want), len(session.snapshot.pods))

        def count() -> Int64s | None:
            if self.rates:
                return np.stack([np.minimum(free() // want, until_rated_anew(want)) for want in WANTS.values()])
            return np.stack([free() // want for want in WANTS.values()]) if self.counts else None

        def rate() -> Rates:
            ends = np.stack([until_rated_anew(want) <= free() // want for want in WANTS.values()])
            return Rates(scores=np.stack([score(session.nodes)] * len(WANTS)), ends=ends)

        def take(pods: PodRows, nodes: NodeRows) -> Taken:
            taken, details = used.values > 0, []
            for pod, node in zip(pods.tolist(), nodes.tolist(), strict=True):
                details.append(lowest(PodRow(pod), NodeRow(node), taken))
                taken[node, list(details[-1])] = True
            cells = np.flatnonzero(taken.ravel() & (used.values.ravel() == 0))
            return Taken(details=details, changes=[(used, cells, np.ones(len(cells), np.int64))])

        return [
            NodeFilter(filter_nodes, concerns=wanted > 0),
            Placement(
                choose=lambda pod, node: lowest(pod, node, used.values > 0),
                effects=effects,
                encode=lambda _, __, detail: {"licences": list(detail)},
                batch=Batch(ask=ask, room=room, count=count, take=take, rate=rate if self.rates else None),
                concerns=wanted > 0,
            ),
            *([NodeScore(lambda _, nodes: score(nodes), concerns=wanted > 0)] if self.rates else []),
        ]


@st.composite
def clusters(draw):
    nodes = {
        f"n{node}": {"gpu": draw(st.integers(0, 4)), "labels": {"wants": draw(st.sampled_from([*WANTS]))}}
        for node in range(draw(st.integers(1, 4)))
    }
    groups = {}
    for at in range(draw(st.integers(1, 10))):
        members = draw(st.sampled_from([1, 1, 1, 2, 4]))
        wants = draw(st.sampled_from(["few", "many", ""]))
        groups[f"g{at}"] = {
            "queue": draw(st.sampled_from("ab")),
            "members": members,
            "minimum": draw(st.integers(1, members)),
            "each": {"cpu": 1, "gpu": draw(st.sampled_from([0, 0, 1]))},
            **({"selector": {"wants": wants}} if wants else {}),
        }
    return snapshot_of(nodes, groups)


def snapshot_of(nodes, groups):
    queues = {"a": {"quota": 4}, "b": {"quota": 4, "limit": 3}}
    document = {"cluster": {"nodes": nodes}, "queues": queues, "groups": groups}
    return take_snapshot(read_objects(expand(document, "cluster"), "cluster")[0], NOW)


def reasons_of(report):
    """Return why groups wait, but for facts about a group itself: groups that are alike share the words of one."""
    facts = ("pod_row", "histogram", "refusals")
    return {
        group: [
            (each.code, each.text, *map(each.facts.get, facts)) for each in (*record.reasons, *record.pods.values())
        ]
        for group, record in report.records.items()
    }


def decided(snapshot, plugin, without=()):
    profile = default_profile_with(plugin)
    profile = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, without=without))
    sink = Recorder()
    report = run_cycle(snapshot, profile, sink)
    return list(sink.decisions), report.details, reasons_of(report)


@given(snapshot=clusters())
@settings(deadline=None)
def test_batches_decide_what_one_by_one_does(snapshot):
    assert decided(snapshot, Licences()) == decided(snapshot, Licences(), ("batch",))


@given(snapshot=clusters())
@settings(deadline=None, max_examples=100)
def test_ratings_that_change_end_the_room_of_nodes(snapshot):
    rated = Licences(rates=True)
    assert decided(snapshot, rated) == decided(snapshot, rated, ("batch",))


FEW = (
    {"n": {"gpu": 4, "labels": {"wants": "few"}}},
    {"g": {"queue": "a", "members": 2, "each": {"cpu": 1}, "selector": {"wants": "few"}}},
)


def test_pods_of_a_batch_are_asked_about_only_afterwards(monkeypatch):
    asked = []
    found = Licences.open

    def opened(self, session):
        answers = found(self, session)
        noted = attrs.evolve(answers[0], filter=lambda pod, nodes: asked.append(pod) or answers[0].filter(pod, nodes))
        return [noted, answers[1]]

    monkeypatch.setattr(Licences, "open", opened)
    decisions, details, _ = decided(snapshot_of(*FEW), Licences())
    assert [each.request for each in decisions] == [{"licences": [0]}, {"licences": [1]}]
    assert details == {0: {"Licences": (0,)}, 1: {"Licences": (1,)}}
    assert not asked
    decided(snapshot_of(*FEW), Licences(counts=False))
    assert asked


def rates(asks, nodes):
    return Rates(scores=np.zeros((asks, nodes)), ends=np.zeros((asks, nodes), np.bool_))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"ask": np.zeros(9, np.int64)}, "Placement.batch: found int64[9], expected int64[1]"),
        ({"room": None}, "Placement.batch: found NoneType, expected a column [A, D] of the session as room"),
        ({"count": lambda: 3}, "Batch.count: returned int, expected int64[A, D] or None"),
        ({"count": lambda: np.zeros((1, 1), np.int64)}, "Batch.count: returned int64[1, 1], expected int64[2, 1]"),
        ({"take": lambda *_: 3}, "Batch.take: returned int, expected a Taken"),
        ({"domains": np.zeros(1, np.int64)}, "Placement.batch: found int64[1], expected int64[2, 1], contiguous"),
        ({"domains": np.ones((2, 1), np.int64)}, "Placement.batch: found a domain up to 1, expected cells below 1"),
        ({"refill": np.zeros(1, np.int64)}, "Placement.batch: found int64[1], expected int64[2] as refill"),
        ({"rate": lambda: 3}, "Batch.rate: returned int, expected Rates"),
        ({"rate": lambda: rates(2, 3)}, "Batch.rate: returned float64[2, 3], expected float64[2, 1]"),
        ({"rate": lambda: rates(3, 1)}, "Batch.rate: returned float64[3, 1], expected a row for each of 2 asks"),
        ({"take": lambda *_: Taken(details=())}, "Batch.take: returned 0 details, expected one for each of 2 pods"),
    ],
)
def test_answers_against_the_contract_name_the_plugin(monkeypatch, change, complaint):
    found = Licences.open

    def opened(self, session):
        answers = found(self, session)
        return [answers[0], attrs.evolve(answers[1], batch=attrs.evolve(answers[1].batch, **change))]

    monkeypatch.setattr(Licences, "open", opened)
    with pytest.raises(PluginError) as caught:
        decided(snapshot_of(*FEW), Licences())
    assert complaint in str(caught.value)
