"""Laws of quotas that follow the clock."""

from math import inf
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.answers.cases.case import Case
from kai.api.codec.structuring import structure_as
from kai.api.conventions.quota_windows import first_start, slices
from kai.api.scheduling.queue import Queue, QueueSchedule
from kai.framework.decisions import Evict
from kai.lab.scenarios.scenario import read_short
from kai.testing import load_scenario, run_scenario

SCENARIOS = Path(__file__).parents[1] / "scenarios"
KINDS = ("allocate", "reclaim", "preempt", "consolidate", "elastic", "runtime")
NEVER = structure_as(QueueSchedule, {"name": "never", "start": "0 0 31 2 *", "duration": "1h", "onClose": "evict"})
ALWAYS = structure_as(QueueSchedule, {"name": "always", "start": "*/5 * * * *", "duration": "1h", "onClose": "drain"})
AT_NOON = {"start": "0 10 * * *", "duration": "2h"}
"""A window that closes at the instant of the scenarios."""


def decisions(case):
    return [each for cycle in run_scenario(case).cycles for each in cycle.decisions]


def with_entries(case: Case, *entries):
    queues = [attrs.evolve(each, spec=attrs.evolve(each.spec, schedules=entries)) for each in case.objects.queues]
    return attrs.evolve(case, objects=attrs.evolve(case.objects, queues=tuple(queues)))


@pytest.mark.parametrize("kind", KINDS)
def test_windows_that_change_no_amount_change_no_decision(kind):
    for path in sorted((SCENARIOS / kind).glob("*.yaml")):
        case = load_scenario(path)
        plain = decisions(case)
        assert decisions(with_entries(case, NEVER)) == plain, path
        assert decisions(with_entries(case, ALWAYS)) == plain, path


def cluster(on_close, jobs, waiting=(), quota=4):
    night = {"parent": "root", "quota": quota, "schedules": {"noon": {**AT_NOON, "quota": 1_000, "on_close": on_close}}}
    runs = {
        f"job-{at}": {
            "queue": "night",
            "each": {"gpu": gpus},
            "runs_on": f"n{at}",
            "started": "1h",
            "priority": priority,
        }
        for at, (gpus, priority) in enumerate(jobs)
    }
    asks = {f"ask-{at}": {"queue": "day", "each": {"gpu": gpus}} for at, gpus in enumerate(waiting)}
    nodes = {f"n{at}": {"gpu": gpus} for at, (gpus, _) in enumerate(jobs)}
    document = {
        "cluster": {"nodes": nodes},
        "queues": {"root": {"quota": 1_000}, "night": night, "day": {"parent": "root", "quota": 1_000 - quota}},
        "groups": runs | asks,
        "run": ["allocate", "reclaim"],
    }
    return read_short(document, "close")


def evicted(case):
    """Return GPUs, and whether it could be preempted, of each evicted pod."""
    outcome = run_scenario(case)
    found = []
    for cycle in outcome.cycles:
        for decision in cycle.decisions:
            if isinstance(decision, Evict):
                group = cycle.snapshot.groups[int(cycle.snapshot.pod_group[decision.pod])]
                found.append((decision.gpus // 1_000, group.preemptible))
    return found


jobs = st.lists(st.tuples(st.integers(1, 4), st.sampled_from((50, 120))), min_size=1, max_size=8)


@given(st.sampled_from(("drain", "reclaim")), jobs, st.lists(st.integers(1, 4), max_size=4))
def test_windows_that_drain_or_reclaim_spare_non_preemptible_jobs(on_close, jobs, waiting):
    assert all(preemptible for _, preemptible in evicted(cluster(on_close, jobs, waiting)))


@given(jobs, st.integers(0, 12))
def test_an_evicting_window_evicts_just_the_excess(jobs, quota):
    gone = evicted(cluster("evict", jobs, quota=quota))
    held, lost = sum(gpus for gpus, _ in jobs), sum(gpus for gpus, _ in gone)
    assert held - lost <= quota or held <= quota
    assert not gone or held - lost + max(gpus for gpus, _ in gone) > quota


@pytest.mark.parametrize(("waiting", "most"), [((), 0), ((1,) * 10, 10)])
def test_an_edge_evicts_only_what_waiting_jobs_request(waiting, most):
    case = cluster("reclaim", [(1, 50)] * 1_000, waiting, quota=0)
    assert sum(gpus for gpus, _ in evicted(case)) == most


def test_a_draining_window_costs_nothing_although_others_want_it():
    assert evicted(cluster("drain", [(1, 50)] * 20, (1,) * 10, quota=0)) == []


def test_a_queue_is_read_with_its_schedules():
    written = {"metadata": {"name": "q"}, "spec": {"schedules": [{"name": "n", "start": "@daily", "duration": "1h"}]}}
    assert structure_as(Queue, written).spec.schedules[0].on_close == "reclaim"


HOURS = st.integers(0, 23)
windows_of = st.lists(st.tuples(HOURS, st.integers(1, 23), st.integers(0, 6)), min_size=1, max_size=3)
fixed_jobs = st.lists(st.tuples(st.integers(1, 3), st.none() | st.integers(1, 40)), min_size=1, max_size=6)


def ahead(windows, jobs, quota, above):
    """Return one cycle on jobs that cannot be preempted, each of some GPUs and with a limit in hours or without."""
    schedules = {
        f"w{at}": {"start": f"0 {start} * * *", "duration": f"{hours}h", "quota": amount}
        for at, (start, hours, amount) in enumerate(windows)
    }
    limits = [{"kai.scheduler/max-runtime": f"{hours}h"} if hours else {} for _, hours in jobs]
    groups = {
        f"job-{at}": {"queue": "team", "priority": 120, "each": {"gpu": gpus}, "annotations": limits[at]}
        for at, (gpus, _) in enumerate(jobs)
    }
    document = {
        "cluster": {"nodes": {f"n{at}": {"gpu": 4} for at in range(6)}},
        "queues": {
            "root": {"quota": above},
            "team": {"parent": "root", "quota": quota, "schedules": schedules},
        },
        "groups": groups,
        "run": ["allocate"],
    }
    case = read_short(document, "ahead")
    (cycle,) = run_scenario(case).cycles
    rows = [int(cycle.snapshot.pod_group[each.pod]) for each in cycle.decisions]
    return case, {cycle.snapshot.groups[row].name for row in rows}, cycle.snapshot.now


def held_at(jobs, started, instant, now):
    """Return the GPUs of the jobs in ``started`` that have not ended by then."""
    return sum(
        gpus
        for at, (gpus, hours) in enumerate(jobs)
        if f"job-{at}" in started and (hours is None or now + hours * 3_600 > instant)
    )


@given(windows_of, fixed_jobs, st.integers(0, 6), st.integers(2, 12))
def test_non_preemptible_jobs_fit_every_quota_before_their_end(windows, jobs, quota, above):
    case, started, now = ahead(windows, jobs, quota, above)
    spec = next(each.spec for each in case.objects.queues if each.metadata.name == "team")
    for at, in_force in slices(spec, now, now + 8 * 86_400):
        assert held_at(jobs, started, at, now) <= min(in_force.resources.gpu.quota, above)


@given(windows_of, st.tuples(st.integers(1, 3), st.none() | st.integers(1, 40)), st.integers(0, 6))
def test_a_single_job_waits_only_for_too_small_quotas(windows, job, quota):
    case, started, now = ahead(windows, [job], quota, 24)
    spec = next(each.spec for each in case.objects.queues if each.metadata.name == "team")
    gpus, hours = job
    until = now + (8 * 86_400 if hours is None else hours * 3_600)
    short = [at for at, in_force in slices(spec, now, until) if in_force.resources.gpu.quota < gpus]
    assert bool(started) is not bool(short)
    begin = first_start([(spec, gpus)], "gpu", now, inf if hours is None else hours * 3_600)
    assert (begin == now) is bool(started)
    if begin is not None and begin > now:
        after = [each for _, each in slices(spec, begin, begin + until - now)]
        assert all(each.resources.gpu.quota >= gpus for each in after)
