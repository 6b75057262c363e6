"""A plugin that fails at everything costs few cycles and no innocent group, and what it protects stays protected."""

import attrs
import pytest

from kai.basics.errors import PluginError
from kai.deciding.engine.failing import PluginFailure
from kai.framework.decisions import Bind, Evict
from kai.framework.hooks import (
    Domains,
    GroupOrder,
    NodeFilter,
    NodeScore,
    OnFailure,
    Placement,
    PluginUse,
    PodFilter,
    PodOrder,
    Victims,
)
from kai.roles.scheduler.cycle.cycling import Done, Failure
from kai.roles.scheduler.cycle.faults import Faults
from tests.unit.roles.scheduler import test_aside

MANY = {f"g{number:02}": {"members": 1, "each": {"gpu": 1}} for number in range(40)}
NODES = 8


def fails(*_):
    raise KeyError("rack")


@attrs.frozen
class Broken:
    """A plugin whose answers fail at all groups, or at those whose names it is given."""

    extension: object
    hook: str = "broken"

    def open(self, session):
        return [self.extension] if self.extension is not None else fails()


def settled(extension, *, on_failure=None, groups=None):
    """Run cycles until none is to follow; return them, and the rig."""
    made = test_aside.rig(Broken(extension), groups=MANY if groups is None else groups)
    *others, use = made.cycles.profile.plugins
    use = attrs.evolve(use, on_failure=on_failure, origin="kai-racks 0.2.0")
    made.cycles.profile = attrs.evolve(made.cycles.profile, plugins=(*others, use))
    return made, made.settle()


PROTECTING = {
    "NodeFilter.filter": NodeFilter(fails),
    "PodFilter.admit": PodFilter(fails),
    "Domains.partition": Domains(fails),
    "Placement.choose": Placement(kind="odd", choose=fails),
}
PREFERRING = {
    "NodeScore.score": NodeScore(fails),
    "PodOrder.keys": PodOrder(fails),
    "GroupOrder.keys": GroupOrder(fails),
}


def bound(made):
    return sum(isinstance(each, Bind) for each in made.taken)


@pytest.mark.parametrize("hook", PROTECTING)
def test_a_protecting_plugin_that_always_fails_blames_no_group(hook):
    made, outcomes = settled(PROTECTING[hook])
    assert len(outcomes) <= 4
    assert all(isinstance(each, Failure) for each in outcomes[:-1])
    done = outcomes[-1]
    assert isinstance(done, Done)
    assert bound(made) == 0
    assert not made.cycles.inquiry.left_out
    (fault,) = made.cycles.faults.fresh
    assert (fault.plugin, fault.origin, fault.hook) == ("raising-broken", "kai-racks 0.2.0", hook)
    assert fault.reaction is OnFailure.REFUSE
    texts = {each.name: each.condition.message for each in done.overall.groups}
    assert len(texts) == len(MANY)
    assert all('plugin "raising-broken" (kai-racks 0.2.0)' in text and "KeyError" in text for text in texts.values())
    assert len(made.settle()) == 1, "cycles that follow are not repeated"


@pytest.mark.parametrize("hook", PREFERRING)
def test_what_prefers_and_fails_everywhere_is_left_out(hook):
    made, outcomes = settled(PREFERRING[hook])
    assert len(outcomes) <= 4
    assert bound(made) == NODES
    assert not made.cycles.inquiry.left_out
    assert [each.reaction for each in made.cycles.faults.fresh] == [OnFailure.LEAVE_OUT]


def test_groups_that_break_no_filter_are_bound():
    def filter_nodes(pod, nodes):
        if pod % 2:
            raise KeyError("rack")
        return nodes >= 0

    made, outcomes = settled(NodeFilter(filter_nodes))
    assert len(outcomes) <= 4
    assert bound(made) == NODES
    assert all(each.pod % 2 == 0 for each in made.taken)


def test_a_plugin_that_fails_at_three_groups_is_blamed():
    def failing_at(*names):
        class Picky(Broken):
            def open(self, session):
                def filter_nodes(pod, nodes):
                    if session.snapshot.pods[pod].name.removesuffix("-0") in names:
                        fails()
                    return nodes >= 0

                return [NodeFilter(filter_nodes)]

        made = test_aside.rig(Picky(None), groups=MANY)
        made.settle()
        return made

    assert len(failing_at("g00", "g01").cycles.inquiry.records) == 2
    three = failing_at("g00", "g01", "g02")
    assert not three.cycles.inquiry.records
    assert bound(three) == NODES


@pytest.mark.parametrize(
    ("wanted", "extension", "binds"),
    [
        (OnFailure.LEAVE_OUT, NodeFilter(fails), NODES),
        (OnFailure.REFUSE, NodeScore(fails), 0),
        (OnFailure.LEAVE_OUT, PodFilter(fails), NODES),
        (OnFailure.LEAVE_OUT, None, NODES),
    ],
)
def test_the_configuration_may_choose_otherwise(wanted, extension, binds):
    made, outcomes = settled(extension, on_failure=wanted)
    assert len(outcomes) <= 4
    assert isinstance(outcomes[-1], Done)
    assert bound(made) == binds


@pytest.mark.parametrize("extension", [NodeFilter(fails), NodeScore(fails), None])
def test_a_plugin_set_to_stop_stops_cycles_immediately(extension):
    made, outcomes = settled(extension, on_failure=OnFailure.STOP)
    (failure,) = outcomes
    assert (type(failure), failure.again) == (Failure, False)
    assert not made.cycles.inquiry.left_out
    assert "KeyError" in made.cycles.faults.problem


@pytest.mark.parametrize("extension", [Placement(kind="odd", choose=lambda *_: 1, effects=fails), None])
def test_cycles_stop_soon_where_no_answer_is_safe(extension):
    made, outcomes = settled(extension)
    assert len(outcomes) <= 10
    assert (type(outcomes[-1]), outcomes[-1].again) == (Failure, False)
    assert not made.cycles.inquiry.left_out
    assert len(made.settle()) <= 6


def test_an_answer_of_wrong_form_is_a_failure():
    made, outcomes = settled(NodeScore(lambda *_: [0.0]))
    assert len(outcomes) <= 4
    assert bound(made) == NODES


CONTENDED = {
    "runs": {"members": 8, "minimum": 1, "each": {"gpu": 1}, "runs_on": ["n"] * 8},
    "wants": {"members": 2, "minimum": 2, "each": {"gpu": 1}, "priority": 75},
}


@pytest.mark.parametrize(
    "extension",
    [Victims(groups=fails), Victims(queues=fails), Victims(hopeless=fails), Victims(accept=fails)],
    ids=lambda each: str([field.name for field in attrs.fields(Victims) if callable(getattr(each, field.name))]),
)
def test_a_failing_victim_rule_prevents_every_eviction(extension):
    made, outcomes = settled(extension, groups=CONTENDED)
    assert isinstance(outcomes[-1], Done)
    assert not made.taken


def test_without_such_a_rule_pods_would_be_evicted():
    made, _ = settled(Victims(groups=lambda _, groups, __: groups >= 0), groups=CONTENDED)
    assert sum(isinstance(each, Evict) for each in made.taken) == 2


FAULT = PluginError("raised KeyError: 'rack'", plugin="p", hook="NodeFilter.filter")


class Profile:
    plugins = (PluginUse(name="p", plugin=Broken(None)),)


def test_a_plugin_is_trusted_again_after_a_quiet_minute():
    faults = Faults()
    assert faults.judge(FAULT, Profile, 2, 0.0) is None
    assert faults.judge(FAULT, Profile, 3, 0.0) is OnFailure.REFUSE
    failed = PluginFailure(plugin="p", hook="NodeFilter.filter", times=1)
    faults.ended([failed], 50.0)
    faults.ended([], 109.0)
    assert faults.due() == 110.0
    assert faults.note
    faults.ended([], 110.0)
    assert not faults.known
    assert faults.due() is None
    assert [each.key for each in faults.over] == [("p", "NodeFilter.filter")]


def test_faults_are_readable_while_a_cycle_adds_one():
    faults = Faults()

    class Asked:
        message = "m"

        @property
        def reaction(self):
            faults.known["other", "hook"] = self
            return OnFailure.STOP

    faults.known["p", "hook"] = Asked()
    assert faults.problem == "m"
    faults.known.pop(("other", "hook"))
    assert faults.note == ""


def test_what_is_the_engines_own_is_no_plugins_fault():
    assert Faults().judge(FAULT, Profile, 1000, 0.0) is not None
    own = PluginError("m", plugin="refusals", hook="NodeFilter.filter")
    assert Faults().judge(own, Profile, 1000, 0.0) is None
