"""Persistent volumes as intake reads them: claims, volumes, classes, and what CSI drivers have left."""

from kai.model.volume import StorageCapacity, StorageClass, Volume, VolumeCatalog, VolumeClaim

__all__ = ["StorageCapacity", "StorageClass", "Volume", "VolumeCatalog", "VolumeClaim"]
