"""Metrics for Prometheus: a registry as text, metrics with a common prefix, and metrics whose series come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
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

from kai.basics.errors import error_text, places
from kai.cluster.process.connections import Response
from kai.cluster.process.listener import Route

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
        """Return a new counter, with a series at 0 for each of the label values in ``begins``.

        Prometheus computes differences, so it misses the first value of a new series: the first failure of its kind
        would be on no dashboard and raise no alert. Pass all label values that are known beforehand.
        """
        made = Counter(self.prefix + name, text, labels, registry=self.registry)
        for values in begins:
            made.labels(*values)
        return made

    def table(self, gauges: Sequence[tuple[str, str]], *labels: str) -> GaugeTable:
        """Return a new table with these gauges, each a name and a help text."""
        table = GaugeTable(tuple((self.prefix + name, text) for name, text in gauges), labels)
        self.registry.register(table)
        return table

    def histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        """Return a new histogram."""
        return Histogram(self.prefix + name, text, labels, buckets=buckets, registry=self.registry)


@attrs.define(eq=False)
class ChangingSeries:
    """A gauge with one label, whose values come and go.

    Series may be read in another thread at any moment. A series that exists before and after an update also exists
    during it: otherwise an alert with a waiting time would start anew.
    """

    gauge: Gauge
    _known: frozenset[str] = frozenset()

    def show(self, values: Mapping[str, float]) -> None:
        """Show exactly these values, by label."""
        # New values first: a series that stays is never missing, see above.
        for label, value in values.items():
            self.gauge.labels(label).set(value)
        for gone in self._known - values.keys():
            self.gauge.remove(gone)
        self._known = frozenset(values)


Labels: TypeAlias = tuple[str, ...]


@attrs.define(eq=False)
class GaugeTable:
    """Gauges with the same labels: a row for each object, a column for each gauge.

    The client library takes 15 us per sample, which is 0.6 s for the gauges of 3,000 queues in one process. So the text
    of a row is kept until one of its values changes, and the whole text until any value does. Rows may be read in
    another thread at any moment, and each read sees all rows of one moment.
    """

    gauges: Sequence[tuple[str, str]]
    """Name and help text of each gauge."""
    labels: Labels
    _rows: dict[Labels, Sequence[float]] = attrs.field(factory=dict)
    _shown: Mapping[Labels, Sequence[float]] = attrs.field(factory=dict)
    """The rows at the last read; replaced after a change, never mutated."""
    _has_changed: bool = False
    _heads: dict[Labels, Sequence[str]] = attrs.field(factory=dict)
    """The text of each sample before its value."""
    _lines: dict[Labels, tuple[Sequence[float], Sequence[str]]] = attrs.field(factory=dict)
    """The values of each row, and its lines."""
    _text: tuple[Mapping[Labels, Sequence[float]] | None, bytes] = (None, b"")
    """Memoized: rows, and their text."""

    def put(self, row: Labels, figures: Sequence[float]) -> None:
        """Set the values of a row."""
        # Most rows are the same as in the last cycle, and their text need not be made again.
        if self._rows.get(row) != figures:
            self._rows[row] = figures
            self._has_changed = True

    def remove(self, row: Labels) -> None:
        """Remove a row."""
        del self._rows[row]
        self._has_changed = True

    def show(self, rows: Mapping[Labels, Sequence[float]]) -> None:
        """Show exactly these rows."""
        if rows != self._rows:
            self._rows = dict(rows)
            self._has_changed = True

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges. Called by the client library, in any thread."""
        if self._has_changed:
            self._has_changed = False  # before the copy: a change during it is read the next time
            self._shown = self._rows.copy()
        rows = self._shown
        for at, (name, text) in enumerate(self.gauges):
            yield _Column(self, rows, at, name, text)

    def describe(self) -> Iterator[Metric]:
        """Yield the gauges without samples, for the check of duplicate names. Called by the client library."""
        for name, text in self.gauges:
            yield Metric(name, text, "gauge")

    def text(self, rows: Mapping[Labels, Sequence[float]]) -> bytes:
        """Return ``rows`` in Prometheus' text format."""
        made_for, text = self._text
        if made_for is rows:
            return text
        lines = {key: self._row(key, figures) for key, figures in rows.items()}
        # Drop the text of removed rows.
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
    """One gauge of a table for the client library; its samples are made on demand."""

    def __init__(
        self, table: GaugeTable, rows: Mapping[Labels, Sequence[float]], at: int, name: str, text: str
    ) -> None:
        super().__init__(name, text, "gauge")
        self.table, self.rows, self.at = table, rows, at

    @property
    def samples(self) -> list[Sample]:
        """The samples of this gauge."""
        return [
            Sample(self.name, dict(zip(self.table.labels, key, strict=True)), figures[self.at])
            for key, figures in self.rows.items()
        ]

    @samples.setter
    def samples(self, found: list[Sample]) -> None:
        """Ignore assignments: the samples come from the table."""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


@attrs.frozen
class _Others:
    """Metrics whose text the client library renders."""

    metrics: Sequence[Metric]

    def collect(self) -> Iterable[Metric]:
        return self.metrics


def exposition(registry: CollectorRegistry, bare_counters: Iterable[str] = ()) -> bytes:
    """Return the metrics of a registry in Prometheus' text format.

    ``bare_counters`` are counters whose names do not end in ``_total``, like some of KAI-Scheduler's. The library adds
    that ending in the HELP and TYPE lines, but not in the names of samples that it did not create itself.

    The creation times of counters and histograms are left out: the library makes an additional series for each, and
    KAI-Scheduler has none.
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
    """Return the metrics of a registry that any library and plugin may use; b"" if one of them raises.

    A failing plugin must not hide kai's own metrics.
    """
    try:
        return exposition(registry)
    except Exception as error:  # noqa: BLE001 - the boundary of collectors that are not kai's
        at = places(walk_tb(error.__traceback__))
        structlog.get_logger().warning("metrics of plugins left out", why=error_text(error), at=at)
        return b""


def metrics_route(
    registry: CollectorRegistry, bare_counters: Iterable[str] = (), shared: CollectorRegistry = REGISTRY
) -> Route:
    """Return the route for ``/metrics``: the metrics of ``registry``, then those of the ``shared`` registry."""
    names = tuple(bare_counters)

    def text() -> bytes:
        return exposition(registry, names) + others(shared)

    async def answer() -> Response:
        return Response(body=await anyio.to_thread.run_sync(text), content_type=CONTENT_TYPE)

    return Route(answer=answer)


_SCRAPED: Final = 600.0
"""How long a series stays after it last counted, at least.

Units: seconds.
"""
_APART: Final = 60.0
"""Interval between comparisons with the existing groups, at least.

Units: seconds.
"""
_MOST: Final = 1000


@attrs.define(eq=False)
class EvictedGroups:
    """Counts evicted pods by group.

    Units: seconds of a monotonic clock.
    """

    counter: Counter
    uid_at: int
    """Index of the label that holds the UID of the group."""
    clock: Callable[[], float]
    _counted: dict[Labels, float] = attrs.field(factory=dict)
    """When each series last counted, oldest first."""
    _looked: float = float("-inf")

    def count(self, labels: Labels) -> None:
        """Count a pod; beyond the limit of series, drop the one that counted longest ago."""
        self._counted.pop(labels, None)
        self._counted[labels] = self.clock()
        self.counter.labels(*labels).inc()
        if len(self._counted) > _MOST:
            self._remove(next(iter(self._counted)))

    def keep(self, uids: Callable[[], Iterable[str]]) -> None:
        """Drop old series whose groups are gone; ``uids`` returns the UIDs of existing groups.

        Cost: nothing while no series is old, else a scan of all groups once a minute.
        """
        now = self.clock()
        if now - self._looked < _APART:
            return
        # They are in the order of time, so the look ends at the first that is young.
        old = list(takewhile(lambda labels: self._counted[labels] <= now - _SCRAPED, self._counted))
        if not old:
            return
        self._looked = now
        there = frozenset(uids())
        for labels in old:
            if labels[self.uid_at] not in there:
                self._remove(labels)

    def _remove(self, labels: Labels) -> None:
        del self._counted[labels]
        self.counter.remove(*labels)
