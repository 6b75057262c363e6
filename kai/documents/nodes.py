"""Nodes as plain values, for documents."""

from typing import TYPE_CHECKING, Any

from kai.documents.spans import span
from kai.model.axis import GPU_UNIT
from kai.wording import counted

if TYPE_CHECKING:
    from kai.simulation.outcomes.gpu_slots import NodeSlots
    from kai.simulation.outcomes.mig_slices import Slices
    from kai.simulation.outcomes.node_occupancy import Occupancy


def node_values(node: "NodeSlots") -> dict[str, Any]:
    """Return one node with its GPUs as plain values."""
    return {
        "name": node.name,
        "labels": dict(node.labels),
        "gpuType": node.product or None,
        "ready": node.ready,
        "gpus": [
            {
                "index": at,
                "uuid": None,
                "free": (1000 - slot.granted) / 1000 if slot.state in {"free", "shared"} else 0.0,
                "state": slot.state,
                "users": [
                    {
                        "job": user.job,
                        "namespace": user.namespace,
                        "queue": user.queue or None,
                        "pod": user.pod,
                        "share": user.share / 1000,
                        "state": user.state,
                    }
                    for user in slot.users
                ],
            }
            for at, slot in enumerate(node.slots)
        ],
        "migSlices": [slices_values(each, ready=node.ready) for each in node.slices],
        "free": {"whole": node.free, "fractions": round(node.fractions, 3)},
        "domains": dict(node.domains),
    }


def slices_values(slices: "Slices", *, ready: bool) -> dict[str, Any]:
    """Return the MIG slices of one profile as plain values; none is free where the node takes no pods."""
    return {
        "resource": slices.resource,
        "total": slices.total,
        "used": slices.count("used"),
        "held": slices.count("held"),
        "leaving": slices.count("leaving"),
        "free": slices.free if ready else 0,
        "users": [
            {
                "job": user.job,
                "namespace": user.namespace,
                "queue": user.queue or None,
                "pod": user.pod,
                "count": user.count,
                "state": user.state,
            }
            for user in slices.users
        ],
    }


def occupancy_values(found: "Occupancy") -> dict[str, Any]:
    """Return who is on a node, and what keeps whom away."""
    return {
        "subject": {"kind": "Node", "name": found.node},
        "summary": occupied(found),
        "gpus": found.gpus / GPU_UNIT,
        "idleGpus": found.idle / GPU_UNIT,
        "partlyIdleGpus": found.partly / GPU_UNIT,
        "ready": found.ready,
        "closed": found.closed or None,
        "closedSeconds": found.closed_for,
        "failedGpus": found.failed / GPU_UNIT,
        "migSlices": [slices_values(each, ready=found.ready) for each in found.slices],
        "taints": list(found.taints),
        "users": [
            {
                "job": each.job,
                "queue": each.queue or None,
                "pods": each.pods,
                "gpus": each.gpus / GPU_UNIT,
                "state": each.state,
            }
            for each in found.tenants
        ],
        "keptAway": [{"reason": why, "jobs": list(jobs)} for why, jobs in found.kept_away],
    }


def occupied(found: "Occupancy") -> str:
    """Return in one sentence how much of a node is used, or why it is empty."""
    from kai.explain.phrases import plain, quantity  # noqa: PLC0415 - a list of nodes needs no sentence

    if not found.gpus:
        count = sum(each.pods for each in found.tenants)
        what = "whole GPUs" if found.slices else "GPUs"
        return f"{found.node} has no {what}; {counted(count, 'pod is', 'pods are')} on it."
    size = quantity(found.gpus, "gpu")
    lost = ""
    if found.failed:
        are = "is" if found.failed == GPU_UNIT else "are"
        lost = (
            f" {plain(found.failed)} of its {plain(found.gpus + found.failed)} GPUs {are} unhealthy (not allocatable)."
        )
    if not found.tenants:
        why = closed(found) or ("no waiting job can use it" if found.kept_away else "no job waits for it")
        return f"{found.node} is empty, {size} idle: {why}.{lost}"
    held = found.sum("held")
    parts = [f"{plain(found.sum('running'))} used"]
    parts += [f"{plain(held)} held for jobs that start later"] if held else []
    parts += [f"{plain(found.sum('leaving'))} with pods that are leaving"] if found.sum("leaving") else []
    what = "is full" if not found.idle else f"has {quantity(found.idle, 'gpu')} idle"
    if found.partly and found.idle:
        what = f"{what} and {plain(found.partly)} in GPUs that pods share"
    elif found.partly:
        what = f"has {quantity(found.partly, 'gpu')} idle in GPUs that pods share"
    return f"{found.node} {what}: of {size} {', '.join(parts)}.{lost}"


def closed(found: "Occupancy") -> str:
    """Return what keeps all pods from a node that do not tolerate it; "" where nothing does."""
    if not found.ready:
        return f"it is {found.closed}" + (f", for {span(found.closed_for)}" if found.closed_for else "")
    return f"it is tainted {', '.join(found.taints)}" if found.taints else ""
