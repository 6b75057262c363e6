"""Faults in the tree of queues, shown as conditions on the queues.

The API server accepts a parent that does not exist, a circle of parents, quotas of children beyond the quota of
their parent, a limit below the quota, a queue of GPUs without CPU, or pod groups for a queue that has children or is
being deleted; the scheduler then behaves in ways that surprise users. Here each of these faults becomes a condition on
its queue. A condition is written when it becomes true and set to False when it no longer is; a queue that never had the
fault never carries it.

Source: the peer declares `Orphan` and `OverQuota` on queues, with these meanings, and sets neither.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import attrs

from kai.api import names
from kai.api.conventions.amounts import exact
from kai.api.conventions.queue_rules import UNITS, QueueFault, Rule, queue_faults, shape_of
from kai.api.kubernetes.meta import Condition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kai.api.scheduling.pod_group import PodGroup
    from kai.api.scheduling.queue import Queue

ORPHAN: Final = "Orphan"
"""The parent does not exist."""
CYCLE: Final = "Cycle"
"""Following parents never ends at a top-level queue."""
TOO_DEEP: Final = "TooDeep"
"""More queues are above it than a scheduler follows."""
OVER_QUOTA: Final = "OverQuota"
"""The pod groups below the queue hold more than its quota of some resource."""
OVERCOMMITTED: Final = "QuotaOvercommitted"
"""The quotas of the children add up to more than the queue's own."""
LOW_LIMIT: Final = "LimitBelowQuota"
"""The limit of a resource is below the quota: the queue never gets its quota."""
NO_COMPUTE: Final = "NoComputeResources"
"""The queue may use GPUs, and no CPU or no memory: nothing that asks for these starts."""
NOT_A_LEAF: Final = "NotALeaf"
"""Pod groups name the queue although it has children."""
INVALID_SCHEDULE: Final = "InvalidSchedule"
"""A schedule cannot be read, and the scheduler leaves it out."""
TERMINATING: Final = "Terminating"
"""A finalizer keeps the queue, which is being deleted; meanwhile its jobs start as before."""

TYPES: Final = (
    *(ORPHAN, CYCLE, TOO_DEEP, OVER_QUOTA, OVERCOMMITTED, LOW_LIMIT, NO_COMPUTE),
    *(NOT_A_LEAF, INVALID_SCHEDULE, TERMINATING),
)

# The resource name in a status, and the number of the queue's units in one of its units.
_HELD: Final = {"gpu": (names.NVIDIA_GPU, 1.0), "cpu": (names.CPU, 1e3), "memory": (names.MEMORY, 1e-6)}
_LONGEST_LIST: Final = 5


@attrs.frozen(kw_only=True)
class QueueFinding:
    """One fault of one queue, in words."""

    type: str
    reason: str
    message: str


def tree_findings(queues: Iterable[Queue], groups: Iterable[PodGroup]) -> dict[str, tuple[QueueFinding, ...]]:
    """Return the faults of every queue by its name, in the order of `TYPES`; queues without a fault are left out.

    Cost: linear in queues and groups.
    """
    known = {queue.metadata.name: queue for queue in sorted(queues, key=lambda queue: queue.metadata.name)}
    children: dict[str, list[Queue]] = {}
    for queue in known.values():
        if queue.spec.parent_queue:
            children.setdefault(queue.spec.parent_queue, []).append(queue)
    direct = _groups_by_queue(groups)
    faults = queue_faults(map(shape_of, known.values()))
    result: dict[str, tuple[QueueFinding, ...]] = {}
    for name, queue in known.items():
        found = (
            *_of_rules(faults.get(name, ()), queue),
            _over_quota(queue),
            _not_a_leaf(children.get(name, ()), direct.get(name, ())),
            _terminating(queue),
        )
        findings = sorted((each for each in found if each is not None), key=lambda each: TYPES.index(each.type))
        if findings:
            result[name] = tuple(findings)
    return result


def conditions_after(
    before: Sequence[Condition], findings: Iterable[QueueFinding], *, now: float
) -> tuple[Condition, ...]:
    """Return the conditions of a queue after a look at the tree; `before` itself if nothing changed.

    Conditions of other controllers are kept. The transition time changes only with the status. A new message alone
    is worth a write only while the condition is true.
    """
    true = {finding.type: finding for finding in findings}
    after: list[Condition] = []
    for condition in before:
        finding = true.pop(condition.type, None)
        if finding is not None:
            after.append(_became_true(condition, finding, now))
        # Set to False and not removed: `kubectl wait --for=condition=Orphan=false` needs it to be there.
        elif condition.type in TYPES and condition.status == "True":
            after.append(Condition(type=condition.type, status="False", reason="Resolved", last_transition_time=now))
        else:
            after.append(condition)
    after += [_became_true(Condition(type=kind), true[kind], now) for kind in TYPES if kind in true]
    result = tuple(after)
    return tuple(before) if result == tuple(before) else result


def _became_true(condition: Condition, finding: QueueFinding, now: float) -> Condition:
    since = condition.last_transition_time if condition.status == "True" else now
    return attrs.evolve(
        condition,
        status="True",
        reason=finding.reason,
        message=finding.message,
        last_transition_time=since,
    )


def _over_quota(queue: Queue) -> QueueFinding | None:
    if queue.spec.resources is None:
        return None
    parts = []
    for resource, bounds in (shape_of(queue).bounds or {}).items():
        quota = bounds.quota
        name, scale = _HELD[resource]
        text = queue.status.allocated.get(name)
        held = exact(text).billionths / 1e9 * scale if text is not None else 0.0
        # A hair above the quota is a rounding error: fractions of GPUs are kept as decimals.
        if held > quota * (1 + 1e-9):
            parts.append(f"{_number(held)} of {_number(quota)} {UNITS[resource]}")
    if not parts:
        return None
    return QueueFinding(type=OVER_QUOTA, reason="AllocatedBeyondQuota", message=f"holds {', '.join(parts)}")


def _of_rules(faults: Iterable[QueueFault], queue: Queue) -> Iterator[QueueFinding]:
    """Yield the faults of a queue that are shown as conditions."""
    by_rule: dict[Rule, list[QueueFault]] = {}
    for fault in faults:
        by_rule.setdefault(fault.rule, []).append(fault)
    if Rule.ORPHAN in by_rule:
        message = f"parent queue {queue.spec.parent_queue} does not exist"
        yield QueueFinding(type=ORPHAN, reason="ParentNotFound", message=message)
    for fault in by_rule.get(Rule.CYCLE, ()):
        path = " -> ".join([*_shortened(fault.circle), fault.circle[0]])
        yield QueueFinding(type=CYCLE, reason="ParentsFormACycle", message=f"parents lead in a circle: {path}")
    for fault in by_rule.get(Rule.TOO_DEEP, ()):
        above, most = f"{fault.found - 1:.0f}", f"{fault.bound - 1:.0f}"
        message = f"has {above} queues above it, at most {most} may be: nothing here is scheduled"
        yield QueueFinding(type=TOO_DEEP, reason="TooManyParents", message=message)
    if Rule.BAD_SCHEDULE in by_rule:
        message = "; ".join(str(fault.bad) for fault in by_rule[Rule.BAD_SCHEDULE]) + ": the entry is left out"
        yield QueueFinding(type=INVALID_SCHEDULE, reason="ScheduleUnreadable", message=message)
    if Rule.OVERCOMMITTED in by_rule:
        parts = [
            f"{_number(fault.found)} of {_number(fault.bound)} {UNITS[fault.resource]}"
            for fault in by_rule[Rule.OVERCOMMITTED]
        ]
        message = f"quotas of its children add up to {', '.join(parts)}"
        yield QueueFinding(type=OVERCOMMITTED, reason="ChildrenBeyondQuota", message=message)
    if Rule.LOW_LIMIT in by_rule:
        parts = [
            f"{_number(fault.found)} of {_number(fault.bound)} {UNITS[fault.resource]}"
            for fault in by_rule[Rule.LOW_LIMIT]
        ]
        message = f"limits are below the quotas: at most {', '.join(parts)}; a limit that is absent is 0"
        yield QueueFinding(type=LOW_LIMIT, reason="LimitBelowQuota", message=message)
    if Rule.NO_COMPUTE in by_rule:
        resources = " and ".join(fault.resource for fault in by_rule[Rule.NO_COMPUTE])
        message = f"has no {resources}: nothing that asks for it starts; a resource that is absent is a limit of 0"
        yield QueueFinding(type=NO_COMPUTE, reason="LimitOfZero", message=message)


def _not_a_leaf(children: Sequence[Queue], groups: Sequence[str]) -> QueueFinding | None:
    if not children or not groups:
        return None
    message = f"has children, yet pod groups name it: {', '.join(_shortened(groups))}"
    return QueueFinding(type=NOT_A_LEAF, reason="PodGroupsOnParent", message=message)


def _terminating(queue: Queue) -> QueueFinding | None:
    if queue.metadata.deletion_timestamp is None:
        return None
    message = "is being deleted: its jobs start until it is gone; jobs that still wait then find no queue of its name"
    return QueueFinding(type=TERMINATING, reason="DeletionRequested", message=message)


def _groups_by_queue(groups: Iterable[PodGroup]) -> dict[str, list[str]]:
    """Return the names of the pod groups of every queue, sorted."""
    found: dict[str, list[str]] = {}
    for group in groups:
        if group.spec.queue:
            name = f"{group.metadata.namespace}/{group.metadata.name}"
            found.setdefault(group.spec.queue, []).append(name)
    return {queue: sorted(members) for queue, members in found.items()}


def _number(value: float) -> str:
    return "unlimited" if value == math.inf else f"{round(value, 3):g}" if value < 1e6 else f"{value:.0f}"


def _shortened(items: Sequence[str]) -> list[str]:
    if len(items) <= _LONGEST_LIST:
        return list(items)
    return [*items[:_LONGEST_LIST], f"and {len(items) - _LONGEST_LIST} more"]
