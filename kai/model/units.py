"""Units of amounts, for those who only print them: the resource axis itself computes with arrays."""

GPU_UNIT = 1000
"""Axis units of one whole device."""
PLUGGED_GPU = "GPUs of a device plugin"
"""The GPUs that a plain request can have, on the axis only where drivers offer GPUs beside device plugins.

``gpu`` counts both kinds. No resource of Kubernetes can be called so.
"""

_BYTES = frozenset({"memory", "ephemeral-storage", "storage"})
_HUGE_PAGES = "hugepages-"


def is_bytes(resource: str) -> bool:
    """Return whether amounts of a resource are bytes."""
    return resource in _BYTES or resource.startswith(_HUGE_PAGES)
