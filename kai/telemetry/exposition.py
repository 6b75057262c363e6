"""What Prometheus reads: a registry as text, metrics with one prefix, and gauges whose series come and go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from traceback import walk_tb
from typing import Final, TypeAlias

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
from prometheus_client.core import Metric
from prometheus_client.samples import Sample
from prometheus_client.utils import floatToGoString

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

    def counter(self, name: str, text: str, *labels: str, begins: Iterable[Sequence[str]] = ()) -> Counter:
        """Return a new counter, with a series at 0 for each of the label values with which it ``begins``.

        Prometheus counts differences, so it does not see what a series is born with: the first failure of its kind
        would be on no dashboard and raise no alert. Name every label value that is known beforehand.
        """
        made = Counter(self.prefix + name, text, labels, registry=self.registry)
        for values in begins:
            made.labels(*values)
        return made

    def table(self, gauges: Sequence[tuple[str, str]], *labels: str) -> GaugeTable:
        """Return a new table with these gauges, each a name and a text."""
        table = GaugeTable(tuple((self.prefix + name, text) for name, text in gauges), labels)
        self.registry.register(table)
        return table

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


Labels: TypeAlias = tuple[str, ...]


@attrs.define(eq=False)
class GaugeTable:
    """Gauges with the same labels: a row for each thing that there is, a column for each gauge.

    The library takes 15 us to write one sample, which is 0.6 s for the gauges of 3,000 queues in one process. So the
    text of a row is kept until one of its figures changes, and the whole until any does. Rows are read in another
    thread, at any moment, and each read sees all rows of one moment.
    """

    gauges: Sequence[tuple[str, str]]
    """Name and text of each."""
    labels: Labels
    _rows: dict[Labels, Sequence[float]] = attrs.field(factory=dict)
    _shown: Mapping[Labels, Sequence[float]] = attrs.field(factory=dict)
    """The rows as they were read last; replaced where one changed since, and never changed itself."""
    _has_changed: bool = False
    _heads: dict[Labels, Sequence[str]] = attrs.field(factory=dict)
    """The text of each sample before its value."""
    _lines: dict[Labels, tuple[Sequence[float], Sequence[str]]] = attrs.field(factory=dict)
    """The figures of a row, and its lines."""
    _text: tuple[Mapping[Labels, Sequence[float]] | None, bytes] = (None, b"")
    """The rows for which a text was made last, and that text."""

    def put(self, row: Labels, figures: Sequence[float]) -> None:
        """Show these figures in a row."""
        if self._rows.get(row) != figures:
            self._rows[row] = figures
            self._has_changed = True

    def remove(self, row: Labels) -> None:
        """Show a row no more."""
        del self._rows[row]
        self._has_changed = True

    def show(self, rows: Mapping[Labels, Sequence[float]]) -> None:
        """Show these rows, and no others any more."""
        if rows != self._rows:
            self._rows = dict(rows)
            self._has_changed = True

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges. Called by the library, in whatever thread."""
        if self._has_changed:
            self._has_changed = False  # before the copy: what changes after it is read the next time
            self._shown = self._rows.copy()
        rows = self._shown
        for at, (name, text) in enumerate(self.gauges):
            yield _Column(self, rows, at, name, text)

    def describe(self) -> Iterator[Metric]:
        """Yield the gauges without samples, so that none is registered twice. Called by the library."""
        for name, text in self.gauges:
            yield Metric(name, text, "gauge")

    def text(self, rows: Mapping[Labels, Sequence[float]]) -> bytes:
        """Return ``rows`` in Prometheus' text format."""
        made_for, text = self._text
        if made_for is rows:
            return text
        lines = {key: self._row(key, figures) for key, figures in rows.items()}
        # What is gone is forgotten.
        self._lines, self._heads = lines, {key: self._heads[key] for key in lines}
        out = []
        for at, (name, about) in enumerate(self.gauges):
            out.append(f"# HELP {name} {about}\n# TYPE {name} gauge\n")
            out += [texts[at] for _, texts in lines.values()]
        text = "".join(out).encode()
        self._text = (rows, text)
        return text

    def _row(self, key: Labels, figures: Sequence[float]) -> tuple[Sequence[float], Sequence[str]]:
        found = self._lines.get(key)
        if found is not None and found[0] == figures:
            return found
        heads = self._heads.get(key)
        if heads is None:
            pairs = sorted(zip(self.labels, key, strict=True))
            shown = ",".join(f'{label}="{_escaped(value)}"' for label, value in pairs)
            heads = self._heads[key] = [f"{name}{{{shown}}} " for name, _ in self.gauges]
        values = [floatToGoString(each) for each in figures]  # type: ignore[no-untyped-call]  # it has no annotations
        return figures, [f"{head}{value}\n" for head, value in zip(heads, values, strict=True)]


class _Column(Metric):
    """One gauge of a table as the library knows it; its samples are made where they are asked for."""

    def __init__(
        self, table: GaugeTable, rows: Mapping[Labels, Sequence[float]], at: int, name: str, text: str
    ) -> None:
        super().__init__(name, text, "gauge")
        self.table, self.rows, self.at = table, rows, at

    @property
    def samples(self) -> list[Sample]:
        """The samples."""
        return [
            Sample(self.name, dict(zip(self.table.labels, key, strict=True)), figures[self.at])
            for key, figures in self.rows.items()
        ]

    @samples.setter
    def samples(self, found: list[Sample]) -> None:
        """Take no samples: those of the table are all there are."""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@attrs.frozen
class _Others:
    """Metrics whose text the library makes."""

    metrics: Sequence[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def exposition(registry: CollectorRegistry, bare_counters: Iterable[str] = ()) -> bytes:
    """Return the metrics of a registry in Prometheus' text format.

    ``bare_counters`` are counters whose names do not end in ``_total``, as some of the peer's do not: the library puts
    that ending into the two lines above the values, but not into the names of samples that it did not make itself.

    When each counter and histogram began is left out, of which the library makes a second series for each: the peer has
    none.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]  # it has no annotations
    metrics = list(registry.collect())
    text = generate_latest(_Others([each for each in metrics if not isinstance(each, _Column)]))
    for name in bare_counters:
        for head in (b"# HELP ", b"# TYPE "):
            text = text.replace(head + name.encode() + b"_total ", head + name.encode() + b" ")
    tables = {id(each.table): (each.table, each.rows) for each in metrics if isinstance(each, _Column)}
    return text + b"".join(table.text(rows) for table, rows in tables.values())


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
