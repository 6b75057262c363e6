"""Traces by OpenTelemetry, and a stopwatch for plugins.

Without an endpoint nothing is recorded, and a span costs next to nothing. `make_tracing` imports the SDK only with an
endpoint.

`PluginTimes` measures the functions of plugins. The engine has no clock: it passes each function of a plugin to a
stopwatch, if the shell provides one, and calls the wrapped function. Time spent in the engine or in another plugin in
between is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import attrs
from opentelemetry.trace import NoOpTracer, Span, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kai.basics.errors import CommandLineError, load_extra
from kai.basics.wording import shown

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter


P = ParamSpec("P")
R = TypeVar("R")


@attrs.define
class Taken:
    """Count and duration of the calls of one plugin function."""

    calls: int = 0
    seconds: float = 0.0


@attrs.define
class PluginTimes:
    """A stopwatch for one cycle; used by one thread."""

    clock: Callable[[], float]
    taken: dict[tuple[str, str], Taken] = attrs.field(factory=dict)
    """By plugin and function."""
    _inside: float = 0.0
    """Duration of the calls nested in the present call."""

    def timed(self, plugin: str, hook: str, function: Callable[P, R], /) -> Callable[P, R]:
        """Return ``function`` with its time counted for ``plugin``. Cost: half a microsecond a call."""
        return self._counted(self.taken.setdefault((plugin, hook), Taken()), function)

    def paused(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Return ``function`` with its time counted for no plugin, whichever calls it."""
        return self._counted(Taken(), function)

    def _counted(self, taken: Taken, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def ask(*args: P.args, **kwargs: P.kwargs) -> R:
            # Calls nest: what an inner call takes counts for its own plugin, and is taken off here.
            outside, self._inside = self._inside, 0.0
            since = self.clock()
            try:
                return function(*args, **kwargs)
            finally:
                took = self.clock() - since
                taken.calls += 1
                taken.seconds += took - self._inside
                self._inside = outside + took

        return ask


_EXPORTER: Final = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
_SCHEMES: Final = ("http://", "https://")


@attrs.frozen(kw_only=True)
class Tracing:
    """The source of spans. ``close`` sends the rest and may take seconds."""

    tracer: Tracer
    is_on: bool
    close: Callable[[], None]

    @contextmanager
    def continued(self, name: str, parent: str) -> Iterator[Callable[[str], None]]:
        """Record a span of a trace that began elsewhere; the yielded function takes its outcome.

        ``parent`` is the result of `trace_parent` there; if it is empty, a new trace begins.
        """
        if not self.is_on:
            yield _unheard
            return
        context = TraceContextTextMapPropagator().extract({"traceparent": parent}) if parent else None
        span = self.tracer.start_span(name, context=context)
        try:
            yield lambda outcome: span.set_attribute("kai.outcome", outcome)
        finally:
            span.end()


def _unheard(_: str) -> None:
    """Ignore the outcome."""


def no_tracing() -> Tracing:
    """Return a tracing that records nothing."""
    return Tracing(tracer=NoOpTracer(), is_on=False, close=lambda: None)


def make_tracing(service: str, *, endpoint: str = "", exporter: SpanExporter | None = None) -> Tracing:
    """Return a tracing that exports to an OTLP endpoint or to ``exporter``; without either, one that records nothing.

    Raises: CommandLineError for an endpoint that is no HTTP address, ConfigError if the exporter is not installed.
    """
    if exporter is None and not endpoint:
        return no_tracing()
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider(resource=Resource.create({"service.name": service}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(_otlp(endpoint) if exporter is None else exporter))
    return Tracing(tracer=provider.get_tracer("kai"), is_on=True, close=provider.shutdown)


def _otlp(endpoint: str) -> SpanExporter:
    if not endpoint.startswith(_SCHEMES):
        raise CommandLineError(
            f"--otlp-endpoint: found {shown(endpoint)}, expected an address that begins with http:// or https://"
        )
    module = load_extra(_EXPORTER, "tracing", "--otlp-endpoint: traces are sent by OpenTelemetry's OTLP exporter")
    exporter: Any = module.OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    made: SpanExporter = exporter
    return made


def trace_parent(span: Span) -> str:
    """Return the position of a span in its trace as a W3C ``traceparent``; "" if nothing is recorded."""
    context = span.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
