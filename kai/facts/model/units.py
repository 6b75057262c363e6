"""Units of amounts, and conversion of quantity texts by resource name to axis units.

Callers that only print amounts need just this; the axis itself (``axis``) computes with arrays.
"""

import functools
import re
from collections.abc import Mapping

from kai.basics import parsing

GPU_UNIT = 1000
"""Axis units of one whole device."""
PLUGGED_GPU = "GPUs of a device plugin"
"""The GPUs that a plain request can have. It is on the axis only if drivers offer GPUs beside device plugins.

``gpu`` counts both kinds. No resource of Kubernetes can have this name.
"""

_BYTES = frozenset({"memory", "ephemeral-storage", "storage"})
_HUGE_PAGES = "hugepages-"
_MIG = re.compile(r"nvidia\.com/mig-([0-9]{1,2})g\.([0-9]{1,4})gb")
"""Users may request a profile of any name, hence the limits on digits; no device has hundreds of slices."""


def is_bytes(resource: str) -> bool:
    """Return whether amounts of a resource are bytes."""
    return resource in _BYTES or resource.startswith(_HUGE_PAGES)


def mig_slices(resource: str) -> tuple[int, int]:
    """Return compute slices and gigabytes of a MIG profile resource.

    (0, 0) for anything else, also for profiles such as ``1g.5gb+me``.
    """
    match = _MIG.fullmatch(resource)
    return (int(match[1]), int(match[2])) if match else (0, 0)


Amounts = tuple[tuple[str, int], ...]
"""Resource names on the axis and amounts in axis units, sorted by name."""
QuantityTexts = tuple[tuple[str, str], ...]

LARGEST_AMOUNT = 2**48
"""More than any node has of anything (256 TiB, or 281 billion cores). Larger amounts are cut to it, so that the sum
over 32,767 pods fits in 64 bits. No scheduler checks the amounts of pods that name their node themselves."""
MOST_INSTANCES = 2**16
"""More MIG instances than any node has. Each counts as several GPUs of quota, and users may request any profile, so
the general cut would not keep the sum over profiles within 64 bits."""

_GPU = "gpu"
_MIG_PREFIX = "nvidia.com/mig-"
_MILLI = 1000


IMPLICIT_RESOURCE = "deviceclass.resource.kubernetes.io/"
"""The prefix of a device class's name in the extended resource that each class backs implicitly."""


def axis_name(resource: str) -> str:
    """Return the name on the axis: whatever ends in ``gpu`` is a GPU.

    Source: the peer's resource vector map.
    """
    return _GPU if resource.endswith(_GPU) else resource


def backed_name(resource: str) -> str:
    """Return the name under which containers request a resource that a device class may back.

    GPUs of all vendors have one name, because they have one place on the axis. A resource named after a class is
    served by that class.
    """
    return resource if resource.startswith(IMPLICIT_RESOURCE) else axis_name(resource)


def parts_of(resource: str) -> int:
    """Return the number of axis units in a unit of a resource: 1 for bytes, pods and MIG instances, else 1000."""
    return 1 if resource == "pods" or resource.startswith(_MIG_PREFIX) or is_bytes(resource) else _MILLI


def _most(resource: str) -> int:
    return MOST_INSTANCES if resource.startswith(_MIG_PREFIX) else LARGEST_AMOUNT


@functools.lru_cache(maxsize=1 << 14)
def amounts(texts: QuantityTexts) -> Mapping[str, int]:
    """Return amounts by axis name for resource names and quantity texts. The result is shared: do not change it.

    Raises: ValueError for a text that is no quantity; built-in Kubernetes objects are validated when they are read.
    """
    out: dict[str, int] = {}
    for resource, text in texts:
        name = axis_name(resource)
        # Added: GPUs of two vendors have one name on the axis.
        out[name] = out.get(name, 0) + min(parsing.amount(text, parts_of(resource)), _most(resource))
    return out


def backed_amounts(texts: QuantityTexts) -> Mapping[str, int]:
    """Return amounts as containers request them; GPUs of a resource named after a class keep that name.

    Raises: ValueError for a text that is no quantity.
    """
    after_class = [each for each in texts if backed_name(each[0]) != axis_name(each[0])]
    if not after_class:
        return amounts(texts)
    found = dict(amounts(tuple(each for each in texts if each not in after_class)))
    return found | {name: min(parsing.amount(text, GPU_UNIT), LARGEST_AMOUNT) for name, text in after_class}


def amounts_of(texts: QuantityTexts) -> Amounts:
    """Return quantities by resource as amounts on the axis; two of one resource are added.

    Raises: ValueError for a text that is no quantity.
    """
    return packed(amounts(texts))


def packed(total: Mapping[str, int]) -> Amounts:
    """Return ``total`` without zeros, sorted by name, cut to the most that a node could have."""
    # Cut again, because a sum of amounts may exceed what each of them may not.
    return tuple(sorted((name, min(amount, _most(name))) for name, amount in total.items() if amount))


def gpus_among(found: Mapping[str, int]) -> int:
    """Return the thousandths of GPUs in ``found``, of any vendor, with MIG slices as queues count them."""
    return found.get("gpu", 0) + sum(mig_slices(name)[0] * count * GPU_UNIT for name, count in found.items())
