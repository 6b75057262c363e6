"""Traces: OpenTelemetry. Without an endpoint nothing is recorded, and it costs next to nothing to ask for a span.

What records is imported by `make_tracing` when there is an endpoint.

How long plugins take: a stopwatch around each of their functions.

The engine has no clock. It hands each function of a plugin to a stopwatch, if the shell brings one, and calls what it
gets back. Time that the engine or another plugin needs in between does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import attrs
from opentelemetry.trace import NoOpTracer, Span, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kai.basics.wording import shown
from kai.errors import CommandLineError, load_extra

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter


P = ParamSpec("P")
R = TypeVar("R")


@attrs.define
class Taken:
    """What the calls of one function of a plugin took."""

    calls: int = 0
    seconds: float = 0.0


@attrs.define
class PluginTimes:
    """A stopwatch for one cycle; used by one thread."""

    clock: Callable[[], float]
    taken: dict[tuple[str, str], Taken] = attrs.field(factory=dict)
    """By the name of the plugin, and of what it was asked."""
    _inside: float = 0.0
    """What calls within the present call took."""

    def timed(self, plugin: str, hook: str, function: Callable[P, R], /) -> Callable[P, R]:
        """Return ``function`` with its time counted for ``plugin``. Cost: half a microsecond a call."""
        return self._counted(self.taken.setdefault((plugin, hook), Taken()), function)

    def paused(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Return ``function``, whose time counts for no plugin, whichever calls it."""
        return self._counted(Taken(), function)

    def _counted(self, taken: Taken, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def ask(*args: P.args, **kwargs: P.kwargs) -> R:
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
    """Where spans are made. ``close`` sends what is left and may take seconds."""

    tracer: Tracer
    is_on: bool
    close: Callable[[], None]

    @contextmanager
    def continued(self, name: str, parent: str) -> Iterator[Callable[[str], None]]:
        """Record what happens inside as a part of a trace that began elsewhere; what is yielded takes how it ended.

        ``parent`` is what `trace_parent` returned there; without one this begins a trace.
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
    """Take no notice."""


def no_tracing() -> Tracing:
    """Return a tracing that records nothing."""
    return Tracing(tracer=NoOpTracer(), is_on=False, close=lambda: None)


def make_tracing(service: str, *, endpoint: str = "", exporter: SpanExporter | None = None) -> Tracing:
    """Return a tracing that exports to an OTLP endpoint, or to ``exporter``; one that records nothing without either.

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
    """Return the place of a span in its trace as W3C's ``traceparent`` has it; "" where nothing is recorded."""
    context = span.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"
