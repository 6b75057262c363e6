"""Volumes: send pods where their volumes are, or can be made."""

from kai.plugins.volumes.plugin import Volumes

__all__ = ["Volumes"]
