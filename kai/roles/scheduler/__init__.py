"""The scheduler as a service: what the engine decides, carried to a cluster.

Read `loop/service` first: it wakes, takes the cluster's objects, decides in a worker thread, and writes. `making`
builds a service; `settings` holds the settings of the administrator, `effects` the events and effects of the state
machines. The folders, in the order in which a cycle passes them:

    loop/        when a cycle begins: the service, its pauses, the compilation of kernels
    feedback/    the outcome of earlier decisions
    cycle/       one cycle: its input, the worker thread, the stream of decisions, past usage
    failing/     when a cycle fails: which object or plugin is at fault, and what is set aside
    committing/  decisions as writes, and the outcome of the writes
    publishing/  for users: conditions, events, timestamps
    reporting/   for operators: metrics, the log, the decision log
    comparing/   comparison with the decisions of another scheduler
"""
