"""What plugins answer becomes what the engine asks, and each failure names its plugin."""

import attrs
import numpy as np
import pytest

from kai.basics.errors import ConfigError, InputError, PluginError
from kai.deciding.engine.answer_checks import _FUNCTIONS
from kai.deciding.engine.failing import Failures
from kai.deciding.engine.host import Silent
from kai.deciding.engine.opened import _PLACES, open_plugins
from kai.framework import (
    ACCEPTED,
    Cause,
    Density,
    Domains,
    Effect,
    FairShares,
    GroupOrder,
    NodeFilter,
    NodeScore,
    NodeWait,
    Partition,
    Placement,
    PluginUse,
    PodFilter,
    PodOrder,
    Quantities,
    Reason,
    Tracked,
    Verdict,
    VictimProposals,
    Victims,
)
from kai.framework.hooks import OnFailure
from kai.framework.terms import Availability
from kai.testing import session_view
from tests.unit.deciding.engine.outers import outer, scenario

LENT = []


@attrs.frozen
class Lending:
    """Keeps the columns that a session gives while plugins open."""

    def open(self, session):
        LENT[:] = session.track(np.zeros(3, np.int64)), session.engine_column("idle")
        return ()


VIEW = session_view({"n1": {"gpu": 1}}, {"g": {"each": {"gpu": 1}}}, plugins=(Lending(),))
SEATS, IDLE = LENT
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


class Items(dict):
    """A mapping that can be a key."""

    __hash__ = object.__hash__


class Several(list):
    """A sequence that can be a key."""

    __hash__ = object.__hash__

    def __init__(self, *items):
        super().__init__(items)


class Frozen(np.ndarray):
    """An array that can be a key."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __new__(cls, *shape):
        return np.zeros(shape, np.int64).view(cls)


ROW_AFTER_LAST, ROW_BEFORE_FIRST = Frozen(1), Frozen(1)
ROW_AFTER_LAST[:], ROW_BEFORE_FIRST[:] = 1, -1


def fails(*_):
    raise ZeroDivisionError("no rack")


def test_a_plugin_without_extensions_still_opens():
    (plugin,) = opened(())
    assert (plugin.name, plugin.concerns, plugin.terms, plugin.node_filter) == ("p0", None, (), None)


def test_extensions_with_equal_concerns_are_grouped():
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
def test_a_plugin_error_names_plugin_package_and_hook(extension, ask, hook):
    (plugin,) = opened([extension])
    with pytest.raises(PluginError) as caught:
        ask(plugin)
    assert str(caught.value) == f'plugin "p0" (dist-0 1.0), {hook}: raised ZeroDivisionError: no rack'


PODS, NODES, GROUPS, QUEUES = (np.arange(count) for count in (1, 1, 1, len(VIEW.snapshot.queues)))


@pytest.mark.parametrize(
    ("extension", "ask", "complaint"),
    [
        (
            NodeFilter,
            lambda plugin: plugin.node_filter.filter(0, NODES),
            {1: "NodeFilter.filter: returned int, expected bool[1]"},
        ),
        (
            lambda answer: NodeFilter(fails, explain=answer),
            lambda plugin: plugin.node_filter.explain(0, NODES),
            {
                None: "NodeFilter.explain: returned NoneType, expected a text for each of 1 nodes",
                "full": "NodeFilter.explain: returned str, expected a text for each of 1 nodes",
                (): "NodeFilter.explain: returned 0, expected a text for each of 1 nodes",
                ("full", "full"): "NodeFilter.explain: returned 2, expected a text for each of 1 nodes",
                (7,): "NodeFilter.explain: returned 7 among texts, expected a text for each of 1 nodes",
            },
        ),
        (
            PodFilter,
            lambda plugin: plugin.pod_filter.admit(0),
            {
                False: "PodFilter.admit: returned bool, expected a Verdict",
                Verdict(("full",)): "PodFilter.admit: returned str, expected Reasons in a Verdict",
                Verdict((Reason(code="Full"),)): (
                    "PodFilter.admit: returned the code 'Full', expected a Code or Words in a Verdict"
                ),
            },
        ),
        (
            NodeScore,
            lambda plugin: plugin.node_score.score(0, NODES),
            {np.inf: "NodeScore.score: returned float, expected float64[1]"},
        ),
        (
            PodOrder,
            lambda plugin: plugin.pod_order.keys(PODS),
            {
                None: "PodOrder.keys: returned NoneType, expected float64[1, k]",
                "first": "PodOrder.keys: returned str, expected float64[1, k]",
                (1, 2): "PodOrder.keys: returned tuple, expected float64[1, k]",
                (np.nan,): "PodOrder.keys: returned NaN for 1 of 1, expected keys that can be ordered",
            },
        ),
        (
            GroupOrder,
            lambda plugin: plugin.group_order.keys(GROUPS),
            {
                None: "GroupOrder.keys: returned NoneType, expected float64[1, k]",
                ("a",): "GroupOrder.keys: returned tuple, expected float64[1, k]",
                ((1.0, np.nan),): "GroupOrder.keys: returned NaN for 1 of 1, expected keys that can be ordered",
            },
        ),
        (
            Domains,
            lambda plugin: plugin.domains.partition(0, 0, PODS, NODES),
            {
                7: "Domains.partition: returned int, expected a Partition or None",
                Partition(parts=7): "Domains.partition: returned int, expected a sequence as parts of a Partition",
                Partition(parts=((0,),)): "Domains.partition: returned tuple, expected int64[n] as part of a Partition",
                Partition(parts=(ROW_AFTER_LAST,)): (
                    "Domains.partition: returned 1 as a node of a part, expected a row below 1"
                ),
                Partition(parts=(ROW_BEFORE_FIRST,)): (
                    "Domains.partition: returned -1 as a node of a part, expected a row below 1"
                ),
                Partition(scores=(1.0,)): (
                    "Domains.partition: returned tuple, expected float64[1] as scores of a Partition"
                ),
                Partition(verdict=False): "Domains.partition: returned bool, expected a Verdict of a Partition",
                Partition(verdict=Verdict((Reason(code="Full"),))): (
                    "Domains.partition: returned the code 'Full', expected a Code or Words in a Verdict of a Partition"
                ),
            },
        ),
        (
            lambda answer: Domains(fails, tree=answer),
            lambda plugin: plugin.domains.tree(0),
            {7: "Domains.tree: returned int, expected a DomainTree or None"},
        ),
        (
            lambda answer: Domains(fails, together=answer),
            lambda plugin: plugin.domains.together(0, 0),
            {7: "Domains.together: returned int, expected a Together or None"},
        ),
        (
            lambda answer: Placement(choose=answer),
            lambda plugin: plugin.placement.choose(0, 0),
            {
                True: "Placement.choose: returned bool, expected a detail, or None to refuse the node",
                Frozen(2): "Placement.choose: returned int64[2], expected a detail, or None to refuse the node",
                np.nan: "Placement.choose: returned nan, expected a detail that is equal to itself",
            },
        ),
        (
            lambda answer: Placement(recorded=answer),
            lambda plugin: plugin.placement.recorded(0),
            {Frozen(2): "Placement.recorded: returned int64[2], expected a detail, or None to refuse the node"},
        ),
        (
            lambda answer: Placement(effects=answer),
            lambda plugin: plugin.placement.effects(0, 0, "here"),
            {
                None: "Placement.effects: returned NoneType, expected a sequence of Effects",
                (1,): "Placement.effects: returned int, expected Effects",
                Several(Effect("idle", 0, 1)): (
                    "Placement.effects: returned str, expected a column of the session as column of an Effect"
                ),
                Several(Effect(SEATS, 3, 1)): "Placement.effects: returned an Effect on cell 3, expected one below 3",
                Several(Effect(SEATS, 0, 1), Effect(SEATS, -1, 1)): (
                    "Placement.effects: returned an Effect on cell -1, expected one below 3"
                ),
                Several(Effect(IDLE, 4, 1)): "Placement.effects: returned an Effect on cell 4, expected one below 4",
                Several(
                    Effect(SEATS, 0.0, 1)
                ): "Placement.effects: returned an Effect on cell 0.0, expected one below 3",
                Several(Effect(Tracked(np.zeros(3, np.int64)), 0, 1)): (
                    "Placement.effects: returned an Effect on a column of no plugin or of an earlier session, expected"
                    " one of this session"
                ),
                Several(Effect(SEATS, 0, 2**63)): (
                    f"Placement.effects: returned an Effect of {2**63}, expected a whole number"
                ),
                Several(Effect(SEATS, 0, 0.5)): "Placement.effects: returned an Effect of 0.5, expected a whole number",
            },
        ),
        (
            lambda answer: Placement(lasting_effects=answer),
            lambda plugin: plugin.placement.lasting_effects(0, 0, "here"),
            {7: "Placement.lasting_effects: returned int, expected a sequence of Effects"},
        ),
        (
            lambda answer: Placement(encode=answer),
            lambda plugin: plugin.placement.encode(0, 0, "here"),
            {
                "zone": "Placement.encode: returned str, expected a mapping of fields",
                Items({7: "a"}): "Placement.encode: returned 7 as a field, expected a text",
                Items(zone={"at": {7: "a"}}): "Placement.encode: returned 7 as a field of zone.at, expected a text",
                Items(zones=["a", {"b"}]): (
                    "Placement.encode: returned set, expected a value as JSON has it as zones[1]"
                ),
                Items(zone=NODES): "Placement.encode: returned int64[1], expected a value as JSON has it as zone",
                Items(share=np.inf): "Placement.encode: returned inf as share, expected a finite number",
            },
        ),
        (
            lambda answer: Placement(credit=answer),
            lambda plugin: plugin.placement.credit(0, NODES),
            {
                7: "Placement.credit: returned int, expected int64[2, 1]",
                Frozen(1): "Placement.credit: returned int64[1], expected int64[2, 1]",
            },
        ),
        (
            lambda answer: Placement(report=answer),
            lambda plugin: plugin.placement.report(),
            {
                None: "Placement.report: returned NoneType, expected a mapping by node row",
                Items(n1={}): "Placement.report: returned 'n1' as a node, expected a row below 1",
                Items({1: {}}): "Placement.report: returned 1 as a node, expected a row below 1",
                Items({0: "full"}): "Placement.report: returned str, expected a mapping of fields for each node",
            },
        ),
        (
            lambda answer: Victims(queues=answer),
            lambda plugin: plugin.victims.queues(0, Cause.RECLAIM),
            {True: f"Victims.queues: returned bool, expected bool[{len(QUEUES)}] or None"},
        ),
        (
            lambda answer: Victims(groups=answer),
            lambda plugin: plugin.victims.groups(0, GROUPS, Cause.RECLAIM),
            {None: "Victims.groups: returned NoneType, expected bool[1]"},
        ),
        (
            lambda answer: Victims(hopeless=answer),
            lambda plugin: plugin.victims.hopeless(0, PODS, GROUPS, Cause.RECLAIM),
            {None: "Victims.hopeless: returned NoneType, expected a bool"},
        ),
        (
            lambda answer: Victims(accept=answer),
            lambda plugin: plugin.victims.accept(scenario(0), Cause.RECLAIM),
            {True: "Victims.accept: returned bool, expected a Verdict"},
        ),
        (
            lambda answer: Victims(may_reclaim=answer),
            lambda plugin: plugin.victims.may_reclaim(0, np.zeros(3)),
            {None: "Victims.may_reclaim: returned NoneType, expected a Verdict"},
        ),
        (
            VictimProposals,
            lambda plugin: list(plugin.proposals.propose(iter(()))),
            {
                None: "VictimProposals.propose: returned NoneType, expected an iterator of Scenarios",
                (7,): "VictimProposals.propose: returned int, expected Scenarios",
            },
        ),
    ],
)
def test_the_error_for_none_names_plugin_and_remedy(extension, ask, complaint):
    for answer, message in complaint.items():
        (plugin,) = opened([extension(lambda *_, answer=answer: answer)])
        with pytest.raises(PluginError) as caught:
            ask(plugin)
        assert str(caught.value) == f'plugin "p0" (dist-0 1.0), {message}'


@pytest.mark.parametrize(
    ("extension", "complaint"),
    [
        (NodeScore(None), "NodeScore.score: found NoneType, expected a function"),
        (NodeFilter(fails, explain="full"), "NodeFilter.explain: found str, expected a function"),
        (NodeFilter(fails, depends="shape"), "NodeFilter.depends: found str, expected a Dependence"),
        (NodeFilter(fails, signatures="ab"), "NodeFilter.signatures: found str, expected a text for each of 1 shapes"),
        (
            NodeFilter(fails, signatures=[7]),
            "NodeFilter.signatures: found 7 among texts, expected a text for each of 1",
        ),
        (PodFilter(fails, concerns=np.ones(2, np.bool_)), "PodFilter.concerns: found bool[2], expected bool[1]"),
        (NodeWait(fails, concerns=[True]), "NodeWait.concerns: found list, expected bool[1]"),
        (Domains(fails, groups=np.ones(1)), "Domains.groups: found float64[1], expected bool[1]"),
        (Victims(groups=np.ones(1, np.bool_)), "Victims.groups: found bool[1], expected a function"),
        (Placement(report={}), "Placement.report: found dict, expected a function"),
        (VictimProposals(()), "VictimProposals.propose: found tuple, expected a function"),
    ],
)
def test_an_unusable_extension_field_fails_when_the_plugin_opens(extension, complaint):
    with pytest.raises(PluginError) as caught:
        opened([extension])
    assert str(caught.value).startswith(f'plugin "p0" (dist-0 1.0), open: {complaint}')


def test_every_callable_field_of_extensions_is_checked():
    fields = [field for cls in _PLACES for field in attrs.fields(cls)]
    found = {
        field.name for field in fields if any(word in str(field.type) for word in ("Callable", "Nodes", "Propose"))
    }
    assert found | {"must_wait", "groups"} == _FUNCTIONS


@pytest.mark.parametrize(
    ("error", "text"),
    [(SystemExit(3), "SystemExit: 3"), (MemoryError(), "MemoryError"), (OSError("a\nb"), "OSError: a b")],
)
def test_any_exception_of_a_plugin_becomes_one_line(error, text):
    def leave(*_):
        raise error

    (plugin,) = opened([NodeFilter(leave), VictimProposals(leave)])
    for ask in (lambda: plugin.node_filter.filter(0, NODES), lambda: list(plugin.proposals.propose(iter(())))):
        with pytest.raises(PluginError) as caught:
            ask()
        assert str(caught.value).endswith(f": raised {text}")


def test_corrections_of_a_placement_are_checked_at_opening():
    with pytest.raises(PluginError) as caught:
        opened([Placement(corrections=(Effect(SEATS, 3, 1),))])
    complaint = "Placement.corrections: returned an Effect on cell 3, expected one below 3"
    assert str(caught.value) == f'plugin "p0" (dist-0 1.0), {complaint}'


def test_valid_placement_answers_pass_unchanged():
    zone = {"zones": [{"zone": "0", "share": 0.5, "amount": Quantities((("cpu", 1),))}], "strict": True, "why": None}
    effects, credit = [Effect(SEATS, np.int64(2), np.int64(-1)), Effect(IDLE, 3, 1)], np.zeros((2, 1), np.int64)
    (plugin,) = opened(
        [
            Placement(
                choose=lambda *_: "blue", effects=lambda *_: effects, encode=lambda *_: zone, credit=lambda *_: credit
            )
        ]
    )
    found = plugin.placement
    assert (found.choose(0, 0), found.effects(0, 0, "blue"), found.encode(0, 0, "blue")) == ("blue", effects, zone)
    assert found.credit(0, NODES) is credit


def test_a_failing_hook_has_a_stand_in_for_none():
    failing = {"Victims.groups": OnFailure.REFUSE, "NodeScore.score": OnFailure.LEAVE_OUT}
    answers = [Victims(groups=lambda *_: None), NodeScore(lambda _, nodes: np.full(len(nodes), np.inf))]
    use = PluginUse(name="p", plugin=Saying(answers), failing=failing)
    failures = Failures()
    (plugin,) = open_plugins([use], VIEW, Silent(), failures)
    assert plugin.victims.groups(0, GROUPS, Cause.RECLAIM).tolist() == [False]
    assert plugin.node_score.score(0, NODES).tolist() == [0.0]
    assert [each.hook for each in failures.found.values()] == ["Victims.groups", "NodeScore.score"]


def test_a_generator_that_fails_midway_names_the_plugin_too():
    def propose(outers):
        yield from (each.scenario() for each in outers)
        fails()

    (plugin,) = opened([VictimProposals(propose)])
    scenarios = plugin.proposals.propose(iter([outer(VIEW, 1), outer(VIEW, 2)]))
    assert [next(scenarios).waiting, next(scenarios).waiting] == [(1,), (2,)]
    with pytest.raises(PluginError, match=r"VictimProposals\.propose: raised ZeroDivisionError"):
        next(scenarios)


def test_deliberate_kai_errors_pass_through_plugins_unchanged():
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


NONE = np.zeros((2, 3))
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


def test_a_stopwatch_times_each_plugin_function():
    stopwatch = Counting()
    use = PluginUse(name="p", plugin=Saying([PodFilter(lambda _: ACCEPTED), Density(gpu_binpack=1.0)]))
    (first,) = open_plugins([use], VIEW, Watching(stopwatch))
    assert first.pod_filter.admit(7) is ACCEPTED
    assert stopwatch.asked == ["p open", "p PodFilter.admit"]


def test_proposal_time_excludes_the_engines_time_for_outers():
    stopwatch = Counting()

    def propose(outers):
        for each in outers:
            yield each.scenario()

    use = PluginUse(name="p", plugin=Saying([VictimProposals(propose)]))
    (plugin,) = open_plugins([use], VIEW, Watching(stopwatch))
    assert [each.waiting for each in plugin.proposals.propose(iter([outer(VIEW, 1), outer(VIEW, 2)]))] == [(1,), (2,)]
    assert stopwatch.asked[1:] == ["p VictimProposals.propose", "engine"] * 3


def test_without_a_stopwatch_a_plugin_is_asked_directly():
    def admit(_pod):
        return ACCEPTED

    (plugin,) = opened([PodFilter(admit)])
    assert plugin.pod_filter.admit.__wrapped__ is admit


@pytest.mark.parametrize("raises", [False, True])
def test_rows_that_a_plugin_overwrites_are_restored_with_error(raises):
    def overwrites(pod, nodes):
        nodes[0] = 77
        if raises:
            raise KeyError("rack")
        return np.zeros(len(nodes))

    (plugin,) = opened([NodeScore(overwrites)])
    nodes = np.arange(3)
    with pytest.raises(PluginError) as caught:
        plugin.node_score.score(0, nodes)
    assert nodes.tolist() == [0, 1, 2]
    wrong = "raised KeyError: 'rack'" if raises else "wrote to the rows that it was asked about, expected a plugin "
    assert f'plugin "p0" (dist-0 1.0), NodeScore.score: {wrong}' in str(caught.value)
