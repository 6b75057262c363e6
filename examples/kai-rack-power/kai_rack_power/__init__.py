"""Power caps for racks: a custom resource says what a rack may draw, and no pod starts there that would exceed it."""

from kai_rack_power.plugin import RackPower

__all__ = ["RackPower"]
