"""Logs, traces, probes and the port for metrics; independent of scheduling.

`logs` and `tracing` set up structlog and OpenTelemetry. `connections` is the HTTP server, with limits on its clients;
`listener` serves probes and other routes; `exposition` renders metrics for Prometheus; `decisions` writes and reads the
decision log.
"""
