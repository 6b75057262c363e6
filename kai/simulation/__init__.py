"""Simulation: decide on a cluster from files or a snapshot, with virtual time and no network.

Read `request` first: it reads a case, applies the command line to it, decides, and compares. The subpackages, each of
which imports only those above it in this list:

    cases/       the input of one simulation
    scenarios/   scenario files, in the long and in the short form
    sources/     files, snapshots and running clusters become cases
    deciding/    snapshot, cycle, and the reaction of the cluster
    outcomes/    the results, for machines and for people
    explaining/  why jobs wait, the evidence, and what would help
    comparing/   with another outcome, another scheduler, or the expectation

This module imports nothing: some modules are plain values and are used without the code that decides.
"""
