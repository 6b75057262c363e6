"""Logs, traces, probes and the port for metrics; knows nothing of scheduling.

`logs` and `tracing` set up structlog and OpenTelemetry; `listener` is a small HTTP server for whoever looks at a
process, `probes` what a kubelet asks, `exposition` what Prometheus reads.
"""
