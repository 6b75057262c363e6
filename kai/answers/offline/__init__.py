"""Deciding on a case: snapshot, cycle, and the reaction of the cluster, as often as the case says.

Begin with `run`. The cycle is that of the service; only the cluster between cycles is a model.
"""
