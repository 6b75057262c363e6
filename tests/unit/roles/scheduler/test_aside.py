"""A cycle that fails at one group goes on with all the others, wherever it failed."""

import json
import zipfile

import attrs
import numpy as np
import pytest

from kai.answers.offline.run import simulate
from kai.basics.errors import InputError
from kai.cluster.port import Term
from kai.cluster.process.tracing import no_tracing
from kai.deciding.configuration.profiles import default_profile
from kai.framework.decisions import Bind
from kai.framework.hooks import Dependence, GroupOrder, NodeFilter, NodeScore, PluginUse
from kai.intake.aside import Suspect
from kai.lab.sources.archive import read_archive
from kai.roles.scheduler.cycle import cycling
from kai.roles.scheduler.cycle.cycle_input import CycleInput
from kai.roles.scheduler.cycle.cycling import Cycles, Done, Failure
from kai.roles.scheduler.cycle.faults import place_of
from kai.roles.scheduler.cycle.stream import CycleObserver, Stream
from kai.roles.scheduler.effects import Decided
from kai.roles.scheduler.settings import SchedulerSettings
from kai.testing import cluster

TERM = Term(1, "life")
GROUPS = {
    "good": {"members": 2, "minimum": 2, "each": {"gpu": 1}},
    "poison": {"members": 1, "each": {"gpu": 1}},
    "well": {"members": 1, "each": {"gpu": 1}},
}
POISON = Suspect("PodGroup", "default", "poison")


class Raising:
    """A plugin that cannot bear one group."""

    def __init__(self, hook):
        self.hook = hook

    def open(self, session):
        if self.hook == "open" and any(each.name == "poison" and each.labels for each in session.snapshot.groups):
            raise RuntimeError("broken")

        def nodes(pod, nodes):
            if session.snapshot.pods[pod].name.startswith("poison"):
                raise ValueError("broken")
            return np.ones(len(nodes), np.bool_) if self.hook == "filter_nodes" else np.zeros(len(nodes))

        def keys(rows):
            poisoned = [session.snapshot.groups[row].name == "poison" for row in rows]
            waiting = [
                session.snapshot.pods[pod].name.startswith("poison") for pod in range(len(session.snapshot.pods))
            ]
            if any(poisoned) and any(waiting):
                raise MemoryError
            return np.zeros((len(rows), 1))

        answers = {"filter_nodes": NodeFilter(nodes), "score_nodes": NodeScore(nodes), "group_keys": GroupOrder(keys)}
        return [answers[self.hook]] if self.hook in answers else []


@attrs.define
class Rig:
    """Cycles, one after the other, on objects that nobody changes."""

    cycles: Cycles
    objects: object
    number: int = 0
    taken: list = attrs.field(factory=list)

    def step(self, now=None):
        self.number += 1
        observer = CycleObserver.begin(no_tracing().tracer, lambda: 0.0, self.number)
        stream = Stream(TERM, self.number, observer, lambda _: None, lambda: False)
        given = CycleInput(objects=self.objects, now=1e9 if now is None else now, cycle=self.number)
        outcome = self.cycles.run(given, stream)
        self.taken = [each for event in stream.taken() for each in event.decisions]
        return outcome

    def settle(self):
        outcomes = [self.step()]
        while outcomes[-1].again:
            outcomes.append(self.step())
            assert len(outcomes) < 100
        return outcomes

    def bound(self, outcome):
        return sorted(outcome.snapshot.pods[each.pod].name for each in self.taken if isinstance(each, Bind))


def rig(*plugins, folder="/nonexistent", groups=GROUPS):
    uses = tuple(PluginUse(name=f"raising-{each.hook}", plugin=each) for each in plugins)
    profile = default_profile()
    profile = attrs.evolve(profile, plugins=profile.plugins + uses)
    cycles = Cycles(SchedulerSettings(dump_folder=str(folder)), profile, lambda: 0.0)
    objects = cluster({"n": {"gpu": 8}}, groups)
    labelled = [
        attrs.evolve(each, metadata=attrs.evolve(each.metadata, labels={**each.metadata.labels, "team": "x"}))
        for each in objects.pod_groups
    ]
    return Rig(cycles, attrs.evolve(objects, pod_groups=tuple(labelled)))


@pytest.mark.parametrize("hook", ["filter_nodes", "score_nodes", "open"])
def test_a_group_breaking_a_plugin_is_set_aside_alone(hook):
    made = rig(Raising(hook))
    *failures, done = made.settle()
    assert failures
    assert isinstance(failures[0], Failure)
    assert isinstance(done, Done)
    assert made.bound(done) == ["good-0", "good-1", "well-0"]
    assert list(made.cycles.inquiry.records) == [POISON]
    account = next(each for each in done.overall.groups if each.name == "poison")
    assert "scheduling failed at this PodGroup" in account.condition.message
    assert [each.reason for each in account.condition.reasons] == ["SetAside"]
    assert [each.name for each in account.pods] == ["poison-0"]
    assert ("default", "poison") not in done.overall.settled


def test_a_failure_names_the_innermost_place_of_the_code():
    failure = rig(Raising("filter_nodes")).step()
    assert "broken (at nodes in tests.unit.roles.scheduler.test_aside, line " in failure.message


def test_a_failing_library_is_placed_at_its_caller():
    def numpy_fails():
        np.zeros(-1)

    with pytest.raises(ValueError, match="negative") as caught:
        numpy_fails()
    assert "(at numpy_fails in tests.unit.roles.scheduler.test_aside" in place_of(caught.value, frozenset({"tests"}))


def test_an_error_caused_by_itself_has_a_place():
    def fails():
        try:
            raise ValueError("once")
        except ValueError as error:
            raise error from error

    with pytest.raises(ValueError, match="once") as caught:
        fails()
    assert "(at fails in tests.unit.roles.scheduler.test_aside" in place_of(caught.value, frozenset({"tests"}))


def test_an_unexplainable_group_is_named_and_others_are_explained(monkeypatch):
    teller = cycling.explain.__globals__["_Explainer"]
    account = teller._account

    def failing(self, row, group):
        if group.name == "poison" and self._waiting[row]:
            raise KeyError("no word")
        return account(self, row, group)

    monkeypatch.setattr(teller, "_account", failing)
    made = rig(groups={name: {**each, "each": {"gpu": 9}} for name, each in GROUPS.items()})
    failure, done = made.settle()
    assert failure.named == "podgroup default/poison"
    assert sorted(each.name for each in done.overall.groups) == ["good", "poison", "well"]


def test_an_unreadable_pod_is_left_out_and_named(monkeypatch):
    made = rig()
    reader = cycling.Intake.__init__.__globals__["PodReader"]
    read = reader.read

    def failing(self, source):
        if source.metadata.name == "poison-0":
            raise OverflowError("too much")
        return read(self, source)

    monkeypatch.setattr(reader, "read", failing)
    failure, done = made.settle()
    assert failure.named == "pod default/poison-0"
    assert made.bound(done) == ["good-0", "good-1", "well-0"]


class Broken:
    name = "broken"

    def run(self, session):
        raise RuntimeError(f"broken in cycle {session.snapshot.revision}")


def test_a_failure_that_no_object_causes_is_one_failure():
    made = rig()
    made.cycles.profile = attrs.evolve(made.cycles.profile, actions=(Broken(),))
    outcomes = made.settle()
    assert all(isinstance(each, Failure) for each in outcomes)
    assert len(outcomes) < 6
    assert made.cycles.inquiry.left_out == frozenset()


def test_a_cycle_with_a_group_aside_is_not_repeated():
    made = rig(Raising("filter_nodes"))
    made.objects = attrs.evolve(made.objects, nodes=())
    made.settle()
    assert made.step().report is made.step().report


def test_running_pods_of_a_group_aside_still_count():
    groups = {"poison": {"members": 3, "minimum": 1, "each": {"gpu": 1}, "runs_on": ["n", "n"]}}
    made = rig(groups=groups)
    made.cycles.inquiry.begin(made.objects, 0.0)
    made.cycles.inquiry.accuse(cycling.Blame(kind="E", message="m"), [POISON])
    (done,) = made.settle()
    assert [each.name for each in done.snapshot.pods] == ["poison-0", "poison-1"]
    assert done.snapshot.pod_subgroup.tolist() == [1, 1]
    leaf = [each.name for each in done.snapshot.queues].index("queue")
    assert done.report.queue_used[leaf, 2] == 2000


def test_groups_accused_during_a_cycle_wait_for_its_end():
    made = rig()
    done = made.step()
    event = Decided(term=TERM, cycle=1, snapshot=done.snapshot, decisions=tuple(made.taken))
    try:
        raise LookupError("no order")
    except LookupError as error:
        made.cycles.accuse(error, event)
    assert not made.cycles.inquiry.records
    made.cycles.judge_accused()
    assert {each.name for each in made.cycles.inquiry.records} == {"good", "poison", "well"}


def test_a_cycles_archive_repeats_what_was_left_out(tmp_path):
    made = rig(Raising("filter_nodes"), folder=tmp_path)
    failure, _ = made.settle()
    with zipfile.ZipFile(failure.dump) as file:
        assert "aside" not in json.loads(file.read("snapshot.json"))["kai"]
    path = cycling.write_archive(made.cycles.last, made.cycles.settings, "test")
    case = read_archive(tmp_path / path.rpartition("/")[2], "snapshot")
    assert [each.metadata.name for each in case.objects.pods] == ["good-0", "good-1", "well-0"]
    binds = [each for each in simulate(case).last.decisions if isinstance(each, Bind)]
    assert binds == [each for each in made.taken if isinstance(each, Bind)]


def test_a_file_that_says_it_wrongly_is_refused(tmp_path):
    made = rig(folder=tmp_path)
    made.step()
    path = cycling.write_archive(made.cycles.last, made.cycles.settings, "test")
    with zipfile.ZipFile(path) as file:
        document = json.loads(file.read("snapshot.json"))
    document["kai"]["aside"] = [["Pod", "default"]]
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("snapshot.json", json.dumps(document))
    with pytest.raises(InputError, match=r"kai\.aside"):
        read_archive(tmp_path / path.rpartition("/")[2], "snapshot")


def test_a_failing_group_order_is_left_out_without_blame():
    made = rig(Raising("group_keys"))
    failure, done = made.settle()
    assert isinstance(failure, Failure)
    assert made.bound(done) == ["good-0", "good-1", "poison-0", "well-0"]
    assert not made.cycles.inquiry.records


def test_a_failure_for_a_shape_costs_only_its_pods():
    class ByShape(Raising):
        def open(self, session):
            return [attrs.evolve(each, depends=Dependence.SHAPE) for each in super().open(session)]

    made = rig(ByShape("filter_nodes"), groups={**GROUPS, "poison": {"members": 1, "each": {"gpu": 2}}})
    failure, done = made.settle()
    assert isinstance(failure, Failure)
    assert made.bound(done) == ["good-0", "good-1", "well-0"]
    assert not made.cycles.inquiry.records
