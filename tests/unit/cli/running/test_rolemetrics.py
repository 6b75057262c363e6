"""What roles did is counted by the class of the signal."""

from prometheus_client import CollectorRegistry

from kai.api.kubernetes.meta import ObjectMeta
from kai.api.scheduling.queue import Queue
from kai.cli.running.rolemetrics import RoleMetrics
from kai.cluster.process.exposition import exposition
from kai.cluster.signals import (
    BIND_RESULTS,
    BindEnded,
    CertificateUsed,
    QueueCounted,
    QueueGone,
    ReviewEnded,
    WorkEnded,
)
from kai.roles.binder import BindVerdict

QUEUE = Queue(metadata=ObjectMeta(name="q"))


def shown(*signals):
    registry = CollectorRegistry()
    metrics = RoleMetrics(registry)
    for signal in signals:
        metrics.observe(signal)
    return exposition(registry, ()).decode()


def test_each_result_of_a_bind_begins_at_0():
    assert set(BIND_RESULTS) == {each.value for each in BindVerdict} - {BindVerdict.NOTHING_TO_DO.value}
    text = shown()
    assert all(f'kai_bind_attempts_total{{result="{each}"}} 0.0' in text for each in BIND_RESULTS)


def test_binds_and_looks_are_counted():
    text = shown(
        BindEnded(result="bound", seconds=0.5),
        WorkEnded(work="queue-controller", failed=False, seconds=0.25, waited=1.0),
        WorkEnded(work="queue-controller", failed=True, seconds=0.25, waited=1.0),
    )
    assert 'kai_bind_attempts_total{result="bound"} 1.0' in text
    assert "kai_bind_attempt_seconds_sum 0.5" in text
    assert 'kai_looks_total{controller="queue-controller",result="done"} 1.0' in text
    assert 'kai_looks_total{controller="queue-controller",result="failed"} 1.0' in text


def test_a_queue_is_shown_until_it_is_gone():
    line = 'kai_queue_info{queue_display_name="",queue_metadata_name="q",queue_name="q"} 1.0'
    assert line in shown(QueueCounted(QUEUE))
    assert line not in shown(QueueCounted(QUEUE), QueueGone(QUEUE))


def test_webhook_answers_and_certificate_ends_are_metrics():
    text = shown(ReviewEnded(door="/validate--v1-pod", result="refused", seconds=0.5), CertificateUsed(1.75e9))
    assert 'kai_webhook_reviews_total{door="/validate--v1-pod",result="refused"} 1.0' in text
    assert "kai_webhook_review_seconds_sum 0.5" in text
    assert 'kai_webhook_certificate_end_seconds{client="kube-apiserver"} 1.75e+09' in text


def test_an_unused_certificate_has_no_metric():
    assert "kai_webhook_certificate_end_seconds{" not in shown()
