"""Trees of sub-groups may be deeper than Python's recursion: the engine walks them without."""

import sys

import attrs

from kai.basics.trees import descend
from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine.cycle import run_cycle
from kai.deciding.explain.recorded import least_pods
from kai.facts.model.groups import SubGroup
from kai.framework.decisions import Bind, Evict, Recorder
from kai.roles.scheduler.publishing.explanations import explain
from kai.testing import snapshot

DEPTH = 2000


def test_a_step_gets_what_the_steps_below_it_return():
    def depth_of(left):
        return 0 if not left else 1 + (yield depth_of(left - 1))

    assert descend(depth_of(10 * sys.getrecursionlimit())) == 10 * sys.getrecursionlimit()


def deepened(taken, name, minimum):
    """Return a snapshot in which the only leaf of a group lies below so many sub-groups, each with one child."""
    row = next(at for at, group in enumerate(taken.groups) if group.name == name)
    inner = [SubGroup(name=f"s{at}" if at else "", parent=at - 1, leaf=False, minimum=1) for at in range(DEPTH)]
    leaf = SubGroup(name="leaf", parent=DEPTH - 1, leaf=True, minimum=minimum)
    groups = list(taken.groups)
    groups[row] = attrs.evolve(groups[row], subgroups=(*inner, leaf))
    subgroup = taken.pod_subgroup.copy()
    subgroup[taken.pod_group == row] = DEPTH
    return attrs.evolve(taken, groups=tuple(groups), pod_subgroup=subgroup)


def decided(taken):
    recorder = Recorder()
    report = run_cycle(taken, default_profile(), recorder)
    return taken, report, [each for statement in recorder.statements for each in statement]


def names(taken, decisions, kind):
    return sorted(taken.pods[each.pod].name for each in decisions if isinstance(each, kind))


def test_a_group_is_placed_however_deep_its_leaf_lies():
    made = snapshot({"n": {"gpu": 4}}, {"deep": {"members": 2, "minimum": 2, "each": {"gpu": 1}}})
    taken, _, decisions = decided(deepened(made, "deep", 2))
    assert names(taken, decisions, Bind) == ["deep-0", "deep-1"]


def test_a_waiting_group_is_explained_at_any_leaf_depth():
    made = snapshot({"n": {"gpu": 1}}, {"deep": {"members": 2, "minimum": 2, "each": {"gpu": 1}}})
    taken, report, decisions = decided(deepened(made, "deep", 2))
    assert decisions == []
    assert "Unable to schedule" not in explain(taken, report, "default").groups[0].not_ready
    assert least_pods(taken.groups[0]) == 2
    late, report, _ = decided(deepened(made, "deep", 3))
    assert "3" in explain(late, report, "default").groups[0].not_ready


def test_pods_are_evicted_from_leaves_at_any_depth():
    queues = {"top": {}, **{name: {"parent": "top", "quota": {"gpu": 2}} for name in ("mine", "yours")}}
    groups = {
        "deep": {"queue": "yours", "members": 4, "minimum": 2, "each": {"gpu": 1}, "runs_on": ["n"] * 4},
        "poor": {"queue": "mine", "members": 2, "minimum": 2, "each": {"gpu": 1}},
    }
    taken, _, decisions = decided(deepened(snapshot({"n": {"gpu": 4}}, groups, queues), "deep", 2))
    assert names(taken, decisions, Evict) == ["deep-2", "deep-3"]
