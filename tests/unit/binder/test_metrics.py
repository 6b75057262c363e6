from types import SimpleNamespace

from prometheus_client import CollectorRegistry

from kai.binder.metrics import BinderMetrics
from kai.binder.outcome import Verdict
from kai.binder.service import BindEnded, Swept


def test_ends_of_attempts_and_sweeps_are_counted():
    registry = CollectorRegistry()
    metrics = BinderMetrics(registry)
    metrics.watch(SimpleNamespace(waiting=3, running=2))
    for verdict in (Verdict.BOUND, Verdict.BOUND, Verdict.FAILED):
        metrics.observe(BindEnded(verdict=verdict, seconds=0.2))
    metrics.observe(Swept(deleted=2, succeeded=True))
    metrics.observe("something else")
    assert registry.get_sample_value("kai_binder_attempts_total", {"end": "bound"}) == 2
    assert registry.get_sample_value("kai_binder_attempts_total", {"end": "failed"}) == 1
    assert registry.get_sample_value("kai_binder_attempt_duration_seconds_count") == 3
    assert registry.get_sample_value("kai_binder_swept_pods_total") == 2
    assert registry.get_sample_value("kai_binder_sweeps_total", {"end": "done"}) == 1
    assert registry.get_sample_value("kai_binder_waiting") == 3
    assert registry.get_sample_value("kai_binder_running") == 2
