"""Why jobs wait and pods are evicted: the reason, its evidence, and the changes that would help.

Begin with `explanation`. Each suggestion is proved by a new decision: `candidates` names changes, `changes` makes them,
and `trials` decides. `written`, `own_jobs` and `past_evictions` read what a scheduler wrote itself, and decide nothing.
"""
