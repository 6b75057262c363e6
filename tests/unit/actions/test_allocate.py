import sys

import attrs
import pytest

from kai.actions.allocate import Allocate
from kai.deciding.engine import fast_path
from kai.deciding.engine.cycle import run_cycle
from kai.deciding.engine.host import BudgetAnswer, Unlimited
from kai.facts.model.placement import Past
from kai.framework import Code
from kai.framework.decisions import Bind, Nominate
from kai.testing import RecordingSink, default_profile_with, snapshot
from tests.unit.actions.search.stage import opened

PARTS = {"fraction": 0.6, "devices": 2}


def placed(report, taken):
    return {taken.pods[row].name: report.node[row] for row in range(len(taken.pods))}


def test_binding_a_part_makes_a_promised_device_busy():
    """Else whole devices are handed out that are still being released."""
    taken = snapshot(
        nodes={"a": {"gpu": 4, "cpu": 2, "gpu_memory": 16000}, "b": {"gpu": 2, "cpu": 1.5, "gpu_memory": 16000}},
        groups={
            "leaves-a": {"each": {"gpu": 1}, "runs_on": "a", "leaving": 1},
            "leaves-b": {"each": {"gpu": 2}, "runs_on": "b", "leaving": 1},
            # One pod fits a at once, the other must wait for b: so both of them wait.
            "gang": {"members": 2, "each": {**PARTS, "cpu": 1.5}},
            "parts": {"each": {"fraction": 0.3, "devices": 2, "cpu": 0.1}},
            "pair": {"each": {"gpu": 2}},
        },
    )
    sink = RecordingSink()
    report = run_cycle(taken, default_profile_with(), sink)
    names = {row: pod.name for row, pod in enumerate(taken.pods)}
    kinds = {names[each.pod]: type(each) for each in sink.decisions}
    assert kinds == {"gang-0": Nominate, "gang-1": Nominate, "parts-0": Bind, "pair-0": Nominate}
    a = taken.node_rows["a"]
    assert {names[each.pod]: each.node for each in sink.decisions}["pair-0"] == a
    assert int(report.idle[a, 2]) == 1000


def test_a_group_awaiting_evictions_is_placed_before_others():
    """Else the order of queues may give it to the pod that was evicted, which is then evicted again."""
    taken = snapshot(
        nodes={"n": {"gpu": 1}},
        queues={"a": {"quota": 1, "priority": 200}, "b": {"quota": 1}},
        groups={"first": {"queue": "a", "each": {"gpu": 1}}, "second": {"queue": "b", "each": {"gpu": 1}}},
    )
    groups = {group.name: row for row, group in enumerate(taken.groups)}
    for awaited, expected in ((), "first"), (("default/second",), "second"), (("default/gone",), "first"):
        sink = RecordingSink()
        run_cycle(attrs.evolve(taken, past=Past(awaited=awaited)), default_profile_with(), sink)
        bound = [int(taken.pod_group[each.pod]) for each in sink.decisions if isinstance(each, Bind)]
        assert bound == [groups[expected]]


def test_a_report_names_the_groups_awaiting_evictions():
    taken = snapshot(
        nodes={"n": {"gpu": 1}},
        queues={"a": {}, "b": {"quota": 1}},
        groups={
            "over": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n"},
            "wants": {"queue": "b", "each": {"gpu": 1}},
            "waits": {"queue": "b", "each": {"gpu": 1}},
        },
    )
    assert run_cycle(taken, default_profile_with(), RecordingSink()).awaited == ("default/wants",)
    without = attrs.evolve(default_profile_with(), actions=default_profile_with().actions[:1])
    assert run_cycle(taken, without, RecordingSink()).awaited == ()


@attrs.define
class Hurried(Unlimited):
    """A budget with time for so many steps of allocate, and for no search."""

    steps: int

    def go_on(self):
        self.steps -= 1
        return BudgetAnswer.GO if self.steps > 0 else BudgetAnswer.STOP

    def begin_group(self):
        return BudgetAnswer.STOP


@pytest.mark.parametrize("shortcuts", [True, False])
def test_a_cycle_out_of_time_decides_a_prefix(monkeypatch, shortcuts):
    monkeypatch.setattr(fast_path, "BATCH", 1)
    taken = snapshot(
        nodes={"n": {"gpu": 7}},
        queues={"a": {"quota": 4}, "b": {"quota": 3}},
        groups={
            **{f"a{at}": {"queue": "a", "each": {"gpu": 1}} for at in range(5)},
            **{f"b{at}": {"queue": "b", "members": 2, "each": {"gpu": 1}} for at in range(3)},
            "large": {"queue": "b", "priority": 90, "each": {"gpu": 8}},
        },
    )
    profile = default_profile_with()
    profile = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, shortcuts=shortcuts))
    whole = RecordingSink()
    run_cycle(taken, profile, whole)
    seen = set()
    for steps in range(1, 9):
        part = RecordingSink()
        report = run_cycle(taken, profile, part, budget=Hurried(steps))
        assert part.decisions == whole.decisions[: len(part.decisions)]
        seen.add(len(part.decisions))
        decided = {int(taken.pod_group[each.pod]) for each in part.decisions}
        assert not decided & set(report.left.tolist())
        tried = len(taken.groups) - len(report.left)
        for row in report.left.tolist():
            (reason,) = report.records[row].reasons
            assert (reason.code, reason.facts) == (Code.WAITS_FOR_TURN, {"considered": tried})
        refused = [row for row in report.records if row not in report.left]
        assert all(report.records[row].reasons[0].code is not Code.WAITS_FOR_TURN for row in refused)
    assert len(seen) > 4


def test_a_gang_survives_a_cycle_that_left_groups(monkeypatch):
    monkeypatch.setattr(fast_path, "BATCH", 1)
    taken = snapshot(
        nodes={"n": {"gpu": 4}},
        groups={
            "first": {"priority": 90, "each": {"gpu": 1}},
            "gang": {"members": 3, "minimum": 3, "each": {"gpu": 1}, "runs_on": ["n", "n"]},
        },
    )
    profile = default_profile_with()
    parameters = attrs.evolve(profile.parameters, default_staleness_grace_seconds=0.0)
    profile = attrs.evolve(profile, parameters=parameters)
    report = run_cycle(taken, profile, RecordingSink(), budget=Hurried(1))
    assert len(report.left) == 1
    assert report.counts == {"binds": 1, "evictions": 0, "pipelines": 0}


def calls_to_place_ten_pods(parts):
    """Return how many calls of Python it takes, of a group with so many sub-groups of one pod each, that needs one."""
    each = {f"s{at:03}": {"members": 1, "minimum": 0, "each": {"gpu": 1}} for at in range(parts)}
    session = opened({"many": {"minimum": 1, "subgroups": each}}, {"n": {"gpu": 10}})
    calls = 0

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        Allocate().run(session)
    finally:
        sys.setprofile(before)
    assert session.counts["binds"] == 10
    return calls


def test_one_more_subgroup_adds_few_calls_per_pod():
    """Else a group of thousands, which grow by one pod at a time, holds up all others for minutes."""
    calls_to_place_ten_pods(20)  # what is made once
    assert calls_to_place_ten_pods(120) - calls_to_place_ten_pods(20) < 10 * 100
