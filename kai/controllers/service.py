"""The controllers as services: a function for each, on a cluster that is open already.

Read `podgroup_service`, `queue_service` and `node_scale_service` for what each does.
"""

from __future__ import annotations

from kai.api import names
from kai.cluster.port import Cluster
from kai.cluster.signals import Observe, unobserved
from kai.controllers.node_scale import ScaleSettings
from kai.controllers.node_scale_service import NodeScaleAdjuster
from kai.controllers.podgroup_service import PodGroupController
from kai.controllers.queue_service import QueueController


async def keep_pod_groups(
    cluster: Cluster, *, scheduler_name: str = names.SCHEDULER_NAME, observe: Observe = unobserved
) -> None:
    """Keep the statuses of pod groups, until cancelled."""
    await PodGroupController(cluster, scheduler_name, observe=observe).run()


async def keep_queues(cluster: Cluster, *, observe: Observe = unobserved) -> None:
    """Keep the statuses of queues, until cancelled."""
    await QueueController(cluster, observe=observe).run()


async def adjust_nodes(cluster: Cluster, settings: ScaleSettings, *, observe: Observe = unobserved) -> None:
    """Keep scaling pods for pods that share GPUs and find no place, until cancelled."""
    await NodeScaleAdjuster(cluster, settings, observe=observe).run()
