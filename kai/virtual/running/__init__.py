"""One run: events change the embedded cluster, and a cycle of the scheduler decides whenever something changed.

Begin with `simulation`. Clock, cluster and owners of pods are models; what decides is the scheduler itself.
"""
