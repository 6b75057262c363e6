"""Values of documents: jobs, queues and their shares, and nodes; jobs have one item for each pod group.

Shares and nodes also come as a summary of one sentence.
"""

from typing import TYPE_CHECKING, Any

from kai.answers.documents.envelope import span
from kai.api.values import instant_text
from kai.basics.wording import counted
from kai.deciding.explain.phrases import quantity
from kai.facts.model.axis import GPU_UNIT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from kai.answers.outcomes.entitlement import Entitlement, Part, Step
    from kai.answers.outcomes.gpu_slots import NodeSlots, Slices
    from kai.answers.outcomes.job_lines import JobLine, PodLine
    from kai.answers.outcomes.node_occupancy import Occupancy
    from kai.answers.outcomes.overview import Job
    from kai.answers.outcomes.owners import Above
    from kai.answers.outcomes.queue_lines import QueueLine, Share
    from kai.facts.model.groups import Queue


def entitlement_values(found: "Entitlement", waiting: "Sequence[Job]") -> dict[str, Any]:
    """Return the division of a share, and the waiting jobs of the queue. Units: GPUs in devices, CPU in millicores."""
    unit = unit_of(found)
    return {
        "subject": {"kind": "Queue", "name": found.queue},
        "summary": entitled(found),
        "reason": None,
        "parent": found.parent or None,
        "resource": found.resource,
        "total": None if found.total is None else found.total / unit,
        "fairShare": round(found.share / unit, 3),
        "used": found.used / unit,
        "requested": found.asks / unit,
        "siblings": [_sibling(part, unit) for part in found.siblings],
        "fairShareSteps": [step_values(step, unit) for step in found.steps],
        "pastUsageCounts": found.with_history,
        "getsMoreBy": {"siblings": list(found.gains.siblings), "bounds": list(found.gains.bounds)}
        if found.gains.are_known
        else None,
        "waiting": [{"namespace": job.namespace, "name": job.name} for job in waiting],
    }


def step_values(step: "Step", unit: float) -> dict[str, Any]:
    """Return one step of a division; ``unit`` is that of the divided resource."""
    return {
        "step": step.step,
        "total": round(step.total / unit, 3),
        "given": round(step.given / unit, 3),
        "formula": step.formula,
    }


def entitled(found: "Entitlement") -> str:
    """Return the share of a queue and its reason, in one sentence."""
    own, share = found.own, _amount(found, found.share)
    what = f"{found.queue} is entitled to {share}"
    if not found.asks or found.total is None:
        return f"{what}, and asks for {_amount(found, found.asks)}." if found.asks else f"{what}: it asks for nothing."
    quota, surplus, rest = (step.given for step in found.steps)
    more = surplus + rest
    if own.quota is None:
        return f"{what}: its quota is unlimited, and it asks for {_amount(found, found.asks)}."
    if found.share >= found.asks:
        return f"{what}: all that it asks for" + (", within its quota." if more <= 0 else f", {_extra(found, more)}.")
    if more > 0:
        return f"{what}: its quota of {_amount(found, quota)}, {_extra(found, more)}."
    if own.limit is not None and own.limit <= found.share:
        return f"{what}: its limit allows no more."
    if quota < own.quota:
        return f"{what}: that is all there is, less than its quota of {_amount(found, own.quota)}."
    quota_is = f"{what}: its quota is {_amount(found, own.quota)}"
    if found.total - sum(part.given for part in found.siblings) < unit_of(found):
        return f"{quota_is} and nothing is left to share out."
    return f"{quota_is}, and its weight {'of 0 ' if not own.weight else ''}gives it nothing of what others leave."


def _extra(found: "Entitlement", amount: float) -> str:
    return f"and {_amount(found, amount)} of what others leave"


def _amount(found: "Entitlement", amount: float) -> str:
    return quantity(round(amount), found.resource)


def unit_of(found: "Entitlement") -> float:
    """Return the divisor from amounts to displayed units: amounts of GPUs are thousandths."""
    return GPU_UNIT if found.resource == "gpu" else 1.0


def _sibling(part: "Part", unit: float) -> dict[str, Any]:
    return {
        "name": part.name,
        "requested": part.asks / unit,
        "quota": None if part.quota is None else part.quota / unit,
        "limit": None if part.limit is None else part.limit / unit,
        "weight": part.weight,
        "priority": part.priority,
        "usage": part.usage,
        "used": part.used / unit,
        "fairShare": round(part.given / unit, 3),
    }


_RESOURCES = (("gpus", "gpu"), ("cpuMillis", "cpu"), ("memoryBytes", "memory"))


def queue_items(
    lines: "Iterable[QueueLine]",
    queues: "Iterable[Queue]",
    steps: "Mapping[str, Sequence[Step]] | None" = None,
    unit: float = GPU_UNIT,
    labels: "Mapping[str, Mapping[str, str]] | None" = None,
) -> list[dict[str, Any]]:
    """Return queues with their weights and past usage from ``queues``; unknown values are null.

    ``labels`` are those of queues by name. ``steps`` are those of the divisions that led to the shares, if known, in
    ``unit``.
    """
    facts = {queue.name: queue for queue in queues}
    items = [_completed(queue_values(line), facts.get(line.name)) for line in lines]
    for item in items:
        item["labels"] = dict((labels or {}).get(item["name"], {}))
    if steps is not None:
        for item in items:
            item["fairShareSteps"] = [step_values(step, unit) for step in steps.get(item["name"], ())]
    return items


def queue_values(queue: "QueueLine") -> dict[str, Any]:
    """Return one queue as values."""
    cpu, memory, gpu = queue.shares
    return {
        "name": queue.name,
        "parent": queue.parent or None,
        "leaf": queue.leaf,
        "priority": queue.priority,
        "jobsRunning": queue.running,
        "jobsWaiting": queue.waiting,
        "gpus": _share(gpu, GPU_UNIT),
        "cpuMillis": _share(cpu, 1),
        "memoryBytes": _share(memory, 1),
        "models": [
            {
                "model": each.model,
                "limit": None if each.limit is None else each.limit / GPU_UNIT,
                "used": each.used / GPU_UNIT,
            }
            for each in queue.models
        ],
    }


def _share(share: "Share", unit: int) -> dict[str, Any]:
    return {
        "quota": None if share.quota is None else share.quota / unit,
        "limit": None if share.limit is None else share.limit / unit,
        "unlimited": share.limit is None,
        "fairShare": round(share.fair_share / unit, 3),
        "used": share.used / unit,
        "usedNonPreemptible": share.used_non_preemptible / unit,
        "requested": share.wanted / unit,
    }


def _completed(values: dict[str, Any], facts: "Queue | None") -> dict[str, Any]:
    for key, name in _RESOURCES:
        values[key] |= {
            "weight": None if facts is None else getattr(facts.weight, name),
            "usage": None if facts is None else getattr(facts.usage, name),
        }
    return values


def job_values(line: "JobLine", *, with_pods: bool = False, owners: "Sequence[Above] | None" = None) -> dict[str, Any]:
    """Return one job as values; unknown values are null. The list of pods is included only if ``with_pods``.

    ``owners``, the nearest first, are all owners of the job; None if they were not looked up.
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
            # Pods that this cycle evicts do not wait yet: their owner has to create new ones first.
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
        "endsInSeconds": line.ends_in,
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


def node_values(node: "NodeSlots") -> dict[str, Any]:
    """Return one node with its GPUs as values."""
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
    """Return the MIG slices of one profile as values; none is free where the node takes no pods."""
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
    """Return the tenants of a node, and what keeps which jobs away."""
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
    from kai.deciding.explain.phrases import plain, quantity  # noqa: PLC0415 - a list of nodes needs no sentence

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
    """Return what keeps pods without a toleration from a node; "" if nothing does."""
    if not found.ready:
        return f"it is {found.closed}" + (f", for {span(found.closed_for)}" if found.closed_for else "")
    return f"it is tainted {', '.join(found.taints)}" if found.taints else ""
