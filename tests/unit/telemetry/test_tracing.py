"""Traces are made only where somebody wants them."""

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kai.errors import ConfigError
from kai.telemetry.tracing import make_tracing, trace_parent


def test_without_an_endpoint_nothing_is_recorded():
    tracing = make_tracing("kai")
    span = tracing.tracer.start_span("cycle")
    assert not tracing.is_on
    assert trace_parent(span) == ""
    tracing.close()


def test_a_span_can_be_continued_elsewhere():
    exporter = InMemorySpanExporter()
    tracing = make_tracing("kai", exporter=exporter)
    span = tracing.tracer.start_span("cycle")
    version, trace, parent, flags = trace_parent(span).split("-")
    assert (version, len(trace), len(parent)) == ("00", 32, 16)
    assert int(flags, 16) & 1
    span.end()
    tracing.close()
    assert [each.name for each in exporter.get_finished_spans()] == ["cycle"]


def test_an_endpoint_that_is_none_stops_the_start():
    with pytest.raises(ConfigError, match="--otlp-endpoint: found 'collector:4317'"):
        make_tracing("kai", endpoint="collector:4317")
