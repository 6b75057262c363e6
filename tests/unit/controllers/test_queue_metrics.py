from prometheus_client import CollectorRegistry

from kai.api.codec import structure_as
from kai.api.queue import Queue
from kai.controllers.queue_metrics import QueueMetrics
from kai.controllers.queue_service import QueueCounted, QueueGone


def queue(name="q", quota=None, allocated=None, labels=None):
    manifest = {"metadata": {"name": name, "labels": labels or {}}, "spec": {"displayName": "Team Q"}}
    if quota is not None:
        manifest["spec"]["resources"] = {part: {"quota": value} for part, value in quota.items()}
    return structure_as(Queue, {**manifest, "status": {"allocated": allocated or {}}})


def series(registry):
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for metric in registry.collect()
        for sample in metric.samples
    }


def values(registry):
    return {key[0]: value for key, value in series(registry).items()}


def test_units_are_those_of_the_peer():
    registry = CollectorRegistry()
    metrics = QueueMetrics(registry)
    quota = {"gpu": 2.5, "cpu": 4500, "memory": 3}
    allocated = {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "333333m"}
    metrics.observe(QueueCounted(queue(quota=quota, allocated=allocated)))
    assert values(registry) == {
        "kai_queue_info": 1,
        "kai_queue_deserved_gpus": 2.5,
        "kai_queue_quota_cpu_cores": 4.5,
        "kai_queue_quota_memory_bytes": 3_000_000,
        "kai_queue_allocated_gpus": 333.333,
        "kai_queue_allocated_cpu_cores": 1.5,
        "kai_queue_allocated_memory_bytes": 2**30,
    }


def test_no_bound_is_written_as_minus_one_and_nothing_as_zero():
    registry = CollectorRegistry()
    QueueMetrics(registry, "").observe(QueueCounted(queue(quota={"gpu": -1, "cpu": -1, "memory": -1})))
    assert set(values(registry).values()) == {1, -1, 0}
    assert values(registry)["queue_quota_memory_bytes"] == -1


def test_labels_of_queues_become_labels_of_metrics_with_defaults():
    registry = CollectorRegistry()
    metrics = QueueMetrics(registry, queue_labels={"cost": "cost_center", "tier": "tier"}, defaults={"tier": "none"})
    metrics.observe(QueueCounted(queue(labels={"cost": "7"})))
    labels = dict(next(iter(series(registry)))[1:])
    assert labels == {
        "queue_name": "q",
        "queue_metadata_name": "q",
        "queue_display_name": "Team Q",
        "cost_center": "7",
        "tier": "none",
    }


def test_series_end_with_their_queue_and_move_with_its_labels():
    registry = CollectorRegistry()
    metrics = QueueMetrics(registry, queue_labels={"cost": "cost_center"})
    metrics.observe(QueueCounted(queue(labels={"cost": "7"})))
    metrics.observe(QueueCounted(queue(labels={"cost": "8"})))
    assert len(series(registry)) == 7
    metrics.observe(QueueGone(queue()))
    metrics.observe(QueueGone(queue("never seen")))
    metrics.observe("something else")
    assert series(registry) == {}
