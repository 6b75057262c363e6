"""A configuration for simulations: what it speaks of replaces what a case says, the rest stays as the case has it."""

from __future__ import annotations

from typing import Final

import attrs

from kai.cli.running.configuring import read_text, setup_of, with_flags
from kai.cli.running.flags import read_flags
from kai.cli.running.roleflags import FLAGS, ROLES, SCHEDULER, TOGETHER
from kai.cli.running.roles import configuration_of, intake_of
from kai.configuration.registry import Registry
from kai.simulation.request import Policy

PARAMETER_OF: Final = {
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
"""The flags that decisions depend on, and the parameter that each sets."""
SETTING_OF: Final = {
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
"""The flags that change what a snapshot is, and what each sets."""


def load_policy(path: str) -> Policy:
    """Return what a file says; of a SchedulingShard also what its flags come to, as `kai run` would have it.

    Raises: ConfigError.
    """
    return policy_of(read_text(path), path)


def policy_of(text: bytes, place: str, registry: Registry | None = None) -> Policy:
    """Return what a text says that stands at ``place``: as ``load_policy``.

    Raises: ConfigError.
    """
    setup = setup_of(text, place, registry)
    if setup.shard is None:
        return Policy(configuration=setup.configuration, said=setup.said, document=setup.document)
    given = with_flags(read_flags([SCHEDULER], FLAGS, ROLES, TOGETHER), setup.shard, place)
    parameters = configuration_of(given)[0].parameters
    intake = intake_of(given)
    changed = {
        PARAMETER_OF[name]: getattr(parameters, PARAMETER_OF[name]) for name in given.named & PARAMETER_OF.keys()
    }
    own = setup.configuration
    return Policy(
        configuration=attrs.evolve(own, parameters=attrs.evolve(own.parameters, **changed)),
        said=setup.said | changed.keys(),
        document=setup.document,
        settings={SETTING_OF[name]: getattr(intake, SETTING_OF[name]) for name in given.named & SETTING_OF.keys()},
    )
