"""Jobs for machines: one item for each pod group."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kai.api.values.times import instant_text

if TYPE_CHECKING:
    from kai.simulation.outcomes.job_lines import JobLine, PodLine
    from kai.simulation.outcomes.owners import Above


def job_values(line: "JobLine", *, with_pods: bool = False, owners: "Sequence[Above] | None" = None) -> dict[str, Any]:
    """Return one job as plain values; what is not known is null. Pods one by one only where they are asked for.

    ``owners``, the nearest first, is all that the job belongs to; None where that was not looked for.
    """
    job = line.job
    code, text = line.job.reason
    listed: dict[str, Any] = {"podList": [_pod(pod) for pod in line.pods]} if with_pods else {}
    if owners is not None:
        listed["owners"] = [{"kind": each.kind, "name": each.name} for each in owners]
    return {
        "name": job.name,
        "namespace": job.namespace,
        "uid": line.uid or None,
        "owner": None if line.owner is None else {"kind": line.owner.kind, "name": line.owner.name},
        "queue": job.queue,
        "priority": job.priority,
        "preemptible": job.preemptible,
        "minMember": job.minimum,
        "pods": {
            "wanted": job.wanted if line.counted else None,
            "running": job.placed if line.counted else None,
            # Pods that are evicted in this cycle wait for nothing yet: their owner has to make them anew.
            "waiting": job.wanted - job.placed - (job.evicted - job.moved) if line.counted else None,
        },
        "gpus": job.gpus / 1000,
        "gpusHeld": _gpus(job.gpus_held),
        "gpuMemoryBytes": job.gpu_memory * 2**20,
        "gpusByMemory": job.gpus_by_memory / 1000,
        "nodes": list(job.nodes),
        "state": job.state,
        "since": None if line.since is None else instant_text(line.since),
        "position": line.position,
        "orderKeys": [{"name": key.name, "value": key.value} for key in line.keys],
        "reason": {"code": code, "text": text} if code else None,
        "endsInSeconds": None,
        "labels": dict(line.labels),
        **listed,
    }


def _pod(pod: "PodLine") -> dict[str, Any]:
    return {
        "name": pod.name,
        "state": pod.state,
        "node": pod.node or None,
        "gpus": pod.gpus / 1000,
        "gpusHeld": _gpus(pod.gpus_held),
        "gpuMemoryBytes": pod.gpu_memory * 2**20,
    }


def _gpus(amount: int | None) -> float | None:
    return None if amount is None else amount / 1000
