"""Why jobs wait and pods have to go: the reason, what proves it, and what would help.

Begin with `explanation`. A suggestion is proved by deciding again: `candidates` names changes, `changes` makes them,
`trials` decides. What a scheduler wrote itself is told by `told`, `own` and `past_evictions`, and nothing is decided.
"""
