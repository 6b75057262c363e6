"""Traces are made only where somebody wants them."""

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kai.basics.errors import ConfigError
from kai.cluster.process.tracing import make_tracing, no_tracing, trace_parent


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


def test_a_trace_continues_where_its_parent_is_passed_on():
    exporter = InMemorySpanExporter()
    tracing = make_tracing("kai", exporter=exporter)
    cycle = tracing.tracer.start_span("cycle")
    with tracing.continued("bind", trace_parent(cycle)) as ended:
        ended("bound")
    with tracing.continued("alone", ""):
        pass
    cycle.end()
    tracing.close()
    spans = {each.name: each for each in exporter.get_finished_spans()}
    assert spans["bind"].parent.span_id == spans["cycle"].context.span_id
    assert spans["bind"].context.trace_id == spans["cycle"].context.trace_id != spans["alone"].context.trace_id
    assert spans["bind"].attributes == {"kai.outcome": "bound"}


def test_where_nothing_is_recorded_nothing_is_continued():
    with no_tracing().continued("bind", "00-" + "1" * 32 + "-" + "2" * 16 + "-01") as ended:
        ended("bound")
    assert not no_tracing().is_on
