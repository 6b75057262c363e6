"""Queues as plain values, for documents."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kai.documents.entitlements import step_values
from kai.model.axis import GPU_UNIT

if TYPE_CHECKING:
    from kai.model.queue import Queue
    from kai.simulation.outcomes.entitlement import Step
    from kai.simulation.outcomes.queue_lines import QueueLine, Share

_RESOURCES = (("gpus", "gpu"), ("cpuMillis", "cpu"), ("memoryBytes", "memory"))


def queue_items(
    lines: "Iterable[QueueLine]",
    queues: "Iterable[Queue]",
    steps: "Mapping[str, Sequence[Step]] | None" = None,
    unit: float = GPU_UNIT,
    labels: "Mapping[str, Mapping[str, str]] | None" = None,
) -> list[dict[str, Any]]:
    """Return queues with their weights and past usage, which ``queues`` say; what they do not say is null.

    ``labels`` are those of queues by name. ``steps`` are those of the divisions in which the shares came about, if
    they are told, of a resource with ``unit``.
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
    """Return one queue as plain values."""
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
