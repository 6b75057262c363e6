"""What of a pod is aligned to NUMA zones, for the whole pod and for each container.

Source: the peer's plugins/numa, after the kubelet: CPUs are pinned for guaranteed pods and only where a container asks
for whole ones, memory for guaranteed pods, devices for every pod.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from kai.framework import CPU, GPU, PLUGGED_GPU, Bools, ContainerRequest, Int64s, ResourceAxis, Shape
from kai.plugins.numa.kernels import Requests

_WHOLE_CPU = 1000
_HUGE_PAGES = "hugepages-"


def is_pinned(resource: str) -> bool:
    """Say whether a resource is aligned for guaranteed pods only: CPU and memory of any kind, but no device."""
    return resource in ("cpu", "memory") or resource.startswith(_HUGE_PAGES)


def is_guaranteed(shape: Shape) -> bool:
    """Say whether every container asks for CPU and memory, and may use exactly that."""
    if not shape.guaranteed or not shape.containers:
        return False
    return all(dict(each.requests).get(name, 0) > 0 for each in shape.containers for name in ("cpu", "memory"))


def read_requests(shape: Shape, axis: ResourceAxis, request: Int64s) -> Requests:
    """Return what is aligned of a pod whose whole request is ``request`` [R]."""
    containers = shape.containers
    guaranteed = is_guaranteed(shape)
    vectors = [_vector(each, axis, guaranteed=guaranteed) for each in containers]
    together = [vector for vector, each in zip(vectors, containers, strict=True) if not each.init or each.sidecar]
    in_turn = [vector for vector, each in zip(vectors, containers, strict=True) if each.init and not each.sidecar]
    pod = request.copy()
    peak = _peak(containers, vectors, len(axis))
    # Shared and claimed GPUs are no resource of a zone, and not all CPUs are pinned.
    pod[CPU], pod[GPU] = peak[CPU], peak[GPU]
    if PLUGGED_GPU in axis.index:
        pod[axis.index[PLUGGED_GPU]] = 0
    aligned = np.array([guaranteed or not is_pinned(name) for name in axis.names], np.bool_)
    return Requests(
        pod=pod.reshape(1, -1), together=_table(together, axis), in_turn=_table(in_turn, axis), aligned=aligned
    )


def devices_of(shape: Shape, axis: ResourceAxis) -> Bools:
    """Return bool[R]: devices that a pod asks for, in whatever way."""
    asked = {name for name, amount in shape.request if amount > 0 and not is_pinned(name)}
    return np.array([name in asked for name in axis.names], np.bool_)


def _vector(container: ContainerRequest, axis: ResourceAxis, *, guaranteed: bool) -> Int64s:
    out = axis.vector({name: amount for name, amount in container.requests if name in axis.index})
    if not guaranteed or out[CPU] % _WHOLE_CPU:
        out[CPU] = 0
    return out


def _peak(containers: Iterable[ContainerRequest], vectors: Sequence[Int64s], width: int) -> Int64s:
    """Return int64[R]: the most that runs at a time: the lasting containers, or an init container with its sidecars."""
    lasting = np.zeros(width, np.int64)
    peak = np.zeros(width, np.int64)
    for container, vector in zip(containers, vectors, strict=True):
        if container.init and not container.sidecar:
            peak = np.maximum(peak, lasting + vector)
        else:
            lasting = lasting + vector
    return np.maximum(peak, lasting)


def _table(vectors: Sequence[Int64s], axis: ResourceAxis) -> Int64s:
    return np.array(vectors, np.int64).reshape(len(vectors), len(axis))
