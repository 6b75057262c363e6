"""Fragmentation: place pods so that what is left of GPUs stays usable."""

from kai.plugins.fragmentation.plugin import Fragmentation

__all__ = ["Fragmentation"]
