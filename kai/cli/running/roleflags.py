"""The flags of every role, with KAI-Scheduler's names and defaults; ``docs/reference/flags.md`` explains them.

Source: the options of KAI-Scheduler's programs, cmd/*/app.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kai.cli.running.flagrows import (
    ADMISSION,
    BINDER,
    INERT,
    OWN,
    POD_GROUPS,
    PODGROUPER,
    QUEUES,
    ROLES,
    SCALE,
    SCHEDULER,
    SHARED,
    TOGETHER,
)
from kai.cli.running.flags import Flag

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def _all() -> Iterator[Flag]:
    for roles, rows in (*SHARED.items(), *(((role,), rows) for role, rows in OWN.items())):
        for name, kind, default in rows:
            yield Flag(name=name, kind=kind, default=default, roles=frozenset(roles), inert=INERT.get(name, ""))


FLAGS: Final[Mapping[str, Flag]] = {flag.name: flag for flag in _all()}

LEASES: Final[Mapping[str, str]] = {
    BINDER: "2ad35f9c.kai.scheduler",
    PODGROUPER: "54dff599.kai.scheduler",
    POD_GROUPS: "o1x22tjj.kai.scheduler",
    QUEUES: "ov3xj497.kai.scheduler",
    SCALE: "7n7h49uc.kai.scheduler",
    ADMISSION: "ojptxr84.kai.scheduler",
}
"""The leases of roles that run alone, with KAI-Scheduler's names, so that its component and kai's never run at once."""

REPORTED_AS: Final[Mapping[str, str]] = {PODGROUPER: "pod-grouper"}
"""The source in events of roles that run alone, where it is not their name: as in KAI-Scheduler's events."""

PARAMETER_OF: Final[Mapping[str, str]] = {
    "scheduler-name": "scheduler_name",
    "max-consolidation-preemptees": "max_consolidation_preemptees",
    "allow-consolidating-reclaim": "allow_consolidating_reclaim",
    "use-scheduling-signatures": "use_scheduling_signatures",
    "default-staleness-grace-period": "default_staleness_grace_seconds",
    "restrict-node-scheduling": "restrict_node_scheduling",
    "cpu-worker-node-label-key": "cpu_worker_label",
    "gpu-worker-node-label-key": "gpu_worker_label",
    "detailed-fit-errors": "detailed_fit_errors",
    "schedule-csi-storage": "schedule_csi_storage",
}
"""The flags that change decisions, and the parameter that each sets."""

SETTING_OF: Final[Mapping[str, str]] = {
    "nodepool-label-key": "node_pool_label",
    "partition-label-value": "node_pool",
    "stuck-in-releasing-threshold": "stuck_in_releasing_seconds",
    "full-hierarchy-fairness": "full_hierarchy_fairness",
    "scheduler-name": "scheduler_name",
    "resource-reservation-namespace": "reservation_namespace",
    "resource-reservation-app-label": "reservation_app",
    "queue-label-key": "queue_label_key",
    "restrict-node-scheduling": "restrict_node_scheduling",
    "cpu-worker-node-label-key": "cpu_worker_label",
    "gpu-worker-node-label-key": "gpu_worker_label",
    "mig-worker-node-label-key": "mig_worker_label",
    "max-pending-shapes-per-namespace": "namespace_shapes",
    "max-pending-pods-per-namespace": "namespace_pods",
    "queue-access": "queue_access",
}
"""The flags that change how a cluster becomes a snapshot, and the setting of each."""

__all__ = [
    "ADMISSION",
    "BINDER",
    "FLAGS",
    "LEASES",
    "PARAMETER_OF",
    "PODGROUPER",
    "POD_GROUPS",
    "QUEUES",
    "REPORTED_AS",
    "ROLES",
    "SCALE",
    "SCHEDULER",
    "SETTING_OF",
    "TOGETHER",
]
