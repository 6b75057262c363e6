"""What is idle of that which a job asks for: whole GPUs, free parts of shared ones, and what else is short."""

from collections.abc import Iterator, Mapping

import numpy as np

from kai.explain.phrases import listed, plain, quantity
from kai.framework.verdict import Histogram
from kai.kernels import fit
from kai.model.axis import GPU, GPU_UNIT
from kai.model.pod import GpuKind
from kai.simulation.explaining.changes import Site
from kai.simulation.explaining.fact import Evidence, in_units
from kai.simulation.outcomes.gpu_slots import SHARED, slots_on

_MOST = 5
_MOST_NODES = 4


def shapes_of(site: Site) -> set[int]:
    """Return the shapes of the pods of a group."""
    snapshot = site.cycle.snapshot
    return {int(shape) for shape in snapshot.pod_shape[snapshot.pod_group == site.group]}


def asks_gpus(site: Site) -> bool:
    """Return whether a pod of the group asks for GPUs, parts of them or memory of them."""
    snapshot = site.cycle.snapshot
    return any(
        snapshot.requests[shape, GPU] or snapshot.shapes[shape].gpu.kind is GpuKind.MEMORY for shape in shapes_of(site)
    )


def idle(site: Site) -> Iterator[Evidence]:
    """Yield what is idle in the end, by how many nodes have how much: GPUs if it wants any, and what is short."""
    if asks_gpus(site):
        yield _of_gpus(site)
        if any(site.cycle.snapshot.shapes[shape].gpu.kind in _PARTS for shape in shapes_of(site)):
            yield from _parts(site)
    names = site.cycle.snapshot.axis.names
    for at in sorted(names.index(name) for name in _short(site) if name in names):
        if at != GPU:
            yield _of_resource(site, at)


_PARTS = frozenset({GpuKind.FRACTION, GpuKind.MEMORY})


def _of_gpus(site: Site) -> Evidence:
    snapshot, report = site.cycle.snapshot, site.cycle.report
    free = np.maximum(report.idle[:, GPU], 0)
    names = {snapshot.nodes[row].name: int(free[row]) for row in np.flatnonzero(free)}
    text = quantity(int(free.sum()), "gpu") + _by_amount(site, names, "gpu")
    nodes = {name: amount / GPU_UNIT for name, amount in names.items()}
    return Evidence(label="idle", text=text, values={"gpus": int(free.sum()) / GPU_UNIT, "nodes": nodes})


def _parts(site: Site) -> Iterator[Evidence]:
    """Yield the free parts of GPUs that are shared, the largest of each node."""
    largest: dict[str, int] = {}
    total = 0
    for row, node in enumerate(site.cycle.snapshot.nodes):
        parts = [slot.left for slot in slots_on(site.cycle, row) if slot.state == SHARED and slot.left]
        if parts:
            largest[node.name] = max(parts)
            total += sum(parts)
    if largest:
        text = f"{plain(total)} GPUs of shared ones, the largest of each node{_by_amount(site, largest, 'gpu')}"
        nodes = {name: amount / GPU_UNIT for name, amount in largest.items()}
        yield Evidence(label="free parts", text=text, values={"gpus": total / GPU_UNIT, "largest": nodes})


def _of_resource(site: Site, at: int) -> Evidence:
    """Return how much of a resource is idle on the nodes that may be in question."""
    snapshot, report = site.cycle.snapshot, site.cycle.report
    name, with_gpus = snapshot.axis.names[at], asks_gpus(site)
    rows = np.flatnonzero(report.idle[:, GPU] > 0) if with_gpus else np.arange(len(snapshot.nodes))
    free = {snapshot.nodes[row].name: max(0, int(report.idle[row, at])) for row in rows.tolist()}
    text = _by_amount(site, free, name).removeprefix(": ") or "none"
    values = {"resource": name, "nodes": {node: in_units(amount, name) for node, amount in free.items()}}
    where = " (nodes with idle GPUs)" if with_gpus else ""
    return Evidence(label="idle", text=text + where, values=values)


def _by_amount(site: Site, amounts: Mapping[str, int], resource: str) -> str:
    """Return which nodes have how much, the most first."""
    by_amount: dict[int, list[str]] = {}
    closed = {node.name: node.closed for node in site.cycle.snapshot.nodes if not node.ready}
    for name, amount in amounts.items():
        by_amount.setdefault(amount, []).append(f"{name} ({closed[name]})" if name in closed else name)
    texts = [
        f"{plain(amount) if resource == 'gpu' else quantity(amount, resource)} on {listed(nodes, _MOST_NODES)}"
        for amount, nodes in sorted(by_amount.items(), reverse=True)
    ]
    return f": {'; '.join(texts[:_MOST])}" if texts else ""


def _short(site: Site) -> set[str]:
    """Return the resources that nodes lacked for the first pod that was refused."""
    record = site.cycle.report.records.get(site.group)
    reasons = (*site.reasons, *(record.reasons if record is not None else ()))
    found = [each.facts.get("histogram") for each in reasons]
    return {
        reason.subject
        for each in found
        if isinstance(each, Histogram)
        for _, reason in each.counts
        if reason.code >= fit.SHORT_OF
    }


__all__ = ["asks_gpus", "idle", "shapes_of"]
