"""Laws of groups that yield: they make way, and only for a group that gets a place by it."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from kai.framework.decisions import YIELDED, Bind, Evict, Nominate
from kai.lab.scenarios.scenario import read_short
from kai.testing import run_scenario

HOUR = 3_600.0
PRIORITIES = st.sampled_from((50, 60, 120))
runs = st.lists(
    st.tuples(st.integers(1, 3), PRIORITIES, st.none() | st.integers(1, 4), st.integers(0, 5)), min_size=1, max_size=6
)
"""Jobs that run: GPUs, priority, after how many hours they yield, and for how many they have run."""
asks = st.lists(st.tuples(st.integers(1, 4), PRIORITIES), max_size=4)


def decided(jobs, waiting, *, yields=True):
    groups = {
        f"job-{at}": {
            "queue": "team",
            "priority": priority,
            "each": {"gpu": gpus},
            "runs_on": f"n{at}",
            "started": f"{hours * 60 + 1}m",
            "annotations": {"kai.scheduler/runtime-policy": "yield", "kai.scheduler/max-runtime": f"{wish}h"}
            if wish is not None and yields
            else {},
        }
        for at, (gpus, priority, wish, hours) in enumerate(jobs)
    }
    groups |= {
        f"ask-{at}": {"queue": "team", "priority": priority, "each": {"gpu": gpus}}
        for at, (gpus, priority) in enumerate(waiting)
    }
    document = {
        "cluster": {"nodes": {f"n{at}": {"gpu": gpus} for at, (gpus, *_) in enumerate(jobs)}},
        "queues": {"root": {"quota": 100}, "team": {"parent": "root", "quota": 100}},
        "groups": groups,
        "run": ["allocate", "reclaim", "preempt"],
    }
    (cycle,) = run_scenario(read_short(document, "yielding")).cycles
    return cycle


def owner(cycle, pod):
    return cycle.snapshot.groups[int(cycle.snapshot.pod_group[pod])]


@given(runs, asks)
def test_a_group_yields_only_to_a_placed_group(jobs, waiting):
    cycle = decided(jobs, waiting)
    placed = {owner(cycle, each.pod).name for each in cycle.decisions if isinstance(each, Bind | Nominate)}
    for each in cycle.decisions:
        if isinstance(each, Evict):
            gone, better = owner(cycle, each.pod), cycle.snapshot.groups[each.aggressor]
            assert better.name in placed
            assert gone.preemptible
            if gone.priority >= better.priority:
                assert each.rule == YIELDED
                assert gone.priority == better.priority
                assert cycle.snapshot.now >= gone.last_start + gone.bound.yields


@given(runs, asks)
def test_yielding_runs_as_many_jobs_of_each_priority(jobs, waiting):
    held = []
    for yields in (True, False):
        cycle, amounts = decided(jobs, waiting, yields=yields), defaultdict(int)
        for _, priority, *_ in jobs:
            amounts[priority] += 1
        for each in cycle.decisions:
            amounts[owner(cycle, each.pod).priority] += -1 if isinstance(each, Evict) else 1
        held.append(amounts)
    with_yields, without = held
    for least in (120, 60):
        above = [sum(count for level, count in each.items() if level >= least) for each in held]
        assert above[0] >= above[1], (dict(with_yields), dict(without))


@given(runs)
def test_without_a_job_that_waits_none_makes_way(jobs):
    assert [each for each in decided(jobs, []).decisions if isinstance(each, Evict)] == []
