"""One run: events change the embedded cluster, and the scheduler runs a cycle after a change.

Begin with `simulation`. The clock, the cluster and the owners of pods are models; the scheduler is the real one.
"""
