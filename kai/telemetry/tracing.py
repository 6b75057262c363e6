"""Traces: OpenTelemetry. Without an endpoint nothing is recorded, and it costs next to nothing to ask for a span.

What records is imported by `make_tracing` when there is an endpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import attrs
from opentelemetry.trace import NoOpTracer, Span, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from kai.errors import CommandLineError
from kai.extras import load_extra
from kai.notation import shown

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

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
