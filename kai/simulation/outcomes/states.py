"""The states of jobs and pods, in one vocabulary, and what a pod counts for in quota.

Places that a cycle's input keeps for pods that were moved: rows of pods that are none.

The states of a job: one vocabulary for tables and documents.

Where each pod stands after a cycle, in the words that jobs have, too.

What pods count for in quota: MIG slices by their size, memory of GPUs and devices of claims as parts of GPUs.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from enum import StrEnum

import attrs
import numpy as np

from kai.framework.decisions import Evict
from kai.model.axis import GPU_UNIT, Int64s
from kai.model.placement import ClaimPlacement
from kai.model.pod import ACTIVE_ALLOCATED, STAND_IN, GpuKind, GpuRequest, Status, within
from kai.simulation.deciding.run import Cycle
from kai.state.facts import gpus_by_memory
from kai.state.snapshot import Snapshot


@attrs.frozen
class KeptPlaces:
    """What is to be counted as a place, and what no more."""

    rows: AbstractSet[int] = frozenset()
    """Each stands in for a pod that is to come."""
    left: AbstractSet[int] = frozenset()
    """Pods that those stand in for, and that have not left their old node yet."""


def kept_places(snapshot: Snapshot) -> KeptPlaces:
    """Return the rows of stand-ins, and of the pods that they stand in for.

    Cost: a look at each pod.
    """
    rows = frozenset(row for row, pod in enumerate(snapshot.pods) if pod.is_stand_in)
    if not rows:
        return KeptPlaces()
    moved = {snapshot.pods[row].uid.removesuffix(STAND_IN) for row in rows}
    left = frozenset(row for row, pod in enumerate(snapshot.pods) if (pod.uid or pod.name) in moved)
    return KeptPlaces(rows, left)


class State(StrEnum):
    """Where a job stands after a cycle. The values are what tables and documents say."""

    RUNNING = "Running"
    STARTS = "Starts"
    HELD = "Held"
    MOVES = "Moves"
    PARTIAL = "Partial"
    WAITS = "Waits"
    IMPOSSIBLE = "Impossible"
    EVICTED = "Evicted"
    LEAVING = "Leaving"
    LOST = "Lost"
    FINISHED = "Finished"
    EMPTY = "Empty"
    REFUSED = "Refused"


RUNS = frozenset({State.RUNNING, State.STARTS, State.FINISHED})
"""All pods of such a job have a node, or have ended."""
MEANINGS: dict[State, str] = {
    State.RUNNING: "All its pods have a node, and some of them had it before.",
    State.STARTS: "All its pods are bound to nodes in this cycle.",
    State.HELD: "It has places that pods which are leaving still occupy; it starts when they have left.",
    State.MOVES: "Some of its pods leave their node for another one, or left it and have not come back.",
    State.PARTIAL: "Some of its pods run or start, others wait.",
    State.WAITS: "None of its pods has a node, and the reason says why.",
    State.IMPOSSIBLE: "It waits, and these nodes could not hold it if they were empty.",
    State.EVICTED: "Its pods have to leave in this cycle.",
    State.LEAVING: "Its pods are terminating, and none waits.",
    State.LOST: "Its pods name a node that is not there: one that was deleted, or that the input lacks.",
    State.FINISHED: "All its pods have ended.",
    State.EMPTY: "It has no pods.",
    State.REFUSED: "A cluster does not take it as it is, so it has no part in what is decided; the finding says why.",
}
"""One sentence for each state."""


_WITHOUT_NODE = {
    int(Status.PENDING): State.WAITS,
    int(Status.GATED): State.WAITS,
    int(Status.PIPELINED): State.HELD,
    int(Status.SUCCEEDED): State.FINISHED,
    int(Status.FAILED): State.FINISHED,
}


def state_of(status: int) -> State:
    """Return the state of a pod of which nothing is known but its status."""
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
"""What plugins chose for placements, by pod and kind: `kai.engine.cycle`."""


def placed_devices(details: Details, pod: int) -> ClaimPlacement:
    """Return the devices that a pod has on its node."""
    found = details.get(pod, {}).get("claims")
    return found if isinstance(found, ClaimPlacement) else ClaimPlacement()


def asked_gpus(snapshot: Snapshot, details: Details) -> Int64s:
    """Return int64[P]: thousandths of GPUs that each pod asks for; requests by memory count nothing.

    A claim counts as the parts of GPUs that it has or may get, and once for all pods of a group that share it.
    """
    if not len(snapshot.pods):
        return np.zeros(0, np.int64)
    counts: Int64s = (snapshot.requests @ snapshot.axis.gpu_weights())[snapshot.pod_shape]
    claimed = np.array([shape.gpu.claimed for shape in snapshot.shapes], np.int64)[snapshot.pod_shape]
    seen: set[tuple[int, tuple[str, str]]] = set()
    for pod in np.flatnonzero(claimed).tolist():
        gpu, group = snapshot.shapes[int(snapshot.pod_shape[pod])].gpu, int(snapshot.pod_group[pod])
        held = {each.claim: each for each in placed_devices(details, pod).claims if each.reference}
        if not held:
            counts[pod] -= gpu.spared
            continue
        fresh = [each for key, each in held.items() if group < 0 or (group, key) not in seen]
        seen.update((group, each.claim) for each in fresh)
        had = sum(snapshot.catalog.gpus.part_had(device) for each in fresh for device in each.devices)
        counts[pod] += had - gpu.claimed * GPU_UNIT
    return counts


def counted_gpus(snapshot: Snapshot, nodes: Int64s, details: Details) -> Int64s:
    """Return int64[P]: thousandths of GPUs that each pod counts for in quota on its node of ``nodes`` (-1: nowhere).

    Parts of devices are counted in hundredths, memory in thousandths; memory that is nowhere counts nothing.
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
    """Return the same of one pod on one node, whatever other pods share."""
    shape = int(snapshot.pod_shape[pod])
    gpu = snapshot.shapes[shape].gpu
    if not gpu.shared or node < 0:
        asked = int(snapshot.requests[shape] @ snapshot.axis.gpu_weights())
        held = {each.claim: each for each in placed_devices(details, pod).claims if each.reference}
        devices = [device for each in held.values() for device in each.devices]
        had = sum(map(snapshot.catalog.gpus.part_had, devices))
        return asked + (had - gpu.claimed * GPU_UNIT if gpu.claimed and held else -gpu.spared)
    return int(_parts(gpu, np.array([snapshot.nodes[node].gpu_memory], np.int64))[0])


def _parts(gpu: GpuRequest, sizes: Int64s) -> Int64s:
    """Return int64[n]: thousandths that a pod which shares devices counts for where one has ``sizes`` [n] MiB."""
    if gpu.kind is GpuKind.MEMORY:
        parts: Int64s = np.maximum(GPU_UNIT * gpu.memory // np.maximum(sizes, 1), 1)
        return parts * gpu.devices
    return np.full(len(sizes), int(gpu.portion * 100 + 0.5) * gpu.devices * _HUNDREDTH, np.int64)


def memory_asked(gpu: GpuRequest) -> int:
    """Return MiB of all devices that a pod asks for by memory; 0 where it asks otherwise."""
    return gpu.memory * gpu.devices if gpu.kind is GpuKind.MEMORY else 0


def demanded_by_memory(snapshot: Snapshot) -> Int64s:
    """Return int64[K]: thousandths of GPUs that a pod of each shape without a node is taken to ask for by memory.

    They are parts of the smallest GPU that can hold the pod; 0 where none is known, and where a pod asks otherwise.
    """
    return gpus_by_memory(snapshot, largest=False).astype(np.int64)


def wanted_by_memory(snapshot: Snapshot) -> Int64s:
    """Return int64[P]: thousandths of GPUs that each pod counts for by memory in what its queue wants."""
    if not len(snapshot.pods):
        return np.zeros(0, np.int64)
    demanded = demanded_by_memory(snapshot)[snapshot.pod_shape]
    return np.where((snapshot.pod_node >= 0) & (demanded > 0), counted_gpus(snapshot, snapshot.pod_node, {}), demanded)
