"""The status of a queue: its children, and what the pod groups below it ask for and hold.

One look at one queue adds up the statuses of its children and of its own pod groups, as they are now; a change travels
up the tree one level a look. That stands still on a cycle of queues only because a queue on a cycle is not added to
itself.

Source: the peer's queue controller, which has no such guard.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from kai.ancestry import ancestry
from kai.api.conventions.amounts import texts
from kai.api.scheduling.queue import Queue, QueueStatus
from kai.controllers.sums import Sum, changed_lists


def queue_totals(queue: Queue, queues: Iterable[Queue], own: Sum) -> QueueStatus:
    """Return the status of a queue with its children and the totals below it; ``own`` is the sum of its pod groups.

    Others than its children may be among ``queues``.

    Raises: BadValue if an amount in a status is not a quantity.
    """
    known = {other.metadata.name: other for other in queues}
    children = [known[name] for name in sorted(known) if known[name].spec.parent_queue == queue.metadata.name]
    parents = {other.metadata.name: other.spec.parent_queue for other in (*known.values(), queue)}
    above = ancestry(queue.metadata.name, parents)
    total = Sum.of(*(child.status for child in children if child.metadata.name not in above)) + own
    return attrs.evolve(
        queue.status,
        child_queues=tuple(child.metadata.name for child in children),
        allocated=texts(total.allocated),
        allocated_non_preemptible=texts(total.allocated_non_preemptible),
        requested=texts(total.requested),
    )


def status_patch(queue: Queue, totals: QueueStatus) -> dict[str, Any] | None:
    """Return the merge patch of the queue's children and totals; None if nothing changed, however it is written."""
    changes = changed_lists(queue.status, totals)
    if queue.status.child_queues != totals.child_queues:
        changes["childQueues"] = list(totals.child_queues) or None
    return {"status": changes} if changes else None
