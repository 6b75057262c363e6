"""The port to a cluster: all that services use to read, write and lead.

Read `port` first, which defines it, and `connect`, which puts it together. The folders:

    transport/   the address of the API server, our credentials, HTTP calls and the meaning of replies
    caching/     the objects of the cluster in memory, kept current by watches
    requesting/  carries out requests in order, and repeats them where that is safe
    election/    leader election by a lease
    process/     what a process needs besides: logs, traces, probes, the listener for metrics, the decision log

Beside them are `requests` (the requests of a service), `work` (plans of several requests, and work queues of
controllers), `signals` (events for metrics) and `threads` (the clock, long batches, computing beside the event loop).
This module imports nothing: a command that makes a single request needs a client, but no store of the cluster.
"""
