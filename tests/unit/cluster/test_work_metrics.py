from prometheus_client import CollectorRegistry

from kai.cluster.work import WorkEnded
from kai.cluster.work_metrics import WorkMetrics


def test_looks_are_counted_by_controller_and_end():
    registry = CollectorRegistry()
    metrics = WorkMetrics(registry)
    metrics.observe(WorkEnded(work="podgrouper", failed=False, seconds=0.2, waited=1.2))
    metrics.observe(WorkEnded(work="podgrouper", failed=True, seconds=0.1, waited=0.1))
    metrics.observe("something else")
    value = registry.get_sample_value
    for result in ("success", "error"):
        assert value("controller_runtime_reconcile_total", {"controller": "podgrouper", "result": result}) == 1
    assert value("controller_runtime_reconcile_errors_total", {"controller": "podgrouper"}) == 1
    assert value("workqueue_queue_duration_seconds_sum", {"name": "podgrouper"}) == 1.0
