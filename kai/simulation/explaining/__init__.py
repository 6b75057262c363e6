"""Why jobs wait and pods have to go: the reason, what proves it, and what would help.

Begin with `explanation`. A suggestion is proved by deciding again: `candidates` names changes, `changes` makes them,
`trials` decides. `condition_reasons`, `own_jobs` and `past_evictions` tell what a scheduler wrote itself; for that,
nothing is decided.
"""
