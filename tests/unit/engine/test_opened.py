"""What plugins answer becomes what the engine asks, and each failure names its plugin."""

import attrs
import numpy as np
import pytest

from kai.engine.observe import Silent
from kai.engine.opened import open_plugins
from kai.errors import ConfigError, InputError, PluginError
from kai.framework import (
    Domains,
    GroupOrder,
    NodeFilter,
    NodeScore,
    NodeWait,
    Placement,
    PluginUse,
    PodFilter,
    PodOrder,
    VictimProposals,
    Victims,
)
from kai.framework.terms import Availability, Density, FairShares
from kai.testing import session_view

VIEW = session_view({"n1": {"gpu": 1}}, {"g": {"each": {"gpu": 1}}})
SOME, OTHERS = np.array([True]), np.array([False])


@attrs.frozen
class Saying:
    extensions: object

    def open(self, session):
        assert session is VIEW
        return self.extensions


def opened(*answers):
    uses = [
        PluginUse(name=f"p{at}", plugin=Saying(extensions), origin=f"dist-{at} 1.{at}")
        for at, extensions in enumerate(answers)
    ]
    return open_plugins(uses, VIEW, Silent())


def fails(*_):
    raise ZeroDivisionError("no rack")


def test_a_plugin_that_says_nothing_is_there_all_the_same():
    (plugin,) = opened(())
    assert (plugin.name, plugin.concerns, plugin.terms, plugin.node_filter) == ("p0", None, (), None)


def test_extensions_for_the_same_pods_stand_together_and_others_apart():
    first, second, third = opened(
        [
            NodeFilter(fails, concerns=SOME),
            Density(gpu_binpack=1.0),
            NodeScore(fails, concerns=SOME.copy()),
            PodFilter(fails, concerns=OTHERS),
            Availability(),
        ]
    )
    assert (first.node_filter is not None, first.node_score is not None, first.pod_filter) == (True, True, None)
    assert [type(term).__name__ for term in second.terms] == ["Density", "Availability"]
    assert third.pod_filter is not None
    assert (first.is_asked(0), second.is_asked(0), third.is_asked(0)) == (True, True, False)


@pytest.mark.parametrize(
    ("extension", "ask", "hook"),
    [
        (NodeFilter(fails), lambda plugin: plugin.node_filter.filter(0, []), "NodeFilter.filter"),
        (NodeFilter(fails, explain=fails), lambda plugin: plugin.node_filter.explain(0, []), "NodeFilter.explain"),
        (NodeScore(fails), lambda plugin: plugin.node_score.score(0, []), "NodeScore.score"),
        (NodeWait(fails), lambda plugin: plugin.node_wait.must_wait(0, []), "NodeWait.must_wait"),
        (PodFilter(fails), lambda plugin: plugin.pod_filter.admit(0), "PodFilter.admit"),
        (PodOrder(fails), lambda plugin: plugin.pod_order.keys([]), "PodOrder.keys"),
        (GroupOrder(fails), lambda plugin: plugin.group_order.keys([]), "GroupOrder.keys"),
        (Domains(fails, tree=fails), lambda plugin: plugin.domains.tree(0), "Domains.tree"),
        (Placement(choose=fails), lambda plugin: plugin.placement.choose(0, 0), "Placement.choose"),
        (Placement(effects=fails), lambda plugin: plugin.placement.effects(0, 0, None), "Placement.effects"),
        (Victims(accept=fails), lambda plugin: plugin.victims.accept(None, None), "Victims.accept"),
        (VictimProposals(fails), lambda plugin: list(plugin.proposals.propose([])), "VictimProposals.propose"),
    ],
)
def test_what_a_plugin_raises_names_the_plugin_its_package_and_what_it_was_asked(extension, ask, hook):
    (plugin,) = opened([extension])
    with pytest.raises(PluginError) as caught:
        ask(plugin)
    assert str(caught.value) == f'plugin "p0" (dist-0 1.0), {hook}: raised ZeroDivisionError: no rack'


def test_a_generator_that_fails_midway_names_the_plugin_too():
    def propose(outers):
        yield from outers
        fails()

    (plugin,) = opened([VictimProposals(propose)])
    scenarios = plugin.proposals.propose(iter([1, 2]))
    assert [next(scenarios), next(scenarios)] == [1, 2]
    with pytest.raises(PluginError, match=r"VictimProposals\.propose: raised ZeroDivisionError"):
        next(scenarios)


def test_errors_that_kai_raises_on_purpose_pass_as_they_are():
    def refuse(*_):
        raise InputError("node n1: found nothing")

    (plugin,) = opened([NodeFilter(refuse)])
    with pytest.raises(InputError, match="node n1"):
        plugin.node_filter.filter(0, [])


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (None, "returned NoneType, expected a sequence of extensions"),
        (NodeFilter(fails), "returned NodeFilter, expected a sequence of extensions"),
        ([1], "returned int among extensions"),
        ([PodFilter(fails), PodFilter(fails)], "returned two of PodFilter for the same pods"),
    ],
)
def test_what_is_no_extension_is_refused(answer, message):
    with pytest.raises(PluginError, match=rf'plugin "p0" \(dist-0 1.0\), open: {message}'):
        opened(answer)


def test_a_plugin_that_cannot_open_is_named():
    @attrs.frozen
    class Failing:
        def open(self, session):
            raise OSError("cannot reach my database")

    with pytest.raises(PluginError, match=r'plugin "x", open: raised OSError: cannot reach my database'):
        open_plugins([PluginUse(name="x", plugin=Failing())], VIEW, Silent())


NONE = np.zeros((0, 3))
SHARES = FairShares(fair_share=NONE, allocatable=NONE, total=np.zeros(3), requested=NONE)


@pytest.mark.parametrize(
    ("extension", "claim"),
    [
        (SHARES, "give the shares of queues"),
        (Placement(kind="licence", choose=fails), "keep the detail 'licence' of placements"),
        (Victims(may_reclaim=fails), "say who may reclaim"),
    ],
)
def test_two_plugins_that_claim_the_same_are_an_error(extension, claim):
    opened([extension])
    with pytest.raises(ConfigError, match=f"found p0 and p1 that both {claim}, expected one of them"):
        opened([extension], [extension])


@attrs.define
class Counting:
    """A stopwatch that writes down what is called within what."""

    asked: list = attrs.field(factory=list)

    def timed(self, plugin, hook, function):
        return self._noted(f"{plugin} {hook}", function)

    def paused(self, function):
        return self._noted("engine", function)

    def _noted(self, name, function):
        def ask(*args):
            self.asked.append(name)
            return function(*args)

        return ask


class Watching(Silent):
    def __init__(self, stopwatch):
        self.stopwatch = stopwatch


def test_a_stopwatch_is_put_around_each_function_of_a_plugin():
    stopwatch = Counting()
    use = PluginUse(name="p", plugin=Saying([PodFilter(lambda pod: pod), Density(gpu_binpack=1.0)]))
    (first,) = open_plugins([use], VIEW, Watching(stopwatch))
    assert first.pod_filter.admit(7) == 7
    assert stopwatch.asked == ["p open", "p PodFilter.admit"]


def test_a_proposal_is_timed_without_the_time_that_the_engine_needs_for_outer_scenarios():
    stopwatch = Counting()

    def propose(outers):
        for outer in outers:
            yield outer * 2

    use = PluginUse(name="p", plugin=Saying([VictimProposals(propose)]))
    (plugin,) = open_plugins([use], VIEW, Watching(stopwatch))
    assert list(plugin.proposals.propose(iter([1, 2]))) == [2, 4]
    assert stopwatch.asked[1:] == ["p VictimProposals.propose", "engine"] * 3


def test_without_a_stopwatch_a_plugin_is_asked_directly():
    def admit(pod):
        return pod

    (plugin,) = opened([PodFilter(admit)])
    assert plugin.pod_filter.admit.__wrapped__ is admit
