"""Metrics have the peer's names, and do not grow for ever."""

import re

import attrs
from prometheus_client import CollectorRegistry, Counter, Gauge

from kai.cluster.process.exposition import EvictedGroups, exposition
from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine.cycle import run_cycle
from kai.facts.model.placement import Past
from kai.framework.decisions import Recorder
from kai.intake import Intake, IntakeSettings, take_snapshot
from kai.lab.scenarios.shorthand import NOW
from kai.roles.scheduler.cycle.cycle_input import Spent
from kai.roles.scheduler.effects import (
    BindDropped,
    BindOrdered,
    BindRefused,
    Evicted,
    EvictionRefused,
    StatementRejected,
    VictimGone,
)
from kai.roles.scheduler.publishing.explanations import explain
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics
from kai.testing import cluster
from tests.unit.roles.scheduler.small import small_cluster


def shown(act):
    registry = CollectorRegistry()
    metrics = SchedulerMetrics(registry)
    act(metrics)
    return exposition(registry, metrics.bare.names).decode()


def test_a_cycle_is_shown_as_the_peer_shows_it():
    def act(metrics):
        metrics.cycle(0.25)
        for phase in ("open", "close", "allocate", "snapshot", "explain"):
            metrics.phase(phase, 0.125)
        metrics.plugin("proportion", "open", 0.002)
        metrics.plugin("proportion", "close", 0.001)
        metrics.decided("allocate", bound=2, acted_on=3)
        metrics.searches({"preempt": Spent(groups=2, scenarios={"one": 5}, seconds={"one": 0.5}, stopped=1)})

    lines = shown(act).splitlines()
    for line in (
        "kai_e2e_scheduling_latency_milliseconds 250.0",
        "kai_open_session_latency_milliseconds 125.0",
        'kai_action_scheduling_latency_milliseconds{action="allocate"} 125.0',
        'kai_plugin_scheduling_latency_milliseconds{OnSession="OnSessionOpen",plugin="proportion"} 2.0',
        'kai_plugin_scheduling_latency_milliseconds{OnSession="OnSessionClose",plugin="proportion"} 1.0',
        'kai_podgroups_scheduled_by_action{action="allocate"} 2.0',
        'kai_podgroups_acted_on_by_action{action="allocate"} 3.0',
        'kai_scenarios_simulation_by_action{action="preempt"} 5.0',
        "# TYPE kai_total_preemption_attempts counter",
        "kai_total_preemption_attempts 2.0",
        'kai_scenario_search_jobs_total{action="preempt",reduced_budget="false",result="budget_exhausted"} 1.0',
    ):
        assert line in lines, line
    assert not [line for line in lines if 'action="explain"' in line]


def test_a_plugin_now_stopping_cycles_is_shown_only_so():
    def act(metrics):
        metrics.plugins_failing(frozenset({("p", "NodeFilter.filter", "refuse"), ("q", "open", "stop")}))
        metrics.plugins_failing(frozenset({("p", "NodeFilter.filter", "stop")}))

    lines = [line for line in shown(act).splitlines() if line.startswith("kai_plugin_failing{")]
    assert sorted(lines) == [
        'kai_plugin_failing{hook="NodeFilter.filter",plugin="p",then="refuse"} 0.0',
        'kai_plugin_failing{hook="NodeFilter.filter",plugin="p",then="stop"} 1.0',
        'kai_plugin_failing{hook="open",plugin="q",then="stop"} 0.0',
    ]


def test_queues_and_idle_gpus_are_shown_after_a_cycle():
    snapshot = take_snapshot(small_cluster(), 0.0)
    report = run_cycle(snapshot, default_profile(), Recorder())
    text = shown(lambda metrics: metrics.state(snapshot, report, explain(snapshot, report, "").waiting))
    assert 'kai_queue_fair_share_gpu{queue_display_name="",queue_metadata_name="a",queue_name="a"}' in text
    assert "kai_gpu_idle 0.0" in text
    assert "kai_gpu_fragmentation_ratio 0.0" in text


def test_a_deleted_queues_series_go_and_others_stay():
    few = small_cluster()
    last = few.queues[-1]
    added = attrs.evolve(last, metadata=attrs.evolve(last.metadata, name="more", uid="more"))
    more = attrs.evolve(few, queues=(*few.queues, added))
    snapshots = [take_snapshot(objects, 0.0) for objects in (more, few, few)]

    def act(metrics):
        for snapshot in snapshots:
            metrics.state(snapshot, run_cycle(snapshot, default_profile(), Recorder()), {})

    lines = [line for line in shown(act).splitlines() if line.startswith("kai_queue_")]
    names = [line.partition('queue_name="')[2].partition('"')[0] for line in lines]
    assert {name: names.count(name) for name in names} == {queue.name: 6 for queue in snapshots[-1].queues}


def test_continuing_series_are_never_missing_during_an_update(monkeypatch):
    """What Prometheus reads is read in another thread; an alert on what is missing once would wait anew."""
    snapshot = take_snapshot(small_cluster(), 0.0)
    report = run_cycle(snapshot, default_profile(), Recorder())
    metrics = SchedulerMetrics(registry := CollectorRegistry())

    def series():
        return {line.rpartition(" ")[0] for line in exposition(registry).decode().splitlines() if "{" in line}

    metrics.state(snapshot, report, explain(snapshot, report, "").waiting)
    before, labels, seen = series(), Gauge.labels, []
    assert any(line.startswith("kai_pending_pods{") for line in before)

    def looking(gauge, *values):
        seen.append(series())
        return labels(gauge, *values)

    monkeypatch.setattr(Gauge, "labels", looking)
    *_, last = snapshot.queues
    fewer = attrs.evolve(report, fair_share=report.fair_share[:-1])
    metrics.state(attrs.evolve(snapshot, queues=snapshot.queues[:-1]), fewer, metrics.waiting)
    assert seen
    stay = {line for line in before if f'queue_name="{last.name}"' not in line}
    assert all(stay <= each for each in seen)
    assert series() == stay


def test_series_of_evicted_groups_do_not_grow_with_time():
    """A group is evicted every two seconds and gone soon after: what is kept follows the rate, and not the time."""
    times, registry = [0.0], CollectorRegistry()
    evicted = EvictedGroups(Counter("e", "", ("group", "uid"), registry=registry), 1, lambda: times[-1])
    counts = []
    for number in range(43_200):
        times.append(2.0 * number)
        evicted.count((f"g{number}", f"u{number}"))
        evicted.keep(lambda number=number: (f"u{each}" for each in range(number - 15, number + 1)))
        counts.append(len(evicted._counted))
    steady = counts[900:]
    assert (min(steady), max(steady)) == (300, 329), "ten minutes, and up to one more, at a group in two seconds"
    assert max(steady[-900:]) == max(steady[:900])


def test_eviction_counts_keep_the_newest_thousand_groups():
    def act(metrics):
        for number in range(1100):
            group = (f"g{number}", "default", f"u{number}")
            metrics.take(Evicted(pod="default/p", cause="reclaim", seconds=0.1, group=group))

    lines = [line for line in shown(act).splitlines() if line.startswith("kai_pod_group_evicted_pods_total{")]
    assert len(lines) == 1000
    assert 'podgroup="g1099"' in lines[-1]


def test_a_deleted_groups_count_goes_after_it_was_scraped():
    snapshot = take_snapshot(small_cluster(), 0.0)
    report = run_cycle(snapshot, default_profile(), Recorder())
    (stays,) = [(group.name, group.namespace, group.uid) for group in snapshot.groups if group.name == "runs"]
    times, registry = [0.0], CollectorRegistry()
    metrics = SchedulerMetrics(registry, clock=lambda: times[-1])

    def evict(group):
        metrics.take(Evicted(pod="default/p", cause="reclaim", seconds=0.1, group=group))

    def counted_after(seconds):
        times.append(times[-1] + seconds)
        metrics.state(snapshot, report, explain(snapshot, report, "").waiting)
        lines = exposition(registry).decode().splitlines()
        return [line for line in lines if line.startswith("kai_pod_group_evicted_pods_total{")]

    evict(stays)
    evict(("gone", "default", "gone"))
    assert len(counted_after(0)) == 2
    assert len(counted_after(590)) == 2
    evict(("gone too", "default", "gone too"))
    (first, second) = counted_after(20)
    assert 'podgroup="runs"' in first
    assert 'podgroup="gone too"' in second
    (first,) = counted_after(700)
    assert 'podgroup="runs"' in first


def test_each_write_signal_is_counted_by_its_class():
    def act(metrics):
        metrics.take(BindOrdered(pod="default/p", node="n", seconds=0.002, waited=3.0))
        metrics.take(BindRefused(pod="default/p", why="no room"))
        metrics.take(Evicted(pod="default/p", cause="reclaim", seconds=0.1, group=None, gpus=2500))
        metrics.take(EvictionRefused(pod="default/p", why="a budget", cause="preempt"))
        metrics.take(StatementRejected(why="a watch is silent", decisions=2))
        metrics.take(VictimGone(pod="default/p", cause="preempt"))
        metrics.take(BindDropped(pod="default/p", why="the pod is gone"))

    lines = shown(act).splitlines()
    for line in (
        'kai_binds_total{result="ordered"} 1.0',
        'kai_binds_total{result="refused"} 1.0',
        "kai_task_bind_latency_milliseconds_sum 2.0",
        "kai_task_scheduling_latency_milliseconds_sum 3000.0",
        "kai_pod_queueing_seconds_sum 3.0",
        'kai_evictions_total{cause="reclaim",result="done"} 1.0',
        'kai_evicted_gpus_total{cause="reclaim"} 2.5',
        'kai_evictions_total{cause="preempt",result="refused"} 1.0',
        'kai_evictions_total{cause="preempt",result="dropped"} 1.0',
        'kai_evictions_total{cause="consolidation",result="done"} 0.0',
        'kai_binds_total{result="dropped"} 1.0',
        "kai_statements_rejected_total 1.0",
    ):
        assert line in lines, line


def test_a_crowded_namespace_shows_shapes_and_deferred_groups():
    groups = {f"g{at}": {"each": {"cpu": at + 1}} for at in range(10)}
    objects = cluster({"n": {"cpu": 2000}}, groups)
    crowded = Intake(IntakeSettings(namespace_shapes=4)).take(objects, NOW)
    calm = Intake(IntakeSettings(namespace_shapes=10)).take(objects, NOW)
    report = run_cycle(crowded, default_profile(), Recorder())

    text = shown(lambda metrics: metrics.state(crowded, report, {}))
    assert 'kai_namespace_pending_shapes{namespace="default"} 10.0' in text
    assert 'kai_namespace_deferred_groups{namespace="default"} 6.0' in text

    def act(metrics):
        metrics.state(crowded, report, {})
        metrics.state(calm, report, {})

    assert 'namespace="default"' not in shown(act)


def test_an_unfinished_cycle_shows_its_duration():
    now, registry = [100.0], CollectorRegistry()
    metrics = SchedulerMetrics(registry, clock=lambda: now[0])

    def lasts():
        return registry.get_sample_value("kai_cycle_under_way_seconds")

    assert lasts() == 0.0
    metrics.cycle_is_under_way(now=True)
    now[0] = 175.0
    assert lasts() == 75.0
    metrics.cycle_is_under_way(now=False)
    assert lasts() == 0.0


def test_budgets_are_shown_with_what_was_used():
    queues = {
        "root": {"quota": 8, "budgets": {"all": {"amount": 9, "spent": 2, "enforce": "warn"}}},
        "a": {"parent": "root", "quota": 8, "budgets": {"own": {"amount": 6, "spent": 1}}},
    }
    annotations = {"kai.scheduler/max-runtime": "1h"}
    group = {"queue": "a", "runs_on": ["n1"], "started": "0s", "each": {"gpu": 2}, "annotations": annotations}
    snapshot = take_snapshot(cluster({"n1": {"gpu": 4}}, {"runs": group}, queues), now=NOW)
    report = run_cycle(snapshot, default_profile(), Recorder())
    lines = shown(lambda metrics: metrics.state(snapshot, report, {})).splitlines()
    own = 'budget="own",enforce="admit",queue_display_name="",queue_metadata_name="a",queue_name="a"'
    every = 'budget="all",enforce="warn",queue_display_name="",queue_metadata_name="root",queue_name="root"'
    for labels, numbers in ((own, ("6.0", "1.0", "2.0")), (every, ("9.0", "2.0", "0.0"))):
        for part, number in zip(("amount", "spent", "committed"), numbers, strict=True):
            (line,) = [
                each for each in lines if each.startswith(f"kai_queue_budget_{part}") and labels.split(",")[0] in each
            ]
            assert line.endswith(f" {number}"), line
    unknown = take_snapshot(cluster({"n1": {"gpu": 4}}, {"runs": group}, queues), now=NOW, past=Past(spent={}))
    lines = shown(lambda metrics: metrics.state(unknown, run_cycle(unknown, default_profile(), Recorder()), {}))
    assert len(re.findall(r"kai_queue_budget_spent_gpu_hours{.*} NaN", lines)) == 2
