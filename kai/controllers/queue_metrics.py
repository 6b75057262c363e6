"""Metrics of queues: what they may have and what they hold.

Source: names, labels, units and rounding are those of the peer's queue controller; its history of usage is read from
these series, so they must not differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from prometheus_client import CollectorRegistry, Gauge

from kai.api import names
from kai.api.amounts import exact
from kai.api.queue import Queue, QueueResources
from kai.api.wire import EMPTY
from kai.controllers.queue_service import QueueCounted, QueueGone

_LABELS: Final = ("queue_name", "queue_metadata_name", "queue_display_name")
_GPU_SUFFIX: Final = "/gpu"
_MILLICORES: Final = 1e-3
_MEGABYTES: Final = 1e6
_DECIMALS: Final = 4


class QueueMetrics:
    """The series of all queues that exist.

    `queue_labels` maps labels of queues to labels of metrics; `defaults` says, by label of the queue, what stands there
    for queues without it.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        namespace: str = "kai",
        queue_labels: Mapping[str, str] = EMPTY,
        defaults: Mapping[str, str] = EMPTY,
    ) -> None:
        prefix = f"{namespace}_" if namespace else ""
        labels = (*_LABELS, *queue_labels.values())

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(prefix + name, text, labels, registry=registry)

        self._queue_labels = tuple(queue_labels)
        self._defaults = defaults
        self._series: dict[str, tuple[str, ...]] = {}
        self._info = gauge("queue_info", "A queue; always 1.")
        self._gauges = (
            gauge("queue_deserved_gpus", "The quota of GPUs; -1 for no bound."),
            gauge("queue_quota_cpu_cores", "The quota of CPU; -1 for no bound."),
            gauge("queue_quota_memory_bytes", "The quota of memory; -1 for no bound."),
            gauge("queue_allocated_gpus", "The GPUs that pods below the queue hold."),
            gauge("queue_allocated_cpu_cores", "The CPU that pods below the queue hold."),
            gauge("queue_allocated_memory_bytes", "The memory that pods below the queue hold."),
        )

    def observe(self, fact: object) -> None:
        """Take over what a look at a queue found, or its end; other facts are not for here."""
        if isinstance(fact, QueueCounted):
            self._set(fact.queue)
        elif isinstance(fact, QueueGone):
            self._remove(fact.queue.metadata.name)

    def _set(self, queue: Queue) -> None:
        name = queue.metadata.name
        more = (queue.metadata.labels.get(key, self._defaults.get(key, "")) for key in self._queue_labels)
        labels = (name, name, queue.spec.display_name, *more)
        if self._series.get(name, labels) != labels:
            self._remove(name)
        self._series[name] = labels
        self._info.labels(*labels).set(1)
        for gauge, value in zip(self._gauges, _values(queue), strict=True):
            gauge.labels(*labels).set(round(value, _DECIMALS))

    def _remove(self, name: str) -> None:
        labels = self._series.pop(name, None)
        if labels is not None:
            for gauge in (self._info, *self._gauges):
                gauge.remove(*labels)


def _values(queue: Queue) -> tuple[float, ...]:
    resources = queue.spec.resources or QueueResources()
    held = queue.status.allocated
    gpu = next((key for key in sorted(held) if key.endswith(_GPU_SUFFIX)), names.NVIDIA_GPU)
    return (
        resources.gpu.quota,
        _scaled(resources.cpu.quota, _MILLICORES),
        _scaled(resources.memory.quota, _MEGABYTES),
        _amount(held, gpu),
        _amount(held, names.CPU),
        _amount(held, names.MEMORY),
    )


def _scaled(quota: float, unit: float) -> float:
    return names.UNLIMITED if quota == names.UNLIMITED else quota * unit


def _amount(held: Mapping[str, str], name: str) -> float:
    return exact(held[name]).billionths / 1e9 if name in held else 0.0
