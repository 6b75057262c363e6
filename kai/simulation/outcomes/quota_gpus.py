"""What pods count for in quota: MIG slices by their size, and memory of GPUs as the part of a device that it is."""

import numpy as np

from kai.model.axis import GPU_UNIT
from kai.model.pod import GpuKind
from kai.model.rows import Int64s
from kai.state.snapshot import Snapshot

_HUNDREDTH = GPU_UNIT // 100


def counted_gpus(snapshot: Snapshot, nodes: Int64s) -> Int64s:
    """Return int64[P]: thousandths of GPUs that each pod counts for in quota on its node of ``nodes`` (-1: nowhere).

    Parts of devices are counted in hundredths, memory rounded up; memory that is nowhere counts nothing.
    """
    if not len(snapshot.pods):
        return np.zeros(0, np.int64)
    counts: Int64s = (snapshot.requests @ snapshot.axis.gpu_weights())[snapshot.pod_shape]
    for shape, facts in enumerate(snapshot.shapes):
        if not facts.gpu.shared:
            continue
        rows = np.flatnonzero((snapshot.pod_shape == shape) & (nodes >= 0))
        if facts.gpu.kind is GpuKind.MEMORY:
            sizes = np.array([snapshot.nodes[node].gpu_memory for node in nodes[rows].tolist()], np.int64)
            portions = -(-100 * facts.gpu.memory // np.maximum(sizes, 1))
        else:
            portions = np.full(len(rows), int(facts.gpu.portion * 100 + 0.5), np.int64)
        counts[rows] = portions * facts.gpu.devices * _HUNDREDTH
    return counts


__all__ = ["counted_gpus"]
