"""Topologies as intake reads them: levels of node labels, from the widest to the narrowest."""

from kai.model.constraints import TopologyConstraint
from kai.model.topology import Topology

__all__ = ["Topology", "TopologyConstraint"]
