"""The scheduler as a service: what the engine decides, carried to a cluster.

Read `service` first: it wakes, takes the cluster's objects, decides in a worker thread, and writes. `wakeups` says when
a cycle begins and how long the loop pauses, `kernel_warmup` compiles the kernels. `making` builds a service; `settings`
holds the settings of the administrator, `effects` the events, effects and signals of the state machines. The folders,
in the order in which a cycle passes them:

    feedback/    the outcome of earlier decisions
    cycle/       one cycle: its input, the worker thread, the stream of decisions, past usage, what is at fault
    committing/  decisions as writes, and the outcome of the writes
    publishing/  for users: conditions, events, timestamps
    reporting/   for operators: metrics, the log, the decision log, comparison with another scheduler
"""
