"""Simulation: decide on a cluster that is written down, with virtual time and no network.

Read `request` first: it reads a case, changes what the command line changes about it, decides, and compares. The rooms,
each of which imports only those above it in this list:

    cases/       what one simulation is given
    scenarios/   scenario files, in the long and in the short form
    sources/     files, snapshots and running clusters become cases
    deciding/    snapshot, cycle, and how the cluster reacts
    outcomes/    what came out, for machines and for people
    explaining/  why jobs wait, what proves it, what would help
    comparing/   with another outcome, another scheduler, or what is expected

Nothing is imported here: a few modules are values only, and are read without what decides.
"""
