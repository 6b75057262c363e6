"""Topology: keep the pods of a group, or of a part of it, close together."""

from kai.plugins.topology.plugin import Topology

__all__ = ["Topology"]
