"""Each law, and a plugin that breaks it."""

import attrs
import numpy as np
import pytest

from kai.basics.errors import ConfigError
from kai.deciding.configuration.registry import Registry
from kai.framework import (
    Density,
    Dependence,
    Effect,
    GroupOrder,
    NodeFilter,
    NodeScore,
    Placement,
    PodFilter,
    PodOrder,
    Verdict,
    VictimProposals,
    Victims,
    Words,
)
from kai.testing import BrokenLaw, check_plugin

INSTALLED = Registry.installed()


@pytest.fixture(autouse=True)
def no_seconds(monkeypatch):
    """Let time stand still: a busy machine is no law that a plugin breaks. The tests about time bring their own."""
    monkeypatch.setattr("kai.testing.answer_laws.clock", lambda: 0.0)


@pytest.mark.parametrize("name", INSTALLED.plugins)
def test_built_in_plugins_keep_the_laws(name):
    check_plugin(INSTALLED.plugin(name, "here"))


@attrs.frozen
class Good:
    weight: float = 1.0

    def open(self, session):
        first = session.label_codes("topology.kubernetes.io/rack")
        return (
            NodeFilter(lambda _, nodes: first[nodes] >= 0),
            NodeScore(lambda _, nodes: first[nodes] * self.weight),
            PodOrder(lambda rows: rows.astype(np.float64)),
        )


def test_a_custom_plugin_checks_with_options_and_clusters():
    check_plugin(
        Good, weight=2.0, clusters={"mine": {"nodes": {"m": {"gpu": 3}}, "groups": {"g": {"each": {"gpu": 1}}}}}
    )


def test_options_that_it_does_not_have_are_refused():
    with pytest.raises(ConfigError, match="wieght"):
        check_plugin(Good, wieght=2.0)


def scoring(answer, **more):
    @attrs.frozen
    class Scoring:
        def open(self, session):
            return [NodeScore(lambda pod, nodes: answer(session, pod, nodes), **more)]

    return Scoring


def filtering(answer):
    @attrs.frozen
    class Filtering:
        def open(self, session):
            return [NodeFilter(lambda pod, nodes: answer(session, pod, nodes))]

    return Filtering


def counting():
    count = [0]

    def answer(session, pod, nodes):
        count[0] += 1
        return np.full(len(nodes), float(count[0]))

    return answer


def writing(session, pod, nodes):
    session._world.columns.idle[0, 0] += 1  # past the view, which shows nothing that can be written
    return np.zeros(len(nodes))


@pytest.mark.parametrize(
    ("plugin", "law"),
    [
        (scoring(counting()), "NodeScore gives the same answer twice"),
        (scoring(lambda _, __, nodes: np.arange(len(nodes), dtype=float)), "does not depend on the order of nodes"),
        (scoring(lambda _, __, nodes: np.full(len(nodes), float(len(nodes)))), "rates each node by itself"),
        (scoring(lambda _, __, nodes: np.full(len(nodes), np.inf)), "scores are finite"),
        (scoring(lambda _, __, nodes: np.zeros(len(nodes), np.int64)), r"NodeScore returns float64\[5\]"),
        (scoring(lambda _, __, nodes: np.zeros(len(nodes) + 1)), r"NodeScore returns float64\[5\]"),
        (scoring(lambda _, __, nodes: [0.0] * len(nodes)), r"NodeScore returns float64\[5\]: .* found list"),
        (filtering(lambda _, __, nodes: np.zeros(len(nodes))), r"NodeFilter returns bool\[5\]"),
        (scoring(writing), "a plugin writes nothing"),
    ],
)
def test_a_hook_that_breaks_a_law_is_named(plugin, law):
    with pytest.raises(BrokenLaw, match=law):
        check_plugin(plugin)


def keyed(extension):
    @attrs.frozen
    class Keyed:
        def open(self, session):
            return [extension]

    return Keyed


@pytest.mark.parametrize(
    ("extension", "law"),
    [
        (GroupOrder(lambda rows: np.full((len(rows), 1), np.nan)), "keys of GroupOrder are finite"),
        (GroupOrder(lambda rows: np.zeros((len(rows), 1), np.int64)), r"GroupOrder returns float64\[3, k\]"),
        (PodOrder(lambda rows: np.zeros((len(rows) + 1, 1))), r"PodOrder returns float64"),
    ],
)
def test_keys_must_be_finite_numbers(extension, law):
    with pytest.raises(BrokenLaw, match=law):
        check_plugin(keyed(extension))


def test_a_plugin_that_remembers_between_cycles_is_caught():
    class Remembering:
        pass

    @attrs.define
    class Changing:
        seen: int = 0

        def open(self, session):
            return ()

    with pytest.raises(BrokenLaw, match="a plugin is frozen"):
        check_plugin(Changing)
    with pytest.raises(BrokenLaw, match="a plugin is an attrs class"):
        check_plugin(Remembering)


def test_a_plugin_must_open():
    @attrs.frozen
    class Closed:
        pass

    with pytest.raises(BrokenLaw, match="a plugin has a method open"):
        check_plugin(Closed)


def test_options_with_types_that_nobody_knows_are_caught():
    @attrs.frozen
    class Mystery:
        option: "NoSuchType" = None  # noqa: F821 - that is the point

        def open(self, session):
            return ()

    with pytest.raises(BrokenLaw, match="types of a plugin's options can be resolved"):
        check_plugin(Mystery)


def test_effects_that_are_not_linear_are_caught():
    @attrs.frozen
    class Forgetful:
        def open(self, session):
            column = session.track(np.zeros(1, np.int64))
            asked = [0]

            def effects(pod, node, detail):
                asked[0] += 1
                return (Effect(column, 0, asked[0]),)

            return [Placement(effects=effects)]

    with pytest.raises(BrokenLaw, match="what a placement adds, an eviction takes away"):
        check_plugin(Forgetful)


def test_effects_that_are_linear_are_fine():
    @attrs.frozen
    class Counting:
        def open(self, session):
            column = session.track(np.zeros(len(session.nodes), np.int64))
            return (
                Placement(effects=lambda _, node, __: (Effect(column, int(node), 3),)),
                NodeFilter(lambda _, nodes: column.values[nodes] < 100),
            )

    check_plugin(Counting)


def test_a_promised_pod_keeps_its_placements_effects():
    """Nodes where a pod must wait are preferred here: no eviction takes such a place away."""

    @attrs.frozen
    class Spreading:
        def open(self, session):
            column = session.track(np.zeros(1, np.int64))
            return (Placement(effects=lambda *_: (Effect(column, 0, 1),)), Density(gpu_spread=0.5))

    check_plugin(Spreading)


def test_order_dependent_decisions_are_caught():
    calls = [0]

    @attrs.frozen
    class Fickle:
        def open(self, session):
            calls[0] += 1
            # Four sessions ask for answers before the two cycles that must agree.
            sign = 1.0 if calls[0] % 2 else -1.0
            first = session.nodes[0] if len(session.nodes) else 0
            return [NodeScore(lambda _, nodes: np.where(nodes == first, sign * 1e9, 0.0))]

    with pytest.raises(BrokenLaw):
        check_plugin(Fickle)


def raising(session, pod, nodes):
    raise KeyError("gpu-77")


def opening(open_):
    @attrs.frozen
    class Opening:
        def open(self, session):
            return open_(session)

    return Opening


def writes_past_the_view(session):
    session._world.columns.idle[:] = 0
    return []


def writes(session):
    session.columns.idle[:] = 0
    return []


def labels_a_node(session):
    session.snapshot.nodes[0].labels["mine"] = "yes"
    return []


def lowers_a_depth(session):
    session.parameters.queue_depth["allocate"] = 0
    return []


def leaving(*_):
    raise SystemExit(3)


def failing(*_):
    raise KeyError("gpu-77")


def in_a_library(*_):
    return Dependence.NOTHING


def refusing(text):
    words = Words(code="Full", text=text)
    return opening(lambda _: [PodFilter(lambda _: Verdict.refused(words, rack="a"))])


def unreachable(session):
    raise ConnectionError("cannot reach my database")


@pytest.mark.parametrize(
    ("plugin", "law"),
    [
        (opening(writes), r"a plugin writes nothing: .* raised ValueError: .*read-only \(test_laws.py, line \d+\)"),
        (opening(writes_past_the_view), "a plugin writes nothing: Opening.open changed the session on cluster 'racks'"),
        (
            opening(labels_a_node),
            "a plugin writes nothing: Opening changed the nodes of the session on cluster 'racks'",
        ),
        (opening(lowers_a_depth), "a plugin writes nothing: Opening changed the parameters of the session"),
        (opening(unreachable), "open answers and raises nothing: .* raised ConnectionError: cannot reach my database"),
        (opening(lambda _: None), "open returns what its extension point says: .* returned NoneType, expected a seq"),
        (opening(lambda _: "NodeScore"), "open returns what its extension point says: .* returned str"),
        (opening(lambda _: [3]), "open returns what its extension point says: .* returned int among extensions"),
        (opening(lambda _: [NodeScore(scores=1)]), "open answers and raises nothing: .* raised TypeError"),
        (opening(lambda _: [PodFilter(lambda _: False)]), "PodFilter.admit returns a Verdict: .* found bool False"),
        (scoring(raising), "NodeScore answers and raises nothing: .* raised KeyError: 'gpu-77'"),
        (scoring(lambda _, __, nodes: np.full(len(nodes), np.nan)), "scores leave nodes to choose from"),
        (
            scoring(lambda _, __, nodes: nodes.sort() or nodes.fill(0)),
            "a plugin writes nothing: NodeScore wrote to the",
        ),
        (scoring(in_a_library), r"raised AttributeError: .*NOTHING'? \(test_laws.py, line \d+\)$"),
        (opening(lambda _: [NodeScore(lambda pod: pod)]), r"raised TypeError: .* but 2 were given$"),
        (filtering(raising), "NodeFilter answers and raises nothing: .* raised KeyError"),
        (
            opening(lambda _: [NodeFilter(lambda _, nodes: nodes < 0, explain=lambda _, __: "all full")]),
            "NodeFilter.explain returns a text for each of 5 nodes: .* found str 'all full'",
        ),
        (opening(lambda _: [GroupOrder(lambda rows: rows / 0)]), "keys of GroupOrder are finite"),
        (opening(lambda _: [GroupOrder(lambda rows: rows["a"])]), "GroupOrder.keys answers and raises nothing"),
        (scoring(leaving), "NodeScore answers and raises nothing: .* raised SystemExit: 3"),
        (opening(lambda _: [Victims(queues=failing)]), "Victims.queues answers and raises nothing: .* 'contended'"),
        (opening(lambda _: [Victims(groups=lambda *_: None)]), "Victims.groups returns what its .* 'contended'"),
        (opening(lambda _: [Victims(hopeless=failing)]), "Victims.hopeless answers and raises nothing: .* 'contended'"),
        (opening(lambda _: [Victims(before_search=failing)]), "Victims.before_search answers and raises nothing"),
        (opening(lambda _: [Victims(accept=lambda *_: True)]), "Victims.accept returns what its .* 'contended'"),
        (opening(lambda _: [VictimProposals(failing)]), "VictimProposals.propose answers and raises .* 'contended'"),
        (refusing(lambda facts: facts["row"]), "Words.text of Full answers and raises nothing: .* raised KeyError"),
        (refusing(lambda _: 7), "Words.text of Full returns a text: on cluster 'racks' found int 7"),
    ],
)
@pytest.mark.filterwarnings("ignore:(divide|invalid)")
def test_each_wrong_plugin_breaks_a_named_law(plugin, law):
    with pytest.raises(BrokenLaw, match=law):
        check_plugin(plugin)


def test_nan_for_some_nodes_takes_them_out(monkeypatch):
    def first_only(session, pod, nodes):
        return np.where(nodes == 0, 1.0, np.nan)

    check_plugin(scoring(first_only))


def test_an_answer_that_is_slow_each_time_is_caught(monkeypatch):
    time = [0.0]
    monkeypatch.setattr("kai.testing.answer_laws.clock", lambda: time[0])

    def slow(session, pod, nodes):
        time[0] += 0.2
        return np.zeros(len(nodes))

    def opens_slowly(session):
        time[0] += 0.15
        return []

    with pytest.raises(BrokenLaw, match=r"NodeScore answers in less than 100 ms: .* took 200 ms at its fastest"):
        check_plugin(scoring(slow))
    with pytest.raises(BrokenLaw, match=r"Opening\.open answers in less than 100 ms: .* took 150 ms"):
        check_plugin(opening(opens_slowly))


def test_an_answer_that_is_slow_once_compiles(monkeypatch):
    time, asked = [0.0], []
    monkeypatch.setattr("kai.testing.answer_laws.clock", lambda: time[0])

    def compiles(session, pod, nodes):
        time[0] += 0 if asked else 9
        asked.append(pod)
        return np.zeros(len(nodes))

    check_plugin(scoring(compiles))
