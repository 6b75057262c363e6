"""The objects of a cluster in memory, kept current by watches. Read `store` first.

`watch` is the state machine that lists and watches one kind, and `watching` its shell. `assume_cache` holds the objects
of one kind with the assumptions over them, and `shown` the objects that readers see.
"""
