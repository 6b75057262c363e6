"""The light roles of kai against a control plane, each with the account and the rights that it ships with."""

from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any

import attrs
from anyio.from_thread import BlockingPortal

from kai.binder.service import WATCHED as BINDER_WATCHED
from kai.binder.service import make_binder
from kai.binder.settings import BinderSettings, ReservationSettings
from kai.cluster.connect import Options
from kai.cluster.credentials import Source
from kai.cluster.port import Cluster
from kai.cluster.serving import serve_alone
from kai.cluster.store import Watched
from kai.controllers import node_scale_service, podgroup_service, queue_service
from kai.controllers.node_scale import ScaleSettings
from kai.controllers.service import adjust_nodes, keep_pod_groups, keep_queues
from kai.podgrouper import Settings
from kai.podgrouper.reading import WATCHED as PODGROUPER_WATCHED
from kai.podgrouper.service import group_pods
from tests.integration.controlplane import ControlPlane
from tests.integration.installation import container_argument

NAMESPACE = "kai-scheduler"


def binder_settings() -> BinderSettings:
    """Return the settings of the binder with what the shipped Deployment gives it."""
    reservation = ReservationSettings(
        image="reserve:1",
        timeout_seconds=10.0,
        pod_security_context=container_argument("--resource-reservation-pod-security-context"),
        container_security_context=container_argument("--resource-reservation-container-security-context"),
    )
    return BinderSettings(reservation=reservation)


async def _bind(cluster: Cluster) -> None:
    await make_binder(cluster, binder_settings()).run()


async def _group(cluster: Cluster) -> None:
    await group_pods(cluster, Settings())


async def _scale(cluster: Cluster) -> None:
    await adjust_nodes(cluster, ScaleSettings(image="scale:1", cool_down_seconds=1.0))


Work = Callable[[Cluster], Coroutine[Any, Any, None]]

ROLES: dict[str, tuple[Work, Iterable[type[Any]]]] = {
    "binder": (_bind, BINDER_WATCHED),
    "podgrouper": (_group, PODGROUPER_WATCHED),
    "podgroup-controller": (keep_pod_groups, podgroup_service.WATCHED),
    "queue-controller": (keep_queues, queue_service.WATCHED),
    "node-scale-adjuster": (_scale, node_scale_service.WATCHED),
}


@attrs.define
class Roles:
    """Roles that run in the event loop of a portal."""

    plane: ControlPlane
    portal: BlockingPortal
    running: dict[str, "Future[Any]"] = attrs.field(factory=dict)

    def start(self, *names: str) -> None:
        """Start these roles, all by default."""
        for name in names or ROLES:
            work, watched = ROLES[name]
            config = self.plane.kubeconfig(self.plane.account(NAMESPACE, name), name)
            options = Options(
                component=name,
                watched=tuple(Watched(cls=cls) for cls in watched),
                source=Source(kubeconfig=str(config)),
            )
            self.running[name] = self.portal.start_task_soon(serve_alone, options, work)

    def stop(self, *names: str) -> None:
        """End these roles where they are, all by default."""
        for name in names or tuple(self.running):
            future = self.running.pop(name)
            if future.done():
                future.result()  # it should not have ended by itself; this raises why it did
            future.cancel()
