"""The status of a queue: its children, and what the pod groups below it ask for and hold.

One look at one queue adds up the statuses of its children and of its own pod groups, as they are now; a change travels
up the tree one level a look. That stands still on a cycle of queues only because a queue on a cycle is not added to
itself.

Source: the peer's queue controller, which has no such guard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from kai.api.conventions.amounts import same, texts
from kai.api.scheduling.queue import Queue
from kai.controllers.sums import Sum


@attrs.frozen(kw_only=True)
class QueueTotals:
    """What the queue controller writes about a queue."""

    children: tuple[str, ...] = ()
    allocated: Mapping[str, str] = attrs.field(factory=dict)
    allocated_non_preemptible: Mapping[str, str] = attrs.field(factory=dict)
    requested: Mapping[str, str] = attrs.field(factory=dict)


def queue_totals(queue: Queue, queues: Iterable[Queue], own: Sum) -> QueueTotals:
    """Return the children of a queue and the totals below it; ``own`` is the sum of its own pod groups.

    Others than its children may be among ``queues``.

    Raises: BadValue if an amount in a status is not a quantity.
    """
    known = {other.metadata.name: other for other in queues}
    children = [known[name] for name in sorted(known) if known[name].spec.parent_queue == queue.metadata.name]
    total = Sum.of(*(child.status for child in children if not _is_above(child, queue, known))) + own
    return QueueTotals(
        children=tuple(child.metadata.name for child in children),
        allocated=texts(total.allocated),
        allocated_non_preemptible=texts(total.allocated_non_preemptible),
        requested=texts(total.requested),
    )


def _is_above(child: Queue, queue: Queue, known: Mapping[str, Queue]) -> bool:
    """Return whether following parents from `queue` leads to `child`, which then would be added to itself."""
    seen: set[str] = set()
    current: Queue | None = queue
    while current is not None and current.metadata.name not in seen:
        if current.metadata.name == child.metadata.name:
            return True
        seen.add(current.metadata.name)
        current = known.get(current.spec.parent_queue)
    return False


def status_patch(queue: Queue, totals: QueueTotals) -> dict[str, Any] | None:
    """Return the merge patch of the queue's status; None if nothing changed, however it is written."""
    changes: dict[str, Any] = {}
    if queue.status.child_queues != totals.children:
        changes["childQueues"] = list(totals.children) or None
    for wire, old, new in (
        ("allocated", queue.status.allocated, totals.allocated),
        ("allocatedNonPreemptible", queue.status.allocated_non_preemptible, totals.allocated_non_preemptible),
        ("requested", queue.status.requested, totals.requested),
    ):
        if not same(old, new):
            gone = dict.fromkeys(name for name in old if name not in new)
            changes[wire] = {**gone, **new} if new else None
    return {"status": changes} if changes else None
