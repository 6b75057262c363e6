"""Deciding on a case: snapshot, cycle, and what a cluster makes of it, as often as the case asks for.

Begin with `run`. The cycle is the one of the service; only what the cluster does in between is a model.
"""
