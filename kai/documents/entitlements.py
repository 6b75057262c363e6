"""The share of a queue as plain values, and in one sentence."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kai.explain.phrases import quantity
from kai.model.axis import GPU_UNIT

if TYPE_CHECKING:
    from kai.simulation.outcomes.entitlement import Entitlement, Part, Step
    from kai.simulation.outcomes.overview import Job


def entitlement_values(found: "Entitlement", waiting: "Sequence[Job]") -> dict[str, Any]:
    """Return the division, and the jobs of the queue that wait. Units: GPUs in devices, CPU in millicores."""
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
    """Return one step of a division; ``unit`` is that of the resource that is divided."""
    return {
        "step": step.step,
        "total": round(step.total / unit, 3),
        "given": round(step.given / unit, 3),
        "formula": step.formula,
    }


def entitled(found: "Entitlement") -> str:
    """Return what a queue is entitled to, and why, in one sentence."""
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
    """Return how many of the amounts' units are one that is shown: amounts of GPUs are thousandths."""
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
