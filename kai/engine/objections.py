"""All objections of nodes to a pod: each resource that is short, and each queue whose quota or limit forbids the pod.

A kernel stops at the first objection of a node. A user who reads why a job waits wants all of them, as the peer's
conditions say them.

Source: the peer's FittingError of nodes and NewFitErrorInsufficientResource; its capacity policy for single nodes.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import numpy as np

from kai.engine.world import World
from kai.framework.verdict import ACCEPTED, Code, NodeReason, Shortage, Verdict
from kai.kernels import fit
from kai.model.axis import GPU, GPU_UNIT
from kai.model.pod import GpuKind
from kai.model.rows import Float64s, Int64s, NodeRows

RESOURCES = ("cpu", "memory", "gpu")
GPU_MEMORY = "gpu-memory"
OVER: Final = (fit.REFUSED_OVER_LIMIT, fit.REFUSED_OVER_QUOTA)
"""Codes by which queues forbid a node."""


@attrs.frozen(eq=False)
class Objections:
    """What nodes object to, and what that was counted from: another pod of the shape is told the same."""

    shape: int
    touches: int
    """How often the numbers of nodes had changed by then."""
    codes: bytes
    counts: Mapping[NodeReason, int]


def shortages(world: World, counts: Sequence[int]) -> Mapping[NodeReason, int]:
    """Return how many nodes are short of what, by ``counts`` [R + 1]: of each resource, of memory of a device."""
    names = (*world.snapshot.axis.names, GPU_MEMORY)
    codes = (*range(len(names) - 1), GPU)
    return {
        NodeReason(code=fit.SHORT_OF + codes[at], subject=names[at]): count for at, count in enumerate(counts) if count
    }


def shortage(world: World, shape: int, node: int, reason: NodeReason) -> Shortage | None:
    """Return the numbers behind a reason of `shortages`, in units of the axis; None for a reason of another kind."""
    if reason.code < fit.SHORT_OF:
        return None
    facts, rows = world.facts, np.array([node], np.int64)
    if reason.subject == GPU_MEMORY:
        memory = float(world.snapshot.shapes[shape].gpu.memory)
        return Shortage(requested=memory, used=0.0, capacity=float(facts.nodes.gpu_memory[node]))
    at = reason.code - fit.SHORT_OF
    requested, used = float(facts.shapes.request[shape, at]), float(world.columns.used[node, at])
    if at == GPU:
        requested = float(_wanted_gpus(world, shape, rows)[0])
        used += float(_shared_gpus(world, rows)[0])
    return Shortage(requested=requested, used=used, capacity=float(facts.nodes.allocatable[node, at]))


def _wanted_gpus(world: World, shape: int, nodes: NodeRows) -> Int64s:
    """Return the thousandths of GPUs that a pod asks of each node itself; plugins count what they allocate."""
    if world.snapshot.shapes[shape].gpu.kind is GpuKind.MEMORY:
        return _counted_gpus(world, shape, nodes)
    amount = int(world.facts.shapes.request[shape, GPU] - world.facts.shapes.claimed[shape] * GPU_UNIT)
    return np.full(len(nodes), amount, np.int64)


def _counted_gpus(world: World, shape: int, nodes: NodeRows) -> Int64s:
    """Return the thousandths of GPUs that queues count for a pod on each of ``nodes``, as the kernel's check does."""
    facts, gpu = world.facts, world.snapshot.shapes[shape].gpu
    request = facts.shapes.request[shape]
    if gpu.sliced:
        return np.full(len(nodes), int(np.delete(facts.nodes.gpu_weight * request, GPU).sum()), np.int64)
    if not gpu.shared:
        return np.full(len(nodes), int(request[GPU] - facts.shapes.claimed[shape] * GPU_UNIT), np.int64)
    device = facts.nodes.gpu_memory[nodes]
    memory = gpu.memory if gpu.kind is GpuKind.MEMORY else (facts.shapes.portion[shape] * device).astype(np.int64)
    hundredths: Int64s = (100 * memory + device - 1) // device
    return hundredths * gpu.devices * (GPU_UNIT // 100)


def _shared_gpus(world: World, nodes: NodeRows) -> Int64s:
    """Return the thousandths of GPUs on each of ``nodes`` that pods share."""
    start = world.facts.nodes.slot_start
    used = np.concatenate([np.zeros(1, np.int64), np.cumsum(world.columns.slot_used > 0)])
    shared: Int64s = used[start[nodes + 1]] - used[start[nodes]]
    return shared * GPU_UNIT


def excesses(world: World, shape: int, group: int, nodes: NodeRows, codes: Int64s) -> Counter[NodeReason]:
    """Return how many of ``nodes``, which queues forbid by ``codes``, are forbidden by which bound."""
    counts: Counter[NodeReason] = Counter()
    request = world.facts.shapes.request[shape]
    for code in OVER:
        mine = nodes[codes == code]
        amounts = _counted_gpus(world, shape, mine)
        for amount, count in zip(*np.unique(amounts, return_counts=True), strict=True):
            wanted = np.array([request[0], request[1], amount], np.float64)
            verdict = excess(world, group, wanted, code)
            detail = verdict.reasons[0] if verdict.reasons else None
            counts[NodeReason(code=code, detail=detail)] += int(count)
    return counts


def excess(world: World, group: int, wanted: Float64s, code: int) -> Verdict:
    """Return the refusal ``code`` with the queue, the resource and the numbers that prove it."""
    facts, columns = world.facts, world.columns
    over_limit = code == fit.REFUSED_OVER_LIMIT
    bounds = facts.queues.limit if over_limit else facts.queues.quota
    used = columns.queue_used if over_limit else columns.queue_fixed
    queue = int(facts.groups.queue[group])
    while queue >= 0:
        for resource, name in enumerate(RESOURCES):
            bound = float(bounds[queue, resource])
            if wanted[resource] > 0 and 0 <= bound < used[queue, resource] + wanted[resource]:
                return Verdict.refused(
                    Code.OVER_LIMIT if over_limit else Code.OVER_QUOTA,
                    queue=world.snapshot.queues[queue].title,
                    queue_name=world.snapshot.queues[queue].name,
                    queue_row=queue,
                    resource=name,
                    bound=bound,
                    used=float(used[queue, resource]),
                    requested=float(wanted[resource]),
                )
        queue = int(facts.queues.parent[queue])
    return ACCEPTED
