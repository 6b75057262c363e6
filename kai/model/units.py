"""Units of amounts, for those who only print them: the resource axis itself computes with arrays."""

import re

GPU_UNIT = 1000
"""Axis units of one whole device."""
PLUGGED_GPU = "GPUs of a device plugin"
"""The GPUs that a plain request can have, on the axis only where drivers offer GPUs beside device plugins.

``gpu`` counts both kinds. No resource of Kubernetes can be called so.
"""

_BYTES = frozenset({"memory", "ephemeral-storage", "storage"})
_HUGE_PAGES = "hugepages-"
_MIG = re.compile(r"nvidia\.com/mig-([0-9]{1,2})g\.([0-9]{1,4})gb")
"""Any user may ask for a profile of any name; no device has hundreds of slices."""


def is_bytes(resource: str) -> bool:
    """Return whether amounts of a resource are bytes."""
    return resource in _BYTES or resource.startswith(_HUGE_PAGES)


def mig_slices(resource: str) -> tuple[int, int]:
    """Return compute slices and gigabytes of a MIG profile resource.

    (0, 0) for anything else, also for profiles such as ``1g.5gb+me``.
    """
    match = _MIG.fullmatch(resource)
    return (int(match[1]), int(match[2])) if match else (0, 0)
