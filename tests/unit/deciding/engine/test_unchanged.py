"""A cycle is left out only where it would repeat the last one, and runs again when a deadline has come."""

import attrs
import pytest

from kai.api import names
from kai.api.values import instant_text
from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine.cycle import run_cycle
from kai.deciding.engine.host import BudgetAnswer, Unlimited
from kai.framework.decisions import Recorder
from kai.framework.hooks import PluginUse
from kai.intake import Intake, take_snapshot
from kai.lab.scenarios.shorthand import NOW
from kai.testing.views import cluster

NODES = {"n1": {"gpu": 4}}
FULL = {"runs": {"runs_on": ["n1"], "each": {"gpu": 4}}}


@attrs.frozen
class Counting:
    """An action that counts how often it runs."""

    runs: list[float]
    name: str = "counting"

    def run(self, session):
        self.runs.append(session.snapshot.now)


@attrs.frozen
class Looking:
    """A plugin that looks at the clock."""

    def open(self, session):
        assert session.now > 0
        return ()


@pytest.fixture
def runs():
    return []


def profile_with(runs, *plugins, **parameters):
    profile = default_profile()
    used = tuple(PluginUse(name=type(each).__name__, plugin=each) for each in plugins)
    return attrs.evolve(
        profile,
        actions=(*profile.actions, Counting(runs)),
        plugins=profile.plugins + used,
        parameters=attrs.evolve(profile.parameters, **parameters),
    )


def test_nothing_is_run_while_nothing_changes(runs):
    intake, objects, profile = Intake(), cluster(NODES, FULL), profile_with(runs)
    reports = [run_cycle(intake.take(objects, NOW + at), profile, Recorder()) for at in range(5)]
    assert runs == [NOW]
    assert all(each is reports[0] for each in reports)


def test_groups_that_wait_in_vain_wait_in_vain_again(runs):
    waiting = {**FULL, "waits": {"members": 1, "each": {"gpu": 8}}}
    intake, objects, profile = Intake(), cluster(NODES, waiting), profile_with(runs)
    first, second = (run_cycle(intake.take(objects, NOW + at), profile, Recorder()) for at in range(2))
    assert len(runs) == 1
    assert second.records == first.records


def test_a_cycle_that_decided_something_runs_again(runs):
    intake, objects, profile = Intake(), cluster(NODES, {"starts": {"each": {"gpu": 1}}}), profile_with(runs)
    sinks = [Recorder(), Recorder()]
    for at, sink in enumerate(sinks):
        run_cycle(intake.take(objects, NOW + at), profile, sink)
    assert len(runs) == 2
    assert sinks[0].statements == sinks[1].statements != []


def test_a_change_ends_the_rest(runs):
    intake, profile = Intake(), profile_with(runs)
    for groups in (FULL, FULL | {"more": {"each": {"gpu": 8}}}):
        run_cycle(intake.take(cluster(NODES, groups), NOW), profile, Recorder())
    assert len(runs) == 2


def test_another_profile_or_an_earlier_clock_runs_again(runs):
    intake, objects, profile = Intake(), cluster(NODES, FULL), profile_with(runs)
    for using, at in ((profile, NOW), (attrs.evolve(profile), NOW), (profile, NOW), (profile, NOW - 1)):
        run_cycle(intake.take(objects, at), using, Recorder())
    assert len(runs) == 4


def test_a_plugin_that_reads_the_clock_runs_every_cycle(runs):
    intake, objects, profile = Intake(), cluster(NODES, FULL), profile_with(runs, Looking())
    for at in range(3):
        run_cycle(intake.take(objects, NOW + at), profile, Recorder())
    assert len(runs) == 3


def test_a_search_that_was_cut_short_is_tried_again(runs):
    groups = {
        "runs": {"queue": "a", "runs_on": ["n1"], "each": {"gpu": 4}},
        "claims": {"queue": "b", "each": {"gpu": 4}},
    }
    queues = {"root": {}, "a": {"parent": "root", "quota": 0}, "b": {"parent": "root", "quota": 4}}
    intake, objects, profile = Intake(), cluster(NODES, groups, queues), profile_with(runs)
    for at in range(2):
        report = run_cycle(intake.take(objects, NOW + at), profile, Recorder(), budget=_Miserly())
        assert not any(report.counts.values())
    assert len(runs) == 2
    assert run_cycle(intake.take(objects, NOW + 2), profile, Recorder()).counts["evictions"] == 1


class _Miserly(Unlimited):
    """A budget that grants no search at all."""

    def begin_group(self):
        return BudgetAnswer.STOP


def test_a_gang_turns_stale_on_time_though_nothing_changes(runs):
    gang = {"gang": {"members": 3, "minimum": 3, "runs_on": ["n1"], "each": {"gpu": 1}}}
    objects = stale_since(cluster({"n1": {"gpu": 1}}, gang), NOW - 10)
    intake, profile = Intake(), profile_with(runs, default_staleness_grace_seconds=60.0)
    instants = [NOW + at for at in (0.0, 1.0, 40.0, 49.9, 50.0)]
    evicted = [run_cycle(intake.take(objects, now), profile, Recorder()).counts["evictions"] for now in instants]
    assert evicted == [0, 0, 0, 0, 1]
    assert runs == [NOW, NOW + 50.0]


def test_a_staleness_mark_in_the_future_counts_now(runs):
    """A clock that went ahead wrote it; the gang would hold its GPUs for as long as that did."""
    gang = {"gang": {"members": 3, "minimum": 3, "runs_on": ["n1"], "each": {"gpu": 1}}}
    objects = stale_since(cluster({"n1": {"gpu": 1}}, gang), NOW + 1000)
    profile = profile_with(runs, default_staleness_grace_seconds=60.0)
    report = run_cycle(take_snapshot(objects, now=NOW), profile, Recorder())
    assert report.stale_since.tolist() == [NOW]
    objects = stale_since(objects, NOW)
    evicted = [
        run_cycle(take_snapshot(objects, now=NOW + at), profile, Recorder()).counts["evictions"] for at in (59, 60)
    ]
    assert evicted == [0, 1]


def stale_since(objects, instant):
    """Return the same cluster whose groups say since when they are below their minimum."""
    (group,) = objects.pod_groups
    annotations = {**group.metadata.annotations, names.STALE_SINCE: instant_text(instant)}
    changed = attrs.evolve(group, metadata=attrs.evolve(group.metadata, annotations=annotations))
    return attrs.evolve(objects, pod_groups=(changed,))
