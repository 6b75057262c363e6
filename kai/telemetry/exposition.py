"""What Prometheus reads: a registry as text, metrics with one prefix, and gauges whose series come and go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from traceback import walk_tb
from typing import Final

import anyio.to_thread
import attrs
import structlog
from prometheus_client import (
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from kai.errors import places, told
from kai.telemetry.connections import Response
from kai.telemetry.listener import Route

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


@attrs.frozen
class Maker:
    """Makes metrics with one prefix in one registry."""

    registry: CollectorRegistry
    prefix: str

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Return a new gauge."""
        return Gauge(self.prefix + name, text, labels, registry=self.registry)

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Return a new counter."""
        return Counter(self.prefix + name, text, labels, registry=self.registry)

    def histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        """Return a new histogram."""
        return Histogram(self.prefix + name, text, labels, buckets=buckets, registry=self.registry)


@attrs.define(eq=False)
class ChangingSeries:
    """A gauge with one label, whose values come and go.

    Series are read in another thread, at any moment. One that is there before and after is there in between as well: an
    alert that waits for minutes would begin anew whenever it is missing.
    """

    gauge: Gauge
    _known: frozenset[str] = frozenset()

    def show(self, values: Mapping[str, float]) -> None:
        """Show these values by their labels, and no others any more."""
        for label, value in values.items():
            self.gauge.labels(label).set(value)
        for gone in self._known - values.keys():
            self.gauge.remove(gone)
        self._known = frozenset(values)


def exposition(registry: CollectorRegistry, bare_counters: Iterable[str] = ()) -> bytes:
    """Return the metrics of a registry in Prometheus' text format.

    ``bare_counters`` are counters whose names do not end in ``_total``, as some of the peer's do not: the library puts
    that ending into the two lines above the values, but not into the names of samples that it did not make itself.

    When each counter and histogram began is left out, of which the library makes a second series for each: the peer has
    none.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
    text = generate_latest(registry)
    for name in bare_counters:
        for head in (b"# HELP ", b"# TYPE "):
            text = text.replace(head + name.encode() + b"_total ", head + name.encode() + b" ")
    return text


def others(registry: CollectorRegistry) -> bytes:
    """Return the metrics of a registry that any library and plugin of the process registers in; b"" if one raises.

    What a plugin shows must not hide what kai shows.
    """
    try:
        return exposition(registry)
    except Exception as error:  # noqa: BLE001 - the boundary of collectors that are not kai's
        at = places(walk_tb(error.__traceback__))
        structlog.get_logger().warning("metrics of plugins left out", why=told(error), at=at)
        return b""


def metrics_route(
    registry: CollectorRegistry, bare_counters: Iterable[str] = (), shared: CollectorRegistry = REGISTRY
) -> Route:
    """Return the route that answers ``/metrics``: those of ``registry``, and those of the ``shared`` one after them."""
    names = tuple(bare_counters)

    def text() -> bytes:
        return exposition(registry, names) + others(shared)

    async def answer() -> Response:
        return Response(body=await anyio.to_thread.run_sync(text), content_type=CONTENT_TYPE)

    return Route(answer=answer)
