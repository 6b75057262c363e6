import attrs
import pytest

from kai.answers.offline.cluster_reaction import next_objects
from kai.answers.offline.run import simulate
from kai.lab.scenarios.scenario import read_short

QUEUES = {"root": {"quota": 8}, "a": {"parent": "root", "quota": 8}}


def outcome_of(groups, nodes=None, cycles=1, keep=(), **more):
    document = {"about": "x", "cluster": {"nodes": nodes or {"n1": {"gpu": 2}}}, "queues": QUEUES, "groups": groups}
    case = read_short({**document, "run": ["allocate", "preempt"], "cycles": cycles, **more}, "s.yaml")
    return simulate(attrs.evolve(case, keep_terminating=frozenset(keep)))


def objects_after(outcome):
    """Return the objects as the cluster holds them after everything that was simulated."""
    objects = outcome.case.objects
    for cycle in (*outcome.cycles, *outcome.stable):
        objects = next_objects(objects, cycle.aftermath, outcome.case.keep_terminating)
    return objects


def pods_after(outcome):
    return {pod.metadata.name: pod for pod in objects_after(outcome).pods}


PREEMPTED = {
    "low": {"priority": 40, "each": {"gpu": 2}, "runs_on": "n1"},
    "high": {"priority": 60, "each": {"gpu": 2}},
}


def test_a_bound_pod_runs_where_it_was_put():
    pod = pods_after(outcome_of({"g": {"each": {"gpu": 1}}}))["g-0"]
    assert (pod.status.phase, pod.spec.node_name) == ("Running", "n1")
    assert pod.metadata.annotations["received-resource-type"] == "Regular"


def test_an_evicted_pod_is_pending_and_its_promise_forgotten():
    pods = pods_after(outcome_of(PREEMPTED))
    assert {name: (pod.status.phase, pod.spec.node_name) for name, pod in pods.items()} == {
        "low-0": ("Pending", ""),
        "high-0": ("Pending", ""),
    }


def test_a_pod_that_must_keep_terminating_does():
    pods = pods_after(outcome_of(PREEMPTED, keep=["low"]))
    assert pods["low-0"].metadata.deletion_timestamp == 1767268800.0
    assert pods["low-0"].spec.node_name == "n1"


def test_the_next_cycle_starts_what_was_promised():
    outcome = outcome_of(PREEMPTED, cycles=2)
    assert [cycle.report.counts["evictions"] for cycle in outcome.cycles] == [1, 0]
    pods = pods_after(outcome)
    assert (pods["high-0"].status.phase, pods["low-0"].status.phase) == ("Running", "Pending")


def test_sharing_pods_keep_devices_and_new_ones_are_named():
    outcome = outcome_of({"halves": {"members": 3, "minimum": 1, "each": {"fraction": 0.5}}}, cycles=2)
    devices = [pod.metadata.labels["runai-gpu-group"] for pod in pods_after(outcome).values()]
    assert devices == ["opened-1-n1-0", "opened-1-n1-0", "opened-1-n1-1"]
    assert outcome.cycles[1].snapshot.pod_devices == {0: (devices[0],), 1: (devices[1],), 2: (devices[2],)}


def test_several_devices_have_a_label_each():
    pod = pods_after(outcome_of({"g": {"each": {"fraction": 0.5, "devices": 2}}}))["g-0"]
    labels = {key: value for key, value in pod.metadata.labels.items() if key.startswith("runai-gpu-group")}
    assert labels == {"runai-gpu-group": "opened-1-n1-0", "runai-gpu-group/opened-1-n1-1": "opened-1-n1-1"}


def test_a_started_group_counts_as_started_a_minute_ago():
    groups = {group.metadata.name: group for group in objects_after(outcome_of(PREEMPTED)).pod_groups}
    assert "kai.scheduler/last-start-timestamp" not in groups["high"].metadata.annotations
    assert groups["low"].metadata.annotations["kai.scheduler/last-eviction-timestamp"] == "2026-01-01T12:00:00Z"
    outcome = outcome_of({"g": {"each": {"gpu": 1}}})
    (group,) = objects_after(outcome).pod_groups
    assert group.metadata.annotations["kai.scheduler/last-start-timestamp"] == "2026-01-01T11:59:00Z"


def test_a_gang_below_its_minimum_is_stamped_stale():
    groups = {"g": {"members": 3, "each": {"gpu": 2}, "runs_on": {"n1": 1}}}
    outcome = outcome_of(groups, run=["stalegangeviction"])
    (group,) = objects_after(outcome).pod_groups
    assert group.metadata.annotations["kai.scheduler/stale-podgroup-timestamp"] == "2026-01-01T12:00:00Z"


def test_objects_that_nothing_happened_to_are_the_same_objects():
    outcome = outcome_of({"runs": {"each": {"gpu": 1}, "runs_on": "n1", "started": "1m"}, "big": {"each": {"gpu": 9}}})
    before = outcome.case.objects
    after = next_objects(before, outcome.last.aftermath, frozenset())
    assert all(one is other for one, other in zip(before.pods, after.pods, strict=True))
    assert all(one is other for one, other in zip(before.pod_groups, after.pod_groups, strict=True))
    assert after.nodes is before.nodes


@pytest.mark.parametrize("cycles", [1, 3])
def test_the_same_case_gives_the_same_outcome(cycles):
    first, second = (outcome_of(PREEMPTED, cycles=cycles) for _ in range(2))
    assert [cycle.decisions for cycle in first.cycles] == [cycle.decisions for cycle in second.cycles]
