"""Simulation: decide on a cluster that is written down, with virtual time and no network.

``kai.simulation.source`` reads what is given (a scenario, manifests, the peer's snapshot) into a ``Case``;
``kai.simulation.run`` takes snapshots and decides, ``kai.simulation.between`` lets the cluster react; ``answer`` and
``overview`` say what came out, for machines and for people.
"""

from kai.simulation.case import Case
from kai.simulation.run import Cycle, Outcome, simulate
from kai.simulation.source import read_case

__all__ = ["Case", "Cycle", "Outcome", "read_case", "simulate"]
