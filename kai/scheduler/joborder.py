"""The order of jobs as others read it: what the peer's plugin reflectjoborder serves under ``/get-job-order``.

It is made for each request, of the cluster as it is then; no cycle pays for it.
"""

from __future__ import annotations

import json
from typing import Any, Final

from kai.engine.profile import Profile
from kai.engine.waiting_order import waiting_order
from kai.intake import take_snapshot
from kai.intake.aside import without
from kai.scheduler.cycle_input import CycleInput
from kai.scheduler.settings import SchedulerSettings

JOB_ORDER_PATH: Final = "/get-job-order"
NOT_READY: Final = b"Job order data not ready\n"


def job_order(given: CycleInput, settings: SchedulerSettings, profile: Profile) -> bytes:
    """Return the groups that wait in the order of allocation, over all queues and in each: names and priorities.

    Cost: that of a snapshot from scratch and of opening a session; not for the event loop.
    """
    snapshot = take_snapshot(without(given.objects, given.aside), given.now, settings.intake, given.past)
    everywhere: list[dict[str, Any]] = []
    queues: dict[str, list[dict[str, Any]]] = {}
    for row in waiting_order(snapshot, profile):
        group = snapshot.groups[row]
        entry = {"id": group.name, "priority": group.priority}
        everywhere.append(entry)
        queues.setdefault(group.queue, []).append(entry)
    document = {"global_order": everywhere, "queue_order": dict(sorted(queues.items()))}
    return json.dumps(document, indent=2).encode() + b"\n"
