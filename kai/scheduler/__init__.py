"""The scheduler as a service: what the engine decides, carried to a cluster.

Read `service` first: wake, take the cluster's objects, decide in a worker thread, write. What is where, in the order in
which a cycle goes; a name with a slash is a room of several modules, each of which says what to read first:

    the loop                making, settings, service, rests, rhythm, pausing, independent_pods, other_pools, prefetch,
                            warming, compiling
    what a cycle is given   cycle_input, feedback/, single_pod_groups, usage, usage_queries
    one cycle               cycling, search_budget, stream, observe
    where a cycle fails     suspects, faults, tracebacks, aside
    decisions as writes     committing/, orders, reader, effects, outbox
    what users read         explanations, early_successors, publishing/
    what operators read     signals, signal_log, metrics, evicted_groups, cycle_recorder, hourly, decision_log, dump,
                            joborder
    another scheduler       shadow, shadowing, placements
"""
