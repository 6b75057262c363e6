"""Metrics of the binder: what becomes of binds, how long they take, what is swept. The peer has none of these."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kai.binder.service import BindEnded, BinderService, Swept

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


class BinderMetrics:
    """Counts binds."""

    def __init__(self, registry: CollectorRegistry, namespace: str = "kai") -> None:
        prefix = f"{namespace}_binder_" if namespace else "binder_"
        self._ends = Counter(prefix + "attempts_total", "Attempts at binds, by their end.", ("end",), registry=registry)
        self._seconds = Histogram(
            prefix + "attempt_duration_seconds", "How long attempts took.", buckets=_SECONDS, registry=registry
        )
        self._sweeps = Counter(prefix + "sweeps_total", "Sweeps, by their end.", ("end",), registry=registry)
        self._deleted = Counter(prefix + "swept_pods_total", "Pods that sweeps deleted.", registry=registry)
        self._waiting = Gauge(prefix + "waiting", "Orders that wait.", registry=registry)
        self._running = Gauge(prefix + "running", "Attempts under way.", registry=registry)

    def watch(self, binder: BinderService) -> None:
        """Read from a binder how much it has to do, whenever somebody asks."""
        self._waiting.set_function(lambda: binder.waiting)
        self._running.set_function(lambda: binder.running)

    def observe(self, fact: object) -> None:
        """Count what ended; other facts are not for here."""
        if isinstance(fact, BindEnded):
            self._ends.labels(fact.verdict.value).inc()
            self._seconds.observe(fact.seconds)
        elif isinstance(fact, Swept):
            self._sweeps.labels("done" if fact.succeeded else "failed").inc()
            self._deleted.inc(fact.deleted)
