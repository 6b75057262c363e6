"""Outcomes beside something else: another outcome, what a case expects, what another scheduler did.

Begin with `comparison`. `arrival` compares a cluster with and without a workload that is to come.
"""
