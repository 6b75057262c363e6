"""The peer's scheduler parameters that say how a cluster becomes a snapshot."""

from collections.abc import Mapping

from kai.configuration.peer_settings import Settings
from kai.errors import ConfigError
from kai.intake import IntakeSettings, QueueAccess
from kai.notation import shown


def intake_settings(settings: Settings) -> IntakeSettings:
    """Return how the cluster becomes a snapshot under ``settings`` of a scenario or of a snapshot of the peer."""
    default = IntakeSettings()
    partition = settings.values.get("partitionParams")
    pool = partition if isinstance(partition, Mapping) else {}
    label = pool.get("NodePoolLabelKey", settings.values.get("nodePoolLabelKey", default.node_pool_label))
    value = pool.get("NodePoolLabelValue", settings.values.get("nodePoolLabelValue", default.node_pool))
    restrict = "restrictSchedulingNodes" if settings.zeroed else "restrictNodeScheduling"
    return IntakeSettings(
        scheduler_name=settings.text("schedulerName", default.scheduler_name),
        node_pool_label=str(label),
        node_pool=str(value),
        stuck_in_releasing_seconds=settings.seconds("stuckInReleasingThreshold", default.stuck_in_releasing_seconds),
        full_hierarchy_fairness=settings.truth("fullHierarchyFairness", default=default.full_hierarchy_fairness),
        queue_label_key=settings.text("queueLabelKey", default.queue_label_key),
        restrict_node_scheduling=settings.truth(restrict, default=default.restrict_node_scheduling),
        queue_access=_access(settings),
    )


def _access(settings: Settings) -> QueueAccess:
    found = settings.text("queueAccess", QueueAccess.OPEN)
    if found in set(QueueAccess):
        return QueueAccess(found)
    raise ConfigError(f"{settings.place}.queueAccess: found {shown(found)}, expected {' or '.join(QueueAccess)}")
