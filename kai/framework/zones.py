"""NUMA zones: what intake reads of nodes, what a placement draws from them, what is left."""

from kai.model.node import NumaLayout, NumaZone
from kai.model.placement import Amounts, NumaPlacement, ZonesLeft

__all__ = ["Amounts", "NumaLayout", "NumaPlacement", "NumaZone", "ZonesLeft"]
