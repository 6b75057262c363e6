"""Leader election by a lease. Read `lease` first, the state machine; `leading` is its shell.

`takeover` holds the steps of a new leader before its first decision.
"""
