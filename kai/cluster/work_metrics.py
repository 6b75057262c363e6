"""Metrics of work by key, under the names that dashboards for controllers know.

Source: the peer's controllers export what their framework (controller-runtime) counts; names, labels and buckets are
those.
"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram

from kai.cluster.work import WorkEnded

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class WorkMetrics:
    """Counts looks, of all controllers of a process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._looks = Counter(
            "controller_runtime_reconcile_total", "Looks, by their end.", ("controller", "result"), registry=registry
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors_total", "Looks that failed.", ("controller",), registry=registry
        )
        self._seconds = Histogram(
            "controller_runtime_reconcile_time_seconds",
            "How long looks took.",
            ("controller",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._waits = Histogram(
            "workqueue_queue_duration_seconds",
            "How long keys waited to be looked at.",
            ("name",),
            buckets=_SECONDS,
            registry=registry,
        )

    def observe(self, fact: object) -> None:
        """Count a look that ended; other facts are not for here."""
        if not isinstance(fact, WorkEnded):
            return
        self._looks.labels(fact.work, "error" if fact.failed else "success").inc()
        if fact.failed:
            self._errors.labels(fact.work).inc()
        self._seconds.labels(fact.work).observe(fact.seconds)
        self._waits.labels(fact.work).observe(max(0.0, fact.waited - fact.seconds))
