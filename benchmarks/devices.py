"""Make devices, and what asks for them: device classes, slices, claims and MIG profiles.

A workload says with ``Devices`` what its pods ask for; each pod that waits asks for one thing. Nodes have eight GPUs
each, as devices of a driver or as MIG slices of a device plugin.
"""

from collections.abc import Iterator
from enum import Enum
from typing import TypeAlias

Manifest: TypeAlias = dict[str, object]

CLASS = "gpu.nvidia.com"
_API = "resource.k8s.io/v1"
_GPUS = 8
_PARTS = 7
_PROFILES = (("nvidia.com/mig-1g.10gb", 7), ("nvidia.com/mig-2g.20gb", 3), ("nvidia.com/mig-3g.40gb", 2))
"""MIG profiles, and how many slices of each a GPU has; one node in three has the first, and so on."""
_SLICES = tuple(_GPUS * count for _, count in _PROFILES)


class Devices(Enum):
    """What pods ask for."""

    CLAIMS = "a claim of its own for one device"
    CLASS = "one GPU by the name that a device class backs"
    PARTITIONS = "a claim for a seventh of a GPU that draws from its counters"
    PAIRS = "a claim for two devices with one value of an attribute"
    MIG = "a slice of a MIG profile"

    @property
    def has_claims(self) -> bool:
        """Whether each pod has a claim of its own."""
        return self in (Devices.CLAIMS, Devices.PARTITIONS, Devices.PAIRS)


def resources_of_node(devices: Devices, node: int) -> dict[str, str]:
    """Return what a device plugin offers on ``node``."""
    return {_PROFILES[node % 3][0]: str(_SLICES[node % 3])} if devices is Devices.MIG else {}


def resources_of_pod(devices: Devices, profile: int) -> dict[str, str]:
    """Return what a container asks for by name; ``profile`` is a number, of which the rest by three counts."""
    if devices is Devices.CLASS:
        return {"nvidia.com/gpu": "1"}
    return {_PROFILES[profile % 3][0]: "1"} if devices is Devices.MIG else {}


def node_of_slice(index: int) -> int:
    """Return the node that has the MIG slice ``index``, all nodes in a row; its profile is the node's."""
    three, left = divmod(index, sum(_SLICES))
    return 3 * three + sum(left >= end for end in (_SLICES[0], _SLICES[0] + _SLICES[1]))


def classes(devices: Devices) -> Iterator[Manifest]:
    """Make the device class."""
    if devices is Devices.MIG:
        return
    spec: Manifest = {"selectors": [{"cel": {"expression": f'device.driver == "{CLASS}"'}}]}
    if devices is Devices.CLASS:
        spec["extendedResourceName"] = "nvidia.com/gpu"
    yield {"apiVersion": _API, "kind": "DeviceClass", "metadata": {"name": CLASS, "uid": CLASS}, "spec": spec}


def slices(devices: Devices, nodes: list[str]) -> Iterator[Manifest]:
    """Make the slice of each node."""
    if devices is Devices.MIG:
        return
    found = [*_whole(devices), *(_parts() if devices is Devices.PARTITIONS else ())]
    for node in nodes:
        spec: Manifest = {
            "driver": CLASS,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": found,
        }
        if devices is Devices.PARTITIONS:
            spec["sharedCounters"] = [{"name": _counters(gpu), "counters": _memory(80)} for gpu in range(_GPUS)]
        name = f"{node}-gpus"
        yield {"apiVersion": _API, "kind": "ResourceSlice", "metadata": {"name": name, "uid": name}, "spec": spec}


def _whole(devices: Devices) -> Iterator[Manifest]:
    for gpu in range(_GPUS):
        attributes = {"type": {"string": "gpu"}, "index": {"int": gpu}, "root": {"string": f"r{gpu // 2}"}}
        device: Manifest = {"name": f"gpu-{gpu}", "attributes": attributes, "capacity": _memory(80)}
        if devices is Devices.PARTITIONS:
            device["consumesCounters"] = [{"counterSet": _counters(gpu), "counters": _memory(80)}]
        yield device


def _parts() -> Iterator[Manifest]:
    for gpu in range(_GPUS):
        for part in range(_PARTS):
            yield {
                "name": f"gpu-{gpu}-mig-{part}",
                "attributes": {"type": {"string": "mig"}},
                "capacity": _memory(10),
                "consumesCounters": [{"counterSet": _counters(gpu), "counters": _memory(10)}],
            }


def _counters(gpu: int) -> str:
    return f"gpu-{gpu}-set"


def _memory(gibibytes: int) -> Manifest:
    return {"memory": {"value": f"{gibibytes}Gi"}}


def claim(devices: Devices, metadata: Manifest, queue: str) -> Manifest:
    """Make the claim of a pod."""
    exactly: Manifest = {"deviceClassName": CLASS, "count": 2 if devices is Devices.PAIRS else 1}
    if devices is Devices.PARTITIONS:
        exactly["selectors"] = [{"cel": {"expression": f'device.attributes["{CLASS}"].type == "mig"'}}]
    wanted: Manifest = {"requests": [{"name": "gpu", "exactly": exactly}]}
    if devices is Devices.PAIRS:
        wanted["constraints"] = [{"requests": ["gpu"], "matchAttribute": f"{CLASS}/root"}]
    return {
        "apiVersion": _API,
        "kind": "ResourceClaim",
        "metadata": metadata | {"labels": {"kai.scheduler/queue": queue}},
        "spec": {"devices": wanted},
    }


def reference(name: str) -> Manifest:
    """Return how a pod names its claim."""
    return {"resourceClaims": [{"name": "gpu", "resourceClaimName": name}]}
