"""Admission of queues: resources are required, and quotas should fit into the parent's.

A quota that does not fit only causes a warning, and only where quota validation is on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import attrs

from kai.api.conventions.budgets import bad_budgets, budgets_in
from kai.api.conventions.gpu_sharing import is_model_name, model_of
from kai.api.conventions.queue_rules import QueueShape as RulesShape
from kai.api.conventions.queue_rules import Rule, amount, excess, queue_faults, shape_in
from kai.api.conventions.quota_windows import bad_entries
from kai.api.conventions.runtime_limits import runtime_conflicts
from kai.roles.admission.review import (
    ALLOWED,
    AdmissionRequest,
    AdmissionResponse,
    AdmissionSettings,
    Manifest,
    piece_of,
    refused,
)

UNLIMITED: Final = math.inf
"""A quota without bound, which the Queue API writes as -1."""

_NO_RULES: Final = RulesShape(name="")
_MISSING: Final = "resources must be specified"


@attrs.frozen(kw_only=True)
class Quotas:
    """The quotas of a queue.

    Units: GPUs in devices, CPU in millicores, memory in megabytes, as in the Queue API.
    """

    cpu: float = 0.0
    gpu: float = 0.0
    memory: float = 0.0


@attrs.frozen(kw_only=True)
class QueueShape:
    """The fields of a queue that rules read; without resources it has no quotas."""

    name: str
    parent: str = ""
    quotas: Quotas | None = None
    children: tuple[str, ...] = ()
    rules: RulesShape = _NO_RULES
    """The fields that rules about windows read."""


FindQueue: TypeAlias = Callable[[str], QueueShape | None]


def read_queue(manifest: Manifest | None) -> QueueShape:
    """Return the shape of a queue.

    Raises: BadValue if a field that a rule reads is invalid.
    """
    queue = piece_of(manifest, "Queue")
    spec, resources = queue["spec"], queue["spec"]["resources"]
    quotas = {name: amount(resources[name]["quota"].number()) for name in ("cpu", "gpu", "memory")}
    for name in quotas:
        resources[name]["limit"].number()
        resources[name]["overQuotaWeight"].number()
        resources["perUser"][name]["limit"].number()
    return QueueShape(
        name=queue["metadata"]["name"].text(),
        parent=spec["parentQueue"].text(),
        quotas=Quotas(**quotas) if resources.present else None,
        children=tuple(child.text() for child in queue["status"]["childQueues"].each()),
        rules=shape_in(manifest or {}),
    )


def validate_queue(request: AdmissionRequest, settings: AdmissionSettings, find: FindQueue) -> AdmissionResponse:
    """Return whether a queue may be created, changed or deleted as requested.

    Raises: BadValue if the queue cannot be read.
    Source: rules, their order and messages of the peer's queue webhook. It compares -1 as a number, so that an
    unlimited quota is less than none; here it is more than any.
    """
    if request.operation == "DELETE":
        queue = read_queue(request.object if request.old_object is None else request.old_object)
        if queue.children:
            return refused(f"cannot delete queue {queue.name}: it has child queues [{' '.join(queue.children)}]")
        return ALLOWED
    queue = read_queue(request.object)
    if queue.quotas is None:
        return refused(_MISSING, warnings=(_MISSING,))
    if bad := [
        *_broken_promises(request.object or {}),
        *_bad_schedules(queue),
        *_bad_models(queue),
        *_bad_budgets(request),
    ]:
        return refused("; ".join(f"queue {queue.name}: {each}" for each in bad))
    warnings = _unmet_quotas(queue)
    if not settings.queue_quota_validation:
        return AdmissionResponse(warnings=tuple(warnings)) if warnings else ALLOWED
    if queue.parent:
        parent = find(queue.parent)
        if parent is None:
            return refused(f"failed to get parent queue {queue.parent}: not found")
        if parent.quotas is None:
            return refused(f"parent queue {parent.name} has no resources defined")
        warnings += _outgrown_parent(queue, queue.quotas, parent, parent.quotas, find)
    if request.operation == "UPDATE" and read_queue(request.old_object).children:
        warnings += _outgrown_by_children(queue, queue.quotas, find)
    warnings += _outgrown_in_windows(queue, find)
    return AdmissionResponse(warnings=tuple(warnings))


def _broken_promises(manifest: Manifest) -> list[str]:
    return [
        f"spec.{each.field}: found {each.found}, expected at most {each.most}"
        for each in runtime_conflicts((manifest,))
        if each.is_promise
    ]


def _bad_budgets(request: AdmissionRequest) -> list[str]:
    return [str(each) for each in bad_budgets(budgets_in(request.object or {}))]


def _bad_schedules(queue: QueueShape) -> list[str]:
    return [] if queue.rules.spec is None else [str(each) for each in bad_entries(queue.rules.spec.schedules)]


def _bad_models(queue: QueueShape) -> list[str]:
    return [
        f"spec.resources.models: found {model}, expected short names of models of GPUs, such as {model_of(model)}"
        for model in queue.rules.models
        if not is_model_name(model)
    ]


def _unmet_quotas(queue: QueueShape) -> list[str]:
    """Return warnings where quotas of models cannot be met, because of the queue's own limits or quota of GPUs."""
    worded = {
        Rule.MODEL_LOW_LIMIT: "models.{model}.limit: found {found}, expected at least the quota of {bound}",
        Rule.MODELS_OVERCOMMITTED: "models: found quotas of {found} in all, expected at most {bound}, the quota of gpu",
    }
    return [
        f"queue {queue.name}: spec.resources.{worded[fault.rule].format(model=fault.model, found=found, bound=bound)}"
        for fault in queue_faults([queue.rules]).get(queue.rules.name, ())
        if fault.rule in worded
        for found, bound in [(_shown(fault.found, 2), _shown(fault.bound, 2))]
    ]


def _outgrown_parent(queue: QueueShape, own: Quotas, parent: QueueShape, over: Quotas, find: FindQueue) -> list[str]:
    """Return warnings where a queue, alone or with its siblings, has more quota than its parent."""
    siblings = _quotas_of((name for name in parent.children if name != queue.name), find)
    total = excess((own.cpu, *(sibling.cpu for _, sibling in siblings)), over.cpu)
    of_parent = f"exceeds parent queue {parent.name}"
    warnings = []
    if own.cpu > over.cpu:
        warnings.append(f"child queue CPU quota ({_shown(own.cpu)}) {of_parent} CPU quota ({_shown(over.cpu)})")
    if total is not None:
        warnings.append(f"total children CPU quota ({_shown(total)}) {of_parent} CPU quota ({_shown(over.cpu)})")
    if own.gpu > over.gpu:
        warnings.append(f"child queue GPU quota ({_shown(own.gpu, 2)}) {of_parent} GPU quota ({_shown(over.gpu, 2)})")
    if own.memory > over.memory:
        warnings.append(
            f"child queue Memory quota ({_shown(own.memory)}) {of_parent} Memory quota ({_shown(over.memory)})"
        )
    return warnings


def _outgrown_by_children(queue: QueueShape, own: Quotas, find: FindQueue) -> list[str]:
    """Return warnings where the children of a queue, alone or together, have more quota than it."""
    children = _quotas_of(queue.children, find)
    warnings = [
        f"child queue {name} CPU quota ({_shown(child.cpu)}) exceeds parent CPU quota ({_shown(own.cpu)})"
        for name, child in children
        if child.cpu > own.cpu
    ]
    for title, places, quota, total in (
        ("CPU", 0, own.cpu, excess((child.cpu for _, child in children), own.cpu)),
        ("GPU", 2, own.gpu, excess((child.gpu for _, child in children), own.gpu)),
        ("Memory", 0, own.memory, excess((child.memory for _, child in children), own.memory)),
    ):
        if total is not None:
            warnings.append(
                f"total children {title} quota ({_shown(total, places)}) exceeds parent {title} quota"
                f" ({_shown(quota, places)})",
            )
    return warnings


def _outgrown_in_windows(queue: QueueShape, find: FindQueue) -> list[str]:
    """Return warnings where children have more quota than their parent in some window, with this queue as changed."""
    warnings = []
    for name in (queue.parent, queue.name):
        parent = queue if name == queue.name else find(name) if name else None
        children = [] if parent is None else [queue if each == queue.name else find(each) for each in parent.children]
        if parent is None:
            continue
        if name == queue.parent and queue.name not in parent.children:
            children.append(queue)
        shapes = [parent.rules, *(attrs.evolve(each.rules, parent=name) for each in children if each is not None)]
        warnings += [
            f"while {', '.join(fault.windows)} is open, total children {_TITLES[fault.resource]} quota"
            f" ({_shown(fault.found, 2)}) exceeds parent queue {name} quota ({_shown(fault.bound, 2)})"
            for fault in queue_faults(shapes).get(parent.name, ())
            if fault.rule is Rule.WINDOW_OVERCOMMITTED
        ]
    return warnings


_TITLES: Final = {"gpu": "GPU", "cpu": "CPU", "memory": "Memory"}


def _quotas_of(queues: Iterable[str], find: FindQueue) -> list[tuple[str, Quotas]]:
    """Return the quotas of the queues that exist and have any."""
    found = ((name, find(name)) for name in queues)
    return [(name, queue.quotas) for name, queue in found if queue is not None and queue.quotas is not None]


def _shown(quota: float, places: int = 0) -> str:
    return "unlimited" if quota == UNLIMITED else f"{quota:.{places}f}"
