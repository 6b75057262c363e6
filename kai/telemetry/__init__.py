"""Logs, traces, probes and the port for metrics; knows nothing of scheduling.

`logs` and `tracing` set up structlog and OpenTelemetry; `connections` is HTTP for clients, with what strangers
may hold of it, `listener` what is answered to clients that look at a process, `probes` what a kubelet asks,
`exposition` what Prometheus reads.
"""
