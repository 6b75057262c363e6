"""The scheduler as a service: what the engine decides, carried to a cluster.

Read `loop/service` first: wake, take the cluster's objects, decide in a worker thread, write. `making` puts a service
together; `settings` has what an administrator decides, `effects` what machines want done. The folders, in the order
in which a cycle passes them:

    loop/        when a cycle begins: the service, its pauses, kernels that are compiled meanwhile
    feedback/    what became of earlier decisions
    cycle/       one cycle: its input, the worker thread, the stream of decisions, past usage
    failing/     where a cycle fails: which object or plugin is at fault, and what is set aside
    committing/  decisions as writes, and what becomes of the writes
    publishing/  what users read: conditions, events, timestamps
    reporting/   what operators read: metrics, the log, the decision log
    comparing/   decisions beside those of another scheduler
"""
