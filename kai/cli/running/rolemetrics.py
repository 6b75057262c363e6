"""Prometheus metrics of the roles besides the scheduler.

Source: the queue controller's names, labels and roundings are KAI-Scheduler's; it has no metrics for the other roles.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import attrs
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from kai.api import names
from kai.api.kinds import BY_CLASS
from kai.api.values import BadValue, amount
from kai.cluster.port import Store
from kai.cluster.process.exposition import Maker
from kai.cluster.signals import (
    BIND_RESULTS,
    REVIEW_RESULTS,
    BindEnded,
    CertificateUsed,
    QueueCounted,
    QueueGone,
    ReviewEnded,
    Signal,
    WorkEnded,
)
from kai.cluster.transport.reachability import Rights

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Histogram

    from kai.api.scheduling.queue import Queue

_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_OWN: Final = ("queue_name", "queue_metadata_name", "queue_display_name")
_OF_QUEUES: Final = (
    ("queue_info", "A queue."),
    ("queue_deserved_gpus", "The quota of GPUs."),
    ("queue_quota_cpu_cores", "The quota of CPU cores."),
    ("queue_quota_memory_bytes", "The quota of memory."),
    ("queue_allocated_gpus", "GPUs that pods of the queue hold."),
    ("queue_allocated_cpu_cores", "CPU cores that pods of the queue hold."),
    ("queue_allocated_memory_bytes", "Memory that pods of the queue hold."),
)
"""In the order of `figures`."""
_MEGABYTE: Final = 1e6
_UNLIMITED: Final = -1.0


class RoleMetrics:
    """Records the signals of roles as metrics. Called on the event loop."""

    def __init__(
        self,
        registry: CollectorRegistry,
        namespace: str = "kai",
        labels: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> None:
        """Create the metrics; ``labels`` maps labels of queues to additional labels of metrics."""
        make = Maker(registry, f"{namespace}_" if namespace else "")
        self._more = dict(labels or {})
        self._defaults = dict(defaults or {})
        self._queues = make.table(_OF_QUEUES, *_OWN, *self._more.values())
        # All results from 0 on: Prometheus sees no increase in a series that begins at 1.
        begins = zip(BIND_RESULTS, strict=True)
        self._binds = make.counter("bind_attempts_total", "Attempts at binds.", "result", begins=begins)
        self._bind_seconds = make.histogram("bind_attempt_seconds", "How long attempts at binds take.", _SECONDS)
        self._looks = make.counter("looks_total", "Looks of controllers at objects.", "controller", "result")
        self._look_seconds = make.histogram(
            "look_seconds", "How long looks of controllers take.", _SECONDS, "controller"
        )
        self._reviews = make.counter("webhook_reviews_total", "Answers of webhooks.", "door", "result")
        self._review_seconds = make.histogram("webhook_review_seconds", "How long answers of webhooks take.", _SECONDS)
        # The label keeps the metric absent where no webhooks are served, so that an alert covers serving processes
        # only.
        self._certificate_end = make.gauge(
            "webhook_certificate_end_seconds",
            "When the certificate of the webhooks ends, in seconds since the epoch.",
            "client",
        )
        self._known: dict[str, tuple[str, ...]] = {}
        self._known_doors: set[str] = set()
        self._known_work: dict[tuple[str, bool], tuple[Counter, Histogram]] = {}

    def observe(self, signal: Signal) -> None:
        """Record one signal of a role."""
        match signal:
            case QueueCounted():
                self._count(signal.queue)
            case QueueGone():
                self._remove(signal.queue.metadata.name)
            case BindEnded():
                self._binds.labels(signal.result).inc()
                self._bind_seconds.observe(signal.seconds)
            case WorkEnded():
                looks, seconds = self._of_work(signal.work, failed=signal.failed)
                looks.inc()
                seconds.observe(signal.seconds)
            case ReviewEnded():
                self._review_count(signal).inc()
                self._review_seconds.observe(signal.seconds)
            case CertificateUsed():
                self._certificate_end.labels("kube-apiserver").set(signal.ends_at)

    def _review_count(self, signal: ReviewEnded) -> Counter:
        """Return the counter of a result at a door; the first call creates the counters of all results at 0."""
        if signal.door not in self._known_doors:
            self._known_doors.add(signal.door)
            for result in REVIEW_RESULTS:
                self._reviews.labels(signal.door, result)
        return self._reviews.labels(signal.door, signal.result)

    def _of_work(self, work: str, *, failed: bool) -> tuple[Counter, Histogram]:
        """Return the counter and histogram of a controller, memoized: there are several reconciles for each pod."""
        found = self._known_work.get((work, failed))
        if found is None:
            looks = self._looks.labels(work, "failed" if failed else "done")
            self._looks.labels(work, "done" if failed else "failed")  # so that both series exist from 0 on
            found = self._known_work[work, failed] = (looks, self._look_seconds.labels(work))
        return found

    def _count(self, queue: Queue) -> None:
        labels = (
            queue.metadata.name,
            queue.metadata.name,
            queue.spec.display_name,
            *(queue.metadata.labels.get(key, self._defaults.get(key, "")) for key in self._more),
        )
        # A changed label makes another series; the old one would stay at its last value for ever.
        if self._known.get(queue.metadata.name) != labels:
            self._remove(queue.metadata.name)
            self._known[queue.metadata.name] = labels
        self._queues.put(labels, figures(queue))

    def _remove(self, name: str) -> None:
        labels = self._known.pop(name, None)
        if labels is not None:
            self._queues.remove(labels)


@attrs.frozen(eq=False)
class ApiCalls:
    """Calls to the API server, as a collector of a registry."""

    sent: Mapping[tuple[str, str, int, str], int]
    """Number of answers by verb, resource, HTTP status (0: no answer), and the reason of a 403."""
    namespace: str

    def collect(self) -> Iterable[Metric]:
        """Yield the counter."""
        labels = ("verb", "resource", "code", "reason")
        family = CounterMetricFamily(_named("api_requests", self.namespace), "Calls to the API server.", labels=labels)
        for (verb, what, code, reason), count in sorted(self.sent.items()):
            family.add_metric((verb, what, str(code), reason), count)
        yield family


@attrs.frozen(eq=False)
class MissingRights:
    """Rights that the API server refused recently, as a collector of a registry."""

    rights: Rights
    namespace: str

    def collect(self) -> Iterable[Metric]:
        """Yield the gauge."""
        name, text = _named("missing_rights", self.namespace), "Rights that the API server refused lately."
        family = GaugeMetricFamily(name, text, labels=("verb", "resource"))
        for right, count in sorted(self.rights.missing().items()):
            family.add_metric(right, count)
        yield family


@attrs.frozen(eq=False)
class ObjectsNotRead:
    """Objects that the store rejected, or keeps in their last valid form, as a collector of a registry."""

    store: Store
    namespace: str

    def collect(self) -> Iterable[Metric]:
        """Yield the gauge."""
        name = _named("objects_not_read", self.namespace)
        family = GaugeMetricFamily(name, "Objects that cannot be read.", labels=("resource",))
        found = Counts(BY_CLASS[each.cls].plural for each in self.store.rejected)
        for plural, count in sorted(found.items()):
            family.add_metric((plural,), count)
        yield family


def _named(name: str, namespace: str) -> str:
    return f"{namespace}_{name}" if namespace else name


def figures(queue: Queue) -> tuple[float, ...]:
    """Return the figures of a queue, in the order of ``_OF_QUEUES``.

    Units: devices, cores and bytes; -1 is unlimited.
    """
    resources, allocated = queue.spec.resources, queue.status.allocated
    # Any vendor's: the first in order of names, as a cluster has one kind of them.
    gpu = next((text for name, text in sorted(allocated.items()) if name.endswith("/gpu")), "0")
    return (
        1.0,
        float(resources.gpu.quota) if resources else 0.0,
        _scaled(resources.cpu.quota if resources else 0.0, 1 / 1000),
        _scaled(resources.memory.quota if resources else 0.0, _MEGABYTE),
        _quantity(gpu),
        _quantity(allocated.get(names.CPU, "0")),
        _quantity(allocated.get(names.MEMORY, "0")),
    )


def _scaled(quota: float, unit: float) -> float:
    return _UNLIMITED if quota < 0 else round(quota * unit, 4)


def _quantity(text: str) -> float:
    try:
        return round(amount(text, 1000) / 1000, 4)
    except BadValue:
        return 0.0
