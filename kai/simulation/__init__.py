"""Simulation: decide on a cluster that is written down, with virtual time and no network.

``kai.simulation.source`` reads what is given (a scenario, manifests, the peer's snapshot) into a ``Case``;
``kai.simulation.run`` takes snapshots and decides, ``kai.simulation.between`` lets the cluster react; ``answer`` and
``overview`` say what came out, for machines and for people.

Nothing is imported here: a few modules are values only, and are read without what decides.
"""
