"""A cycle runs its actions in order on one session, and the same input gives the same decisions."""

import attrs
import pytest

from kai.basics.errors import ActionError, PluginError
from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine.cycle import run_cycle
from kai.deciding.engine.host import Silent, Unlimited
from kai.framework.decisions import Bind, Evict, Nominate, Recorder
from kai.testing import RejectingSink, snapshot

ONE = {"each": {"gpu": 1}}


@attrs.frozen
class Noting:
    """An action that writes down its name and who waits when it runs."""

    name: str
    noted: list

    def run(self, session):
        names = [session.snapshot.groups[row].name for row in session.waiting_groups()]
        self.noted.append((self.name, names))


def contended():
    return snapshot(
        nodes={"n1": {"gpu": 2}},
        queues={"root": {"quota": 2}, "a": {"parent": "root", "quota": 2}},
        groups={
            "low": {"queue": "a", "priority": 40, **ONE, "runs_on": "n1"},
            "fits": {"queue": "a", "priority": 60, **ONE},
            "wants": {"queue": "a", "priority": 60, **ONE},
        },
    )


def decided(taken, profile=None):
    recorder = Recorder()
    run_cycle(taken, profile or default_profile(), recorder)
    return recorder.statements


def test_actions_run_in_the_order_of_the_profile():
    noted = []
    profile = attrs.evolve(default_profile(), actions=(Noting("second", noted), Noting("first", noted)))
    decided(contended(), profile)
    assert [name for name, _ in noted] == ["second", "first"]


def test_an_action_finds_what_those_before_it_left():
    noted = []
    actions = {action.name: action for action in default_profile().actions}
    between = (Noting("early", noted), actions["allocate"], Noting("later", noted))
    decided(contended(), attrs.evolve(default_profile(), actions=between))
    assert noted == [("early", ["fits", "wants"]), ("later", ["wants"])]


def test_equal_snapshots_give_equal_decisions_in_order():
    taken = contended()
    first = decided(taken)
    assert [type(each) for made in first for each in made] == [Bind, Evict, Nominate]
    assert decided(taken) == first
    assert decided(contended()) == first


def test_an_eviction_and_its_promise_reach_the_sink_together():
    assert [type(each) for each in decided(contended())[-1]] == [Evict, Nominate]


def test_what_a_sink_refuses_ends_the_cycle():
    sink = RejectingSink(accepts=1)
    with pytest.raises(ConnectionError):
        run_cycle(contended(), default_profile(), sink)
    assert [type(each) for made in sink.taken for each in made] == [Bind]


def test_phases_begin_with_opening_and_end_with_closing():
    class Listening(Silent):
        def __init__(self):
            self.heard = []

        def phase(self, name, /):
            self.heard.append(str(name))
            return super().phase(name)

    observer = Listening()
    run_cycle(contended(), default_profile(), Recorder(), observer)
    actions = [action.name for action in default_profile().actions]
    assert observer.heard == ["open", *actions, "close"]


def test_the_budget_learns_of_each_action_before_it_runs():
    begun = []

    class Listening(Unlimited):
        def begin_action(self, action, /):
            begun.append(action)

    run_cycle(contended(), default_profile(), Recorder(), budget=Listening())
    assert begun == [action.name for action in default_profile().actions]


def test_a_cycle_without_actions_decides_nothing():
    assert decided(contended(), attrs.evolve(default_profile(), actions=())) == []


def test_a_cycle_on_an_empty_cluster_decides_nothing():
    assert decided(snapshot({}, {}, {})) == []


@attrs.frozen
class Failing:
    """An action of another package that raises."""

    error: BaseException
    name: str = "tidy"

    def run(self, session):
        raise self.error


@pytest.mark.parametrize(
    ("error", "text"), [(ValueError("no luck"), "ValueError: no luck"), (SystemExit(3), "SystemExit: 3")]
)
def test_an_error_of_a_foreign_action_names_its_module(error, text):
    with pytest.raises(ActionError) as caught:
        decided(contended(), attrs.evolve(default_profile(), actions=(Failing(error),)))
    assert str(caught.value) == f'action "tidy" ({__name__}), run: raised {text}'


def test_a_kai_error_within_a_foreign_action_passes_unchanged():
    error = PluginError("returned None", plugin="mine", hook="NodeScore.score")
    with pytest.raises(PluginError) as caught:
        decided(contended(), attrs.evolve(default_profile(), actions=(Failing(error),)))
    assert caught.value is error


def test_an_error_of_a_built_in_action_passes_unchanged(monkeypatch):
    monkeypatch.setattr(Failing, "__module__", "kai.actions.tidy")
    with pytest.raises(ValueError, match="no luck"):
        decided(contended(), attrs.evolve(default_profile(), actions=(Failing(ValueError("no luck")),)))
