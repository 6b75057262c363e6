"""Which nodes could take the pods of a job if they were empty, and what excludes the others.

A job that does not fit on empty nodes waits in vain.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from kai.deciding.engine.policy import mask_of, texts_of
from kai.deciding.engine.session import Session
from kai.deciding.explain.phrases import counted, of_devices, plain, quantity
from kai.facts.kernels.fit import MIG_MIXED, MIG_SINGLE
from kai.facts.model.axis import CPU, GPU, GPU_UNIT, MEMORY, UNBOUNDED, Bools, Int64s, PodRow
from kai.facts.model.pod import GpuKind, GpuRequest
from kai.facts.state.facts import claimable
from kai.facts.state.kept import NodeColumns, node_columns
from kai.facts.state.snapshot import Snapshot
from kai.framework.hooks import Dependence
from kai.framework.verdict import Reason

MEMORY_LABEL = "nvidia.com/gpu.memory"
_MEMORY_STEP = 100
"""The step in MiB to which the GPU memory of a node is rounded down."""


class EmptyNodes:
    """Counts the room on empty nodes, once for each shape."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Use the nodes of ``snapshot``."""
        self._snapshot = snapshot
        amounts = node_columns(snapshot).allocatable
        # A resource that claims can provide is not missing on a node that lacks it.
        self._allocatable: Int64s = np.where((amounts == 0) & claimable(snapshot), UNBOUNDED, amounts)
        self._rooms: dict[int, Int64s] = {}

    def refusals(self, shapes: Sequence[int], needed: int, required: str) -> Iterator[Reason[str]]:
        """Yield the reasons why pods of ``shapes`` could never run here.

        ``needed`` of them start together, in one domain of the node label ``required`` ("": anywhere).
        """
        if not self._snapshot.nodes:
            yield Reason("NoNodes", "there are no nodes")
            return
        for shape in shapes:
            if not self.room(shape).any():
                yield self._largest(shape)
                return
        if len(shapes) != 1:
            return
        room = self.room(shapes[0])
        if needed > 1 and int(room.sum()) < needed:
            text = f"its {needed} pods must start together, and only {int(room.sum())} would fit on empty nodes"
            yield Reason("ClusterTooSmall", text, {"needed": needed, "fit": int(room.sum())})
        if required:
            yield from self._domains_too_small(required, shapes[0], room, max(needed, 1))

    def room(self, shape: int) -> Int64s:
        """Return int64[N]: how many pods of ``shape`` would fit on each node if it were empty."""
        if shape not in self._rooms:
            self._rooms[shape] = self._count(shape)
        return self._rooms[shape]

    def _count(self, shape: int) -> Int64s:
        request = self._snapshot.requests[shape]
        gpu = self._snapshot.shapes[shape].gpu
        wanted = request > 0
        counts: Int64s = (self._allocatable[:, wanted] // request[wanted]).min(axis=1)
        if not gpu.shared:
            return counts
        if gpu.kind is GpuKind.MEMORY:
            per_device = np.array([node.gpu_memory // gpu.memory for node in self._snapshot.nodes], np.int64)
        else:
            per_device = np.full(len(counts), GPU_UNIT // _portion(request, gpu), np.int64)
        devices = self._allocatable[:, GPU] // GPU_UNIT
        # Each device of a pod is a different one.
        room = np.where(devices < gpu.devices, 0, devices * per_device // gpu.devices)
        return np.minimum(counts, room)

    def _largest(self, shape: int) -> Reason[str]:
        request, axis, gpu = self._snapshot.requests[shape], self._snapshot.axis, self._snapshot.shapes[shape].gpu
        for resource in (GPU, CPU, MEMORY, *range(MEMORY + 2, len(axis))):
            most = int(self._allocatable[:, resource].max())
            if request[resource] > most:
                name = axis.names[resource]
                asked = quantity(int(request[resource]), name)
                text = f"a pod asks for {asked}, " + (
                    f"the largest node has {quantity(most, name)}" if most else "and no node has any"
                )
                return Reason(
                    "NoNodeLargeEnough", text, {"resource": name, "requested": int(request[resource]), "most": most}
                )
        if gpu.kind is GpuKind.MEMORY:
            return self._gpu_memory(gpu.memory, gpu.devices)
        if gpu.kind is GpuKind.FRACTION and int(self._allocatable[:, GPU].max()) < gpu.devices * GPU_UNIT:
            return self._too_few_devices(f"{plain(_portion(request, gpu))} of", gpu.devices)
        counts = Counter(self.too_small(shape, node) for node in range(len(self._snapshot.nodes)))
        nodes = ", ".join(
            f"{'1 node has' if count == 1 else f'{count} nodes have'} {less}" for less, count in counts.items()
        )
        return Reason("NoNodeLargeEnough", f"no node has everything that a pod asks for: {nodes}")

    def most(self, shape: int, nodes: Int64s) -> dict[str, object]:
        """Return the first resource whose request by ``shape`` exceeds that of all ``nodes``, and the largest amount.

        Return an empty mapping if no single resource is too scarce.
        """
        request, names = self._snapshot.requests[shape], self._snapshot.axis.names
        for resource in (GPU, CPU, MEMORY):
            most = int(self._allocatable[nodes, resource].max())
            if request[resource] > most:
                return {"resource": names[resource], "requested": int(request[resource]), "most": most}
        return {}

    def too_small(self, shape: int, node: int) -> str:
        """Return the resource that an empty node has less of than a pod of ``shape`` requests."""
        request, axis, gpu = self._snapshot.requests[shape], self._snapshot.axis, self._snapshot.shapes[shape].gpu
        for resource in (GPU, CPU, MEMORY, *range(MEMORY + 1, len(axis))):
            if request[resource] > self._allocatable[node, resource]:
                return f"less than {quantity(int(request[resource]), axis.names[resource])}"
        if gpu.kind is GpuKind.MEMORY and self._snapshot.nodes[node].gpu_memory < gpu.memory:
            return f"no GPU with {gpu.memory} MiB of memory"
        if gpu.shared:
            return f"less than {quantity(gpu.devices * GPU_UNIT, 'gpu')}"
        return "less than a pod asks for"

    def _gpu_memory(self, memory: int, devices: int) -> Reason[str]:
        asked = f"a pod asks for {memory} MiB of memory of {of_devices(devices)}"
        facts = {"resource": "gpu-memory", "requested": memory}
        with_gpus = [node for node in self._snapshot.nodes if node.gpu_memory_known]
        if not with_gpus:
            return Reason("GpuMemoryUnknown", f"{asked}, and no node has the label {MEMORY_LABEL}", facts)
        most = max(node.gpu_memory for node in with_gpus)
        if most < memory:
            rounded = ", since memory of GPUs counts in whole hundreds" if memory - most < _MEMORY_STEP else ""
            text = f"{asked}, the largest GPU has {most} MiB{rounded}"
            return Reason("NoNodeLargeEnough", text, {**facts, "most": most})
        if int(self._allocatable[:, GPU].max()) < devices * GPU_UNIT:
            return self._too_few_devices(f"{memory} MiB of memory of", devices)
        return Reason("NoNodeLargeEnough", f"{asked}, and no node has that many", {**facts, "most": most})

    def _too_few_devices(self, part: str, devices: int) -> Reason[str]:
        most = int(self._allocatable[:, GPU].max()) // GPU_UNIT
        asked = f"a pod asks for {part} {of_devices(devices)}"
        facts = {"resource": "gpu", "requested": devices * GPU_UNIT, "most": most * GPU_UNIT}
        return Reason("NoNodeLargeEnough", f"{asked}, the largest node has {most}", facts)

    def _domains_too_small(self, required: str, shape: int, room: Int64s, needed: int) -> Iterator[Reason[str]]:
        domains: dict[str, int] = {}
        for node, fits in zip(self._snapshot.nodes, room, strict=True):
            value = node.labels.get(required)
            if value is not None:
                domains[value] = domains.get(value, 0) + int(fits)
        best = max(domains.values(), default=0)
        if best < needed:
            level = required.rpartition("/")[2]
            gpus = int(self._snapshot.requests[shape, GPU]) * needed
            size = f" ({quantity(gpus, 'gpu')})" if gpus else ""
            whose = "its pod" if needed == 1 else f"its {needed} pods"
            text = f"{whose}{size} must fit in one {level}, and no {level} can hold more than {best} of them"
            if not domains:
                text = f"{whose}{size} must fit in one {level}, and no node has the label {required}"
            elif needed == 1:
                text = f"{whose}{size} must stay in one {level}, and no node that could hold it is in any"
            numbers = {"level": level, "needed": needed, "best": best, "domains": tuple(sorted(domains.items()))}
            yield Reason("DomainTooSmall", text, numbers)


def _portion(request: Int64s, gpu: GpuRequest) -> int:
    """Return the portion of each device that a pod with a fractional request gets, in thousandths."""
    return int(request[GPU]) // gpu.devices


Objections = Mapping[str, Sequence[int]]
"""Nodes by their objection to a pod, apart from pods that are on them."""


class Matching:
    """Finds the matching nodes, once for each shape of pods."""

    def __init__(self, snapshot: Snapshot, session: Callable[[], Session], empty: EmptyNodes) -> None:
        """Use the nodes of ``snapshot``; ``session`` is called when plugins must be asked."""
        self._snapshot = snapshot
        self._session = session
        self._empty = empty
        self._known: dict[int, tuple[Bools, Objections]] = {}

    def of(self, pod: int) -> tuple[Bools, Objections]:
        """Return the nodes that can exclude ``pod`` only by amounts, and the other nodes by objection."""
        shape = int(self._snapshot.pod_shape[pod])
        if shape not in self._known:
            self._known[shape] = self._ask(pod, shape)
        return self._known[shape]

    def refusals(self, pods: Sequence[int], needed: int, required: str) -> Iterator[Reason[str]]:
        """Yield what excludes every node for ``pods``, or leaves room for too few of them ever to start.

        ``needed`` of them start together, in one domain of the node label ``required`` ("": anywhere); 0 if other pods
        of their group have nodes already.
        """
        if not self._snapshot.nodes:
            return  # that there is none is said elsewhere
        shapes = {int(self._snapshot.pod_shape[pod]): pod for pod in reversed(pods)}
        for shape, pod in sorted(shapes.items(), key=lambda item: item[1]):
            accepted, refused = self.of(pod)
            room = np.where(accepted, self._empty.room(shape), 0)
            if not room.any():
                yield self._words("no node matches", shape, accepted, refused)
                return
            if len(shapes) == 1 and not accepted.all() and (text := self._too_few(room, needed, required)):
                yield self._words(text, shape, accepted, refused)

    def _too_few(self, room: Int64s, needed: int, required: str) -> str:
        """Return that ``room`` is too little for pods that start together; "" if it suffices."""
        total = int(room.sum())
        if total < needed:
            return f"its {needed} pods must start together, and only {total} would fit on empty nodes that match"
        if not required or not needed:
            return ""
        domains: dict[str, int] = {}
        for node, fits in zip(self._snapshot.nodes, room.tolist(), strict=True):
            if required in node.labels:
                domains[node.labels[required]] = domains.get(node.labels[required], 0) + fits
        best, level = max(domains.values(), default=0), required.rpartition("/")[2]
        if best >= needed:
            return ""
        if needed == 1:
            return f"its pod must stay in one {level}, and no node that matches is in any"
        return f"its {needed} pods must fit in one {level}, and nodes that match hold {best} of them in one at most"

    def _words(self, text: str, shape: int, accepted: Bools, refused: Objections) -> Reason[str]:
        """Return ``text`` with what excludes nodes: their objections, and which of the others are too small."""
        found = {objection: list(nodes) for objection, nodes in refused.items()}
        for node in np.flatnonzero(accepted & (self._empty.room(shape) == 0)).tolist():
            found.setdefault(f"too small ({self._empty.too_small(shape, node)})", []).append(node)
        ordered = sorted(found.items(), key=lambda item: -len(item[1]))
        parts = ", ".join(counted(len(nodes), objection) for objection, nodes in ordered)
        objections = tuple((objection, tuple(nodes)) for objection, nodes in ordered)
        facts: dict[str, object] = {"objections": objections}
        if accepted.any():
            facts |= {"sized": True, **self._empty.most(shape, np.flatnonzero(accepted))}
        return Reason("NoNodeMatches", f"{text}: {parts}", facts)

    def _ask(self, pod: int, shape: int) -> tuple[Bools, Objections]:
        session = self._session()
        accepted = np.array([node.ready for node in self._snapshot.nodes], np.bool_)
        found: dict[str, list[int]] = {}
        for node in np.flatnonzero(~accepted).tolist():
            found.setdefault(self._snapshot.nodes[node].closed, []).append(node)
        for node in np.flatnonzero(accepted).tolist():
            if text := self._gives(shape, node):
                found.setdefault(text, []).append(node)
                accepted[node] = False
        for plugin in session.policy.plugins:
            filters = plugin.node_filter
            if filters is None or filters.depends is not Dependence.SHAPE or not plugin.is_asked(shape):
                continue
            open_nodes = np.flatnonzero(accepted).astype(np.int64)
            refused = open_nodes[~mask_of(plugin, PodRow(pod), open_nodes)]
            for node, text in zip(refused, texts_of(plugin, PodRow(pod), refused), strict=True):
                found.setdefault(text, []).append(int(node))
            accepted[refused] = False
        return accepted, found

    def _gives(self, shape: int, node: int) -> str:
        """Return how a node provides its GPUs if pods of ``shape`` request them in another way, else ""."""
        gpu, nodes = self._snapshot.shapes[shape].gpu, self._nodes
        if gpu.legacy_mig:
            return "without MIG slices for annotations of pods"
        if gpu.kind is GpuKind.NONE and not gpu.claimed:
            return ""
        if gpu.shared and nodes.dra_gpus[node]:
            return "without parts of GPUs (claimed devices only)"
        if not nodes.mig_enabled[node]:
            return "without MIG slices" if gpu.sliced else ""
        if nodes.mig_strategy[node] == MIG_SINGLE and gpu.kind not in (GpuKind.WHOLE, GpuKind.NONE):
            return "with whole GPUs only (MIG strategy single)"
        return "with MIG slices only" if nodes.mig_strategy[node] == MIG_MIXED and not gpu.sliced else ""

    @cached_property
    def _nodes(self) -> NodeColumns:
        return node_columns(self._snapshot)
