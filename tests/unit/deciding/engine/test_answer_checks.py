"""Answers that kernels would read without looking, and what is no Exception: each is its plugin's failure."""

import attrs
import numpy as np
import pytest

from kai.basics.errors import ConfigError, PluginError
from kai.deciding.engine.host import Silent
from kai.deciding.engine.opened import open_plugins
from kai.framework import (
    Batches,
    Density,
    Domains,
    DomainTree,
    FairShares,
    Fragmentation,
    NodeFilter,
    PluginUse,
    QueueWeights,
    VictimProposals,
)
from kai.framework.terms import Availability
from kai.testing import session_view
from tests.unit.deciding.engine.outers import outer, scenario

VIEW = session_view({"n1": {"gpu": 1}}, {"g": {"each": {"gpu": 1}}})
NODES = np.arange(1)


@attrs.frozen
class Saying:
    extensions: object

    def open(self, session):
        return self.extensions


def opened(*extensions):
    return open_plugins([PluginUse(name="p0", plugin=Saying(extensions), origin="dist-0 1.0")], VIEW, Silent())


@pytest.mark.parametrize(
    ("term", "complaint"),
    [
        (Density(gpu_binpack=np.nan), "Density.gpu_binpack: found nan, expected a finite number"),
        (Availability(weight="much"), "Availability.weight: found 'much', expected a finite number"),
        (FairShares(*[np.zeros((1, 3))] * 4), "FairShares.fair_share: found float64[1, 3], expected float64[2, 3]"),
        (FairShares(*[np.full((2, 3), np.nan)] * 4), "FairShares.fair_share: found NaN, expected numbers"),
        (FairShares(*[None] * 4), "FairShares.fair_share: found NoneType, expected float64[2, 3]"),
        (
            FairShares(*[np.zeros((2, 3))] * 2, np.zeros(3), np.zeros((2, 3)), past_use=np.zeros(3)),
            "FairShares.past_use: found float64[3], expected float64[2]",
        ),
        (
            FairShares(*[np.zeros((2, 3))] * 2, np.zeros(3), np.zeros((2, 3)), divide="no"),
            "FairShares.divide: found str, expected a function",
        ),
        (QueueWeights(np.ones((1, 3))), "QueueWeights.factors: found float64[1, 3], expected float64[2, 3]"),
        (QueueWeights(np.full((2, 3), -1.0)), "QueueWeights.factors: found a negative or infinite number"),
        (QueueWeights(np.full((2, 3), np.inf)), "QueueWeights.factors: found a negative or infinite number"),
        (
            Fragmentation(
                shapes=np.zeros(1, np.int64),
                shares=np.ones(1),
                allowed=np.ones((1, 9), np.bool_),
                gpu_by_cpu=np.zeros(1),
                gpu_by_memory=np.zeros(1),
                pressure=np.zeros(1),
            ),
            "Fragmentation.allowed: found bool[1, 9], expected bool[1, 1]",
        ),
        (
            Fragmentation(
                shapes=np.array([9]),
                shares=np.ones(1),
                allowed=np.ones((1, 1), np.bool_),
                gpu_by_cpu=np.zeros(1),
                gpu_by_memory=np.zeros(1),
                pressure=np.zeros(1),
            ),
            "Fragmentation.shapes: found rows [9], expected rows below 1",
        ),
    ],
)
def test_an_invalid_score_term_fails_when_the_plugin_opens(term, complaint):
    with pytest.raises(PluginError) as caught:
        opened(term)
    assert str(caught.value).startswith(f'plugin "p0" (dist-0 1.0), open: {complaint}')


@pytest.mark.parametrize(
    ("made", "complaint"),
    [
        (lambda each: each.scenario(Batches.of([(5,)])), "a Scenario with the pod 5, expected pods of the outer one"),
        (lambda each: each.scenario([(0,)]), "list, expected Batches.of(...) in a Scenario"),
        (
            lambda each: each.scenario(Batches(np.zeros(1, np.int64), np.array([0, 9]))),
            "Batches, expected Batches.of(...) in a Scenario",
        ),
        (lambda _: scenario(7), "a Scenario for other pods than the outer one, expected what outer.scenario() makes"),
    ],
)
def test_a_proposal_beyond_its_outer_scenario_names_the_plugin(made, complaint):
    (plugin,) = opened(VictimProposals(lambda outers: map(made, outers)))
    with pytest.raises(PluginError) as caught:
        list(plugin.proposals.propose(iter([outer(VIEW, 1, (0,))])))
    assert str(caught.value) == f'plugin "p0" (dist-0 1.0), VictimProposals.propose: returned {complaint}'


def test_a_proposal_is_made_of_an_outer_scenario():
    (plugin,) = opened(VictimProposals(lambda _: [scenario(1)]))
    with pytest.raises(PluginError, match="returned a Scenario of its own, expected one of an outer Scenario"):
        list(plugin.proposals.propose(iter([outer(VIEW, 1)])))


def test_a_panic_in_a_plugin_becomes_its_plugin_error():
    class PanicError(BaseException):
        """As compiled libraries raise it: no Exception."""

        def __str__(self):
            raise ValueError("no words either")

    def panics(*_):
        raise PanicError

    def proposes(outers):
        yield from ()
        panics()

    (plugin,) = opened(NodeFilter(panics), VictimProposals(proposes))
    with pytest.raises(PluginError, match=r"NodeFilter\.filter: raised PanicError$"):
        plugin.node_filter.filter(0, NODES)
    with pytest.raises(PluginError, match=r"VictimProposals\.propose: raised PanicError$"):
        list(plugin.proposals.propose(iter(())))


def test_only_an_opening_plugin_tracks_an_integer_column():
    with pytest.raises(TypeError, match="track: found that plugins have opened, expected a call in open"):
        VIEW.track(np.zeros(3, np.int64))
    with pytest.raises(TypeError, match=r"track: found float64\[3\], expected int64"):
        VIEW.track(np.zeros(3))


RACKS = DomainTree(
    rows=np.array([0, 1, 3]),
    domains=np.array([3, 3, 4]),
    parents=np.array([-1, 0, 0, 1, 2]),
    start=(0, 1, 3, 5),
    coarsest=0,
    ordered=2,
    preferred=2,
    step=1.0,
)
FOUR = session_view({f"n{at}": {"gpu": 1} for at in range(4)}, {"g": {"each": {"gpu": 1}}})


def tree_of(made):
    """Return what a session of four nodes takes for the tree of domains of a plugin that answers ``made``."""
    extension = Domains(lambda *_: None, tree=lambda _: made)
    (plugin,) = open_plugins([PluginUse(name="p0", plugin=Saying((extension,)), origin="dist-0 1.0")], FOUR, Silent())
    return plugin.domains.tree(0)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"start": (0, 2, 3, 5)}, "start is not right: found (0, 2, 3, 5), expected rows that ascend from 0, 1"),
        ({"start": (0, 1, 1, 5)}, "start is not right: found (0, 1, 1, 5), expected rows that ascend from 0, 1"),
        ({"start": (0,)}, "start is not right: found (0,), expected rows that ascend from 0, 1"),
        ({"start": None}, "start is not right: found None, expected rows that ascend from 0, 1"),
        ({"rows": [0, 1, 3]}, "rows is not right: found list, expected int64[3]"),
        ({"rows": np.array([0, 1, 4])}, "rows is not right: found [0, 1, 4], expected rows below 4 that ascend"),
        ({"rows": np.array([0, 1, 1])}, "rows is not right: found [0, 1, 1], expected rows below 4 that ascend"),
        ({"domains": np.array([3, 3])}, "domains is not right: found int64[2], expected int64[3]"),
        ({"domains": np.array([3, 3, 5])}, "domains is not right: found [3, 3, 5], expected numbers below 5"),
        ({"domains": np.array([3, -1, 4])}, "domains is not right: found [3, -1, 4], expected numbers below 5"),
        ({"parents": np.zeros(5)}, "parents is not right: found float64[5], expected int64[5]"),
        (
            {"parents": np.array([-1, 0, 0, 0, 2])},
            "parents is not right: found [-1, 0, 0, 0, 2], expected -1, then domains that are one depth up",
        ),
        (
            {"parents": np.array([-1, 0, 0, 3, 2])},
            "parents is not right: found [-1, 0, 0, 3, 2], expected -1, then domains that are one depth up",
        ),
        ({"coarsest": 3}, "coarsest is not right: found 3, expected a depth from 0 to 2"),
        ({"ordered": 1.0}, "ordered is not right: found 1.0, expected a depth from -1 to 2"),
        ({"preferred": 3}, "preferred is not right: found 3, expected a depth from -1 to 2"),
        ({"step": np.nan}, "step is not right: found nan, expected a finite number"),
    ],
)
def test_a_malformed_domain_tree_is_a_plugin_error(changed, complaint):
    with pytest.raises(PluginError) as caught:
        tree_of(attrs.evolve(RACKS, **changed))
    assert str(caught.value) == f'plugin "p0" (dist-0 1.0), Domains.tree: returned a DomainTree whose {complaint}'


def test_a_sound_domain_tree_is_taken_as_is():
    for tree in (RACKS, attrs.evolve(RACKS, start=np.array(RACKS.start), preferred=-1), None):
        assert tree_of(tree) is tree


# --- Shares that are divided again ---------------------------------------------------------------------------------

NONE = np.zeros((2, 3))
SHARES = FairShares(fair_share=NONE, allocatable=NONE, total=np.zeros(3), requested=NONE)


def beside(*plugins):
    uses = [PluginUse(name=f"p{at}", plugin=Saying(each)) for at, each in enumerate(plugins)]
    return open_plugins(uses, VIEW, Silent())


def test_shares_are_divided_again_by_multiplied_weights():
    asked = []

    def divide(factors):
        asked.append(factors.tolist())
        return SHARES

    twice, half = (QueueWeights(np.full((2, 3), each)) for each in (6.0, 0.5))
    beside([twice], [attrs.evolve(SHARES, divide=divide)], [half])
    assert asked == [[[3.0] * 3] * 2]


def test_weights_that_nothing_divides_by_are_an_error():
    with pytest.raises(ConfigError, match="found p1 that changes weights of queues and p0 that divides without"):
        beside([SHARES], [QueueWeights(np.ones((2, 3)))])


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (None, "returned NoneType, expected FairShares"),
        (attrs.evolve(SHARES, total=NONE), "FairShares.total: found float64"),
    ],
)
def test_shares_that_are_divided_again_are_checked(answer, complaint):
    shares = attrs.evolve(SHARES, divide=lambda _: answer)
    with pytest.raises(PluginError, match=f'plugin "p0".*FairShares.divide: {complaint}'):
        beside([shares], [QueueWeights(np.ones((2, 3)))])
