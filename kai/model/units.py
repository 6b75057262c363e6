"""Units of amounts, for those who only print them: the resource axis itself computes with arrays.

Amounts of resources by name: from quantity texts to axis units. The axis itself is in ``axis``.
"""

import functools
import re
from collections.abc import Mapping

from kai.basics import parsing

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


Amounts = tuple[tuple[str, int], ...]
"""Resource names on the axis and amounts in axis units, by name."""
QuantityTexts = tuple[tuple[str, str], ...]

LARGEST_AMOUNT = 2**48
"""More than any node has of anything (256 TiB, or 281 billion cores): an amount beyond it is cut to it, so that the sum
over 32,767 pods stays within 64 bits. Of pods that name their node themselves, no scheduler has judged the amounts."""
MOST_INSTANCES = 2**16
"""More MIG instances than any node has. Each counts as several GPUs of quota, and any user may ask for any profile, so
the cut for other amounts would not keep what profiles come to together within 64 bits."""

_GPU = "gpu"
_MIG_PREFIX = "nvidia.com/mig-"
_MILLI = 1000


IMPLICIT_RESOURCE = "deviceclass.resource.kubernetes.io/"
"""What precedes the name of a device class in the extended resource that each class backs."""


def axis_name(resource: str) -> str:
    """Return the name on the axis: whatever ends in ``gpu`` is a GPU.

    Source: the peer's resource vector map.
    """
    return _GPU if resource.endswith(_GPU) else resource


def backed_name(resource: str) -> str:
    """Return the name by which containers ask for a resource that a device class may back.

    GPUs of all vendors have one name, as they have one place on the axis. A resource that is called after its class
    says which class serves it.
    """
    return resource if resource.startswith(IMPLICIT_RESOURCE) else axis_name(resource)


def parts_of(resource: str) -> int:
    """Return how many axis units make a unit of a resource: 1 for bytes, pods and MIG instances, else 1000."""
    return 1 if resource == "pods" or resource.startswith(_MIG_PREFIX) or is_bytes(resource) else _MILLI


def _most(resource: str) -> int:
    return MOST_INSTANCES if resource.startswith(_MIG_PREFIX) else LARGEST_AMOUNT


@functools.lru_cache(maxsize=1 << 14)
def amounts(texts: QuantityTexts) -> Mapping[str, int]:
    """Return amounts by axis name for resource names and quantity texts. The result is shared: do not change it.

    Raises: ValueError for a text that is no quantity; objects of Kubernetes' own kinds are checked when they are read.
    """
    out: dict[str, int] = {}
    for resource, text in texts:
        name = axis_name(resource)
        out[name] = out.get(name, 0) + min(parsing.amount(text, parts_of(resource)), _most(resource))
    return out


def backed_amounts(texts: QuantityTexts) -> Mapping[str, int]:
    """Return amounts as containers ask for them, with GPUs that are called after a class under that name.

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
    """Return ``total`` without zeros, by name, cut to what a node could ever have."""
    return tuple(sorted((name, min(amount, _most(name))) for name, amount in total.items() if amount))


def gpus_among(found: Mapping[str, int]) -> int:
    """Return thousandths of GPUs among amounts, of whatever vendor, and MIG slices as queues count them."""
    return found.get("gpu", 0) + sum(mig_slices(name)[0] * count * GPU_UNIT for name, count in found.items())
