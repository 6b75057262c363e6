"""The controllers as services: one function for each on a cluster that is open already, one for a process of its own.

Read `podgroup_service`, `queue_service` and `node_scale_service` for what each does.
"""

from __future__ import annotations

from kai.api import names
from kai.cluster.credentials import Source
from kai.cluster.lease import LeaseSettings
from kai.cluster.port import Cluster
from kai.cluster.serving import role_options, serve_alone
from kai.cluster.signals import Observe, unobserved
from kai.controllers import node_scale_service, podgroup_service, queue_service
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


async def serve_pod_groups(
    *, source: Source | None = None, lease: LeaseSettings | None = None, observe: Observe = unobserved
) -> None:
    """Keep the statuses of pod groups in a process of its own, until cancelled."""

    async def work(cluster: Cluster) -> None:
        await keep_pod_groups(cluster, observe=observe)

    await serve_alone(role_options("podgroup-controller", podgroup_service.WATCHED, source, lease), work)


async def serve_queues(
    *, source: Source | None = None, lease: LeaseSettings | None = None, observe: Observe = unobserved
) -> None:
    """Keep the statuses of queues in a process of its own, until cancelled."""

    async def work(cluster: Cluster) -> None:
        await keep_queues(cluster, observe=observe)

    await serve_alone(role_options("queue-controller", queue_service.WATCHED, source, lease), work)


async def serve_nodes(
    settings: ScaleSettings,
    *,
    source: Source | None = None,
    lease: LeaseSettings | None = None,
    observe: Observe = unobserved,
) -> None:
    """Keep scaling pods in a process of its own, until cancelled."""

    async def work(cluster: Cluster) -> None:
        await adjust_nodes(cluster, settings, observe=observe)

    await serve_alone(role_options("node-scale-adjuster", node_scale_service.WATCHED, source, lease), work)
