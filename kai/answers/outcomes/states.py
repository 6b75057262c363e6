"""The states of jobs and pods, the places kept for moved pods, and the GPUs that pods count for.

Jobs and pods share one vocabulary of states, for tables and documents.

A stand-in is a row for a pod that was moved and has not come back: the input of a cycle keeps its place with it.

Counts of GPUs follow quota: MIG slices by their size, GPU memory and devices of claims as parts of GPUs.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import attrs
import numpy as np

from kai.answers.offline.run import Cycle
from kai.answers.outcomes.job_states import State
from kai.facts.model.axis import GPU_UNIT, Int64s
from kai.facts.model.placement import ClaimPlacement
from kai.facts.model.pod import ACTIVE_ALLOCATED, STAND_IN, GpuKind, GpuRequest, Status, within
from kai.facts.state.facts import gpus_by_memory
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Evict


@attrs.frozen
class KeptPlaces:
    """The rows that hold a place for a moved pod, and the pods that no longer count."""

    rows: AbstractSet[int] = frozenset()
    """Rows of stand-ins, each for a pod that is to come."""
    left: AbstractSet[int] = frozenset()
    """Pods that have a stand-in and have not left their old node yet."""


def kept_places(snapshot: Snapshot) -> KeptPlaces:
    """Return the rows of stand-ins, and the rows of the pods that they stand in for.

    Cost: one pass over the pods.
    """
    rows = frozenset(row for row, pod in enumerate(snapshot.pods) if pod.is_stand_in)
    if not rows:
        return KeptPlaces()
    moved = {snapshot.pods[row].uid.removesuffix(STAND_IN) for row in rows}
    left = frozenset(row for row, pod in enumerate(snapshot.pods) if (pod.uid or pod.name) in moved)
    return KeptPlaces(rows, left)


_WITHOUT_NODE = {
    int(Status.PENDING): State.WAITS,
    int(Status.GATED): State.WAITS,
    int(Status.PIPELINED): State.HELD,
    int(Status.SUCCEEDED): State.FINISHED,
    int(Status.FAILED): State.FINISHED,
}


def state_of(status: int) -> State:
    """Return the state of a pod by its status alone."""
    known = _WITHOUT_NODE.get(status)
    if known is not None:
        return known
    return State.RUNNING if within(status, ACTIVE_ALLOCATED) else State.LEAVING


def pod_states(cycle: Cycle) -> list[State]:
    """Return the state of every pod after the last action of a cycle, by row."""
    nodes = cycle.report.node.tolist()
    states = [state_of(status) for status in cycle.report.status.tolist()]
    for row in kept_places(cycle.snapshot).rows:
        states[row] = State.MOVES
    for bind in cycle.aftermath.binds.values():
        states[bind.pod] = State.STARTS
    for pod, state in enumerate(states):
        if state is State.RUNNING and nodes[pod] < 0:
            states[pod] = State.LOST
    for decision in cycle.decisions:
        if isinstance(decision, Evict):
            states[decision.pod] = State.MOVES if decision.moved_to >= 0 else State.EVICTED
    return states


_HUNDREDTH = GPU_UNIT // 100


Details = Mapping[int, Mapping[str, object]]
"""What plugins chose for placements, by pod and kind: `kai.deciding.engine.cycle`."""


def placed_devices(details: Details, pod: int) -> ClaimPlacement:
    """Return the devices that a pod has on its node."""
    found = details.get(pod, {}).get("claims")
    return found if isinstance(found, ClaimPlacement) else ClaimPlacement()


def asked_gpus(snapshot: Snapshot, details: Details) -> Int64s:
    """Return int64[P]: thousandths of GPUs that each pod requests; requests by memory count 0.

    A claim counts as the parts of GPUs that it has or may get, once for all pods of a group that share it.
    """
    if not len(snapshot.pods):
        return np.zeros(0, np.int64)
    counts: Int64s = (snapshot.requests @ snapshot.axis.gpu_weights())[snapshot.pod_shape]
    claimed = np.array([shape.gpu.claimed for shape in snapshot.shapes], np.int64)[snapshot.pod_shape]
    seen: set[tuple[int, tuple[str, str]]] = set()
    for pod in np.flatnonzero(claimed).tolist():
        gpu, group = snapshot.shapes[int(snapshot.pod_shape[pod])].gpu, int(snapshot.pod_group[pod])
        placed = placed_devices(details, pod)
        held = {each.claim: each for each in placed.claims if each.reference}
        named = placed.for_resources() if gpu.named else ()
        if not (held or named):
            counts[pod] -= gpu.spared
            continue
        fresh = [each for key, each in held.items() if group < 0 or (group, key) not in seen]
        seen.update((group, each.claim) for each in fresh)
        devices = [*named, *(device for each in fresh for device in each.devices)]
        had = sum(map(snapshot.catalog.gpus.part_had, devices))
        counts[pod] += had - gpu.claimed * GPU_UNIT
    return counts


def counted_gpus(snapshot: Snapshot, nodes: Int64s, details: Details) -> Int64s:
    """Return int64[P]: thousandths of GPUs that each pod counts for in quota on its node of ``nodes`` (-1: none).

    Fractions are rounded to hundredths, memory to thousandths. Requests by memory count 0 for pods without a node.
    """
    counts = asked_gpus(snapshot, details)
    for shape, facts in enumerate(snapshot.shapes):
        if not facts.gpu.shared:
            continue
        rows = np.flatnonzero((snapshot.pod_shape == shape) & (nodes >= 0))
        sizes = np.array([snapshot.nodes[node].gpu_memory for node in nodes[rows].tolist()], np.int64)
        counts[rows] = _parts(facts.gpu, sizes)
    return counts


def counted_on(snapshot: Snapshot, pod: int, node: int, details: Details) -> int:
    """Return the GPUs, in thousandths, of one pod on one node, regardless of claims shared with other pods."""
    shape = int(snapshot.pod_shape[pod])
    gpu = snapshot.shapes[shape].gpu
    if not gpu.shared or node < 0:
        asked = int(snapshot.requests[shape] @ snapshot.axis.gpu_weights())
        placed = placed_devices(details, pod)
        held = {each.claim: each for each in placed.claims if each.reference}
        devices = [device for each in held.values() for device in each.devices]
        devices += placed.for_resources() if gpu.named else ()
        had = sum(map(snapshot.catalog.gpus.part_had, devices))
        return asked + (had - gpu.claimed * GPU_UNIT if gpu.claimed and devices else -gpu.spared)
    return int(_parts(gpu, np.array([snapshot.nodes[node].gpu_memory], np.int64))[0])


def _parts(gpu: GpuRequest, sizes: Int64s) -> Int64s:
    """Return int64[n]: thousandths of a pod that shares devices of ``sizes`` [n] MiB."""
    if gpu.kind is GpuKind.MEMORY:
        parts: Int64s = np.maximum(GPU_UNIT * gpu.memory // np.maximum(sizes, 1), 1)
        return parts * gpu.devices
    return np.full(len(sizes), int(gpu.portion * 100 + 0.5) * gpu.devices * _HUNDREDTH, np.int64)


def memory_asked(gpu: GpuRequest) -> int:
    """Return the MiB of GPU memory that a pod requests on all its devices; 0 for other requests."""
    return gpu.memory * gpu.devices if gpu.kind is GpuKind.MEMORY else 0


def demanded_by_memory(snapshot: Snapshot) -> Int64s:
    """Return int64[K]: thousandths of GPUs assumed for a pod of each shape that requests memory and has no node.

    They are parts of the smallest GPU that can hold the pod; 0 where none is known, and for other requests.
    """
    return gpus_by_memory(snapshot, largest=False).astype(np.int64)


def wanted_by_memory(snapshot: Snapshot) -> Int64s:
    """Return int64[P]: thousandths of GPUs that each pod counts for by memory in the demand of its queue."""
    if not len(snapshot.pods):
        return np.zeros(0, np.int64)
    demanded = demanded_by_memory(snapshot)[snapshot.pod_shape]
    return np.where((snapshot.pod_node >= 0) & (demanded > 0), counted_gpus(snapshot, snapshot.pod_node, {}), demanded)
