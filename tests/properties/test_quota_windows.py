"""Laws of quotas that follow the clock."""

import datetime as dt
from itertools import pairwise
from math import inf
from pathlib import Path
from zoneinfo import ZoneInfo

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.answers.cases.case import Case
from kai.api.codec.structuring import structure_as
from kai.api.conventions.quota_windows import first_start, in_force, slices
from kai.api.scheduling.queue import Queue, QueueSchedule, ScheduledResources, ScheduledUser, ScheduledUsers
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


def with_limits_in_a_window(queue):
    """Return a queue that limits its users by a window that is always open, instead of outside of windows."""
    limits, free = queue.spec.resources.per_user, attrs.evolve(queue.spec.resources, per_user=None)
    if limits is None:
        return queue
    named = {part: ScheduledUser(limit=getattr(limits, part).limit) for part in ("gpu", "cpu", "memory")}
    window = attrs.evolve(ALWAYS, resources=ScheduledResources(per_user=ScheduledUsers(**named)))
    return attrs.evolve(queue, spec=attrs.evolve(queue.spec, resources=free, schedules=(window,)))


@pytest.mark.parametrize("path", sorted((SCENARIOS / "users").glob("*.yaml")), ids=lambda path: path.stem)
def test_limits_of_users_in_open_windows_decide_alike(path):
    case = load_scenario(path)
    queues = tuple(map(with_limits_in_a_window, case.objects.queues))
    assert any(each.spec.schedules for each in queues)
    assert decisions(attrs.evolve(case, objects=attrs.evolve(case.objects, queues=queues))) == decisions(case)


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
    for at, found in slices(spec, now, now + 8 * 86_400):
        assert held_at(jobs, started, at, now) <= min(found.resources.gpu.quota, above)


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


# --- Clocks that change ----------------------------------------------------------------------------------------------

ZONES = (
    *("Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Australia/Lord_Howe", "Asia/Kolkata"),
    *("Australia/Sydney", "America/Santiago", "Antarctica/Troll", "Africa/Casablanca"),
)
DAYS = 731
"""Two years."""


def shown_at(zone, begin, hour, minute):
    """Return, for each local date of two years, the instants at which a clock shows a time: none, one or two.

    It tries each offset that the zone has in these years, so it knows nothing of folds.
    """
    first = dt.datetime(begin.year, begin.month, begin.day, 12, tzinfo=dt.UTC)
    noons = [first + dt.timedelta(at) for at in range(DAYS)]
    offsets = {each.astimezone(zone).utcoffset() for each in noons}
    found = {}
    for noon in noons:
        local = noon.replace(hour=hour, minute=minute)
        instants = {local - each for each in offsets if (local - each).astimezone(zone).utcoffset() == each}
        found[noon.date()] = sorted(each.timestamp() for each in instants)
    return found


def joined(starts, seconds):
    """Return the begins and ends of windows, in which those that overlap or meet are one."""
    found = []
    for start in starts:
        if found and start <= found[-1][1]:
            found[-1][1] = start + seconds
        else:
            found.append([start, start + seconds])
    return [edge for window in found for edge in window]


@given(
    st.sampled_from(ZONES),
    st.dates(dt.date(2019, 1, 1), dt.date(2040, 1, 1)),
    st.integers(0, 23),
    st.sampled_from((0, 15, 30, 45)),
    st.integers(1, 21 * 60),
)
@settings(max_examples=10, deadline=None)
def test_next_edges_are_where_openness_changes_for_years(zone, begin, hour, minute, length):
    by_day = shown_at(ZoneInfo(zone), begin, hour, minute)
    wanted = joined([at for instants in by_day.values() for at in instants], 60.0 * length)
    written = {"name": "w", "start": f"{minute} {hour} * * *", "timeZone": zone, "duration": f"{length}m"}
    spec = structure_as(Queue, {"metadata": {"name": "q"}, "spec": {"schedules": [written]}}).spec
    is_open = True
    for edge, following in pairwise(wanted):
        for at in (edge, following - 1e-3):
            now = in_force(spec, at)
            assert (now.names, now.until) == (("w",) if is_open else (), following)
        is_open = not is_open


@given(
    st.sampled_from(ZONES),
    st.dates(dt.date(2019, 1, 1), dt.date(2040, 1, 1)),
    st.integers(0, 23),
    st.sampled_from((0, 15, 30, 45)),
)
@settings(max_examples=10, deadline=None)
def test_each_local_day_opens_one_window_or_clocks_change(zone, begin, hour, minute):
    written = {"name": "w", "start": f"{minute} {hour} * * *", "timeZone": zone, "duration": "1m"}
    spec = structure_as(Queue, {"metadata": {"name": "q"}, "spec": {"schedules": [written]}}).spec
    clock = ZoneInfo(zone)
    at = dt.datetime(begin.year, begin.month, begin.day, tzinfo=clock).timestamp() - 1.0
    opened = []
    while len(opened) < DAYS:
        now = in_force(spec, at)
        if now.names:
            opened.append(dt.datetime.fromtimestamp(at, clock))
        at = now.until
    assert {(each.hour, each.minute, each.second) for each in opened} == {(hour, minute, 0)}
    for one, other in pairwise(opened):
        days = (other.date() - one.date()).days
        # One window a day; a day without it or with two is one on which clocks change.
        assert days == 1 or (days in (0, 2) and one.utcoffset() != other.utcoffset())
