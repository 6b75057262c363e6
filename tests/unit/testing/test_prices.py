"""What the questions to a plugin cost, by a clock that counts its readings."""

import itertools

import attrs
import numpy as np
import pytest

from kai.framework import Batch, NodeFilter, Placement, Taken
from kai.plugins.pod_topology_spread import PodTopologySpread
from kai.testing import Price, price_plugin, snapshot

MICROSECOND = 1e-6


@attrs.frozen(kw_only=True)
class Licences:
    """Give pods one of two licences of their node."""

    def open(self, session):
        """Begin with all licences free."""
        shapes, nodes = len(session.snapshot.shapes), len(session.nodes)
        used = session.track(np.zeros(nodes, np.int64))

        def take(pods, nodes):
            return Taken(details=["one"] * len(pods), changes=[(used, nodes, np.ones(len(nodes), np.int64))])

        batch = Batch(
            ask=np.zeros(shapes, np.int64),
            room=session.track(np.zeros((1, nodes), np.int64)),
            count=lambda: (2 - used.values)[np.newaxis],
            take=take,
        )
        return [
            NodeFilter(lambda _, nodes: used.values[nodes] < 2),
            Placement(choose=lambda _, __: "one", effects=lambda *_: (), batch=batch),
        ]


@pytest.fixture
def cluster():
    groups = {f"g{at}": {"each": {"gpu": 1}} for at in range(4)}
    return snapshot({"n1": {"gpu": 8}, "n2": {"gpu": 8}}, groups)


def ticking():
    """Return a clock that goes on by a microsecond at each look."""
    return map(MICROSECOND.__mul__, itertools.count()).__next__


def test_each_way_asks_its_own_questions(cluster):
    prices = price_plugin(Licences(), cluster, clock=ticking())
    asked = {(each.hook, each.in_batches): each.questions for each in prices}
    assert asked["open", True] == asked["open", False] == 1
    assert asked["Batch.take", True] == 1
    assert ("NodeFilter.filter", True) not in asked
    assert asked["NodeFilter.filter", False] == asked["Placement.choose", False] == 4
    assert ("Batch.take", False) not in asked


def test_a_price_is_the_time_between_two_looks(cluster):
    for price in price_plugin(Licences(), cluster, clock=ticking()):
        assert price.each == pytest.approx(1)
        assert price.microseconds == pytest.approx(price.questions)


def test_a_built_in_plugin_is_priced_in_its_place(cluster):
    assert [each.hook for each in price_plugin(PodTopologySpread(), cluster, clock=ticking())] == ["open", "open"]


def test_a_price_reads_as_one_line():
    price = Price(hook="NodeFilter.filter", in_batches=False, questions=4, microseconds=50)
    assert str(price) == "NodeFilter.filter, one by one: 4 questions, 12.5 us each"
    assert Price(hook="Batch.take", in_batches=True, questions=0, microseconds=0).each == 0
