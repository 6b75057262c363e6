"""Fragmentation: places pods so that the remaining GPUs stay usable."""

from kai.plugins.fragmentation.plugin import Fragmentation

__all__ = ["Fragmentation"]
