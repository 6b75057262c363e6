"""The scheduler as a service: what the engine decides, carried to a cluster.

Read `service` first: wake, take the cluster's objects, decide in a worker thread, publish. `committer` looks once more
at every decision and says what to write; `orders` is what the writes look like. `explanations` turns the report of a
cycle into what users read, `publisher` writes of that what changed. `leading` is how a leader takes over. `budget` and
`observe` are the engine's two windows on time; `dump` is a cycle's input for others to repeat.
"""
