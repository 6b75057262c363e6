"""Settings that decide which objects are part of a snapshot and how labels are read."""

from collections.abc import Mapping
from enum import StrEnum

import attrs

from kai.api import names
from kai.api.kubernetes.meta import ObjectMeta
from kai.basics.kubernetes_version import NEWEST, KubernetesVersion


class QueueAccess(StrEnum):
    """Which namespaces may use a queue.

    Source: with the peer, every namespace uses every queue.
    """

    OPEN = "open"
    """All namespaces."""
    REQUIRED = "required"
    """The namespaces that the queue admits."""


@attrs.frozen(kw_only=True)
class IntakeSettings:
    """The settings by which a cluster becomes a snapshot. The defaults are the peer's.

    Source: the flags of the peer's scheduler (cmd/scheduler/app/options).
    """

    node_pool_label: str = names.NODE_POOL
    """Label that divides nodes, queues and pod groups among schedulers; "" puts everything into one."""
    node_pool: str = ""
    """Value of that label; "" stands for objects without the label."""
    stuck_in_releasing_seconds: float = 120.0
    """A running pod that has been terminating for longer is no longer expected to leave."""
    full_hierarchy_fairness: bool = True
    """False: one synthetic, unlimited parent for all queues that have a parent; top queues are dropped."""
    scheduler_name: str = names.SCHEDULER_NAME
    """The scheduler whose bound pods share devices, also where no grant says so."""
    reservation_namespace: str = names.RESERVATION_NAMESPACE
    """The namespace of reservation pods, which hold a device for its sharers; their label has no effect elsewhere."""
    reservation_app: str = names.RESERVATION_APP
    """The value of the ``app`` label of reservation pods."""
    queue_label_key: str = names.QUEUE
    """The label that names the queue of a shared resource claim."""
    restrict_node_scheduling: bool = False
    """Only nodes with a worker label are part of the snapshot."""
    cpu_worker_label: str = names.CPU_WORKER
    gpu_worker_label: str = names.GPU_WORKER
    mig_worker_label: str = names.MIG_ENABLED
    namespace_shapes: int = 0
    """The most shapes of pending pods that one cycle considers in one namespace; 0 is all of them."""
    namespace_pods: int = 0
    """The most pending pods that one cycle considers in one namespace; 0 is all of them. Groups are never split."""
    kubernetes: KubernetesVersion = NEWEST
    """The version of the API server: the amounts of pods and devices follow the rules of its scheduler."""
    queue_access: QueueAccess = QueueAccess.OPEN
    """Which namespaces may use a queue (``kai.intake.queues``)."""

    def owns(self, labels: Mapping[str, str]) -> bool:
        """Return whether an object with ``labels`` belongs to this scheduler's part of the cluster."""
        if not self.node_pool_label:
            return True
        if not self.node_pool:
            return self.node_pool_label not in labels
        return labels.get(self.node_pool_label) == self.node_pool

    def holds_device(self, metadata: ObjectMeta) -> bool:
        """Return whether a pod is a reservation pod, which holds a device for its sharers.

        Source: the peer checks the label alone, which every user who may create pods can write.
        """
        return (
            metadata.labels.get(names.APP) == self.reservation_app and metadata.namespace == self.reservation_namespace
        )

    def pool(self, labels: Mapping[str, str]) -> str:
        """Return the node pool that ``labels`` name, "" for none."""
        return labels.get(self.node_pool_label, "")
