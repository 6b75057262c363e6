"""Comparisons of an outcome with another outcome, with the expectation of a case, or with another scheduler.

Begin with `comparison`. `arrival` compares a cluster with and without a workload that is to come.
"""
