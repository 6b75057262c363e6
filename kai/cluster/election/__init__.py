"""Leader election by a lease. Begin with `lease`, the machine; `leading` is the shell around it.

`takeover` is what a new leader does before it decides anything.
"""
