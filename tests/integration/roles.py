"""The light roles of kai against a control plane, each with the account and the rights that it ships with."""

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any

import attrs
from anyio.from_thread import BlockingPortal

from kai.binder import service as binder
from kai.binder.settings import BinderSettings, ReservationSettings
from kai.cluster.credentials import Source
from kai.cluster.lease import LeaseSettings
from kai.controllers import service as controllers
from kai.controllers.node_scale import ScaleSettings
from kai.podgrouper import Settings
from kai.podgrouper import service as podgrouper
from tests.integration.controlplane import ControlPlane
from tests.integration.installation import container_argument

NAMESPACE = "kai-scheduler"


def binder_settings() -> BinderSettings:
    """Return the settings of the binder with what the shipped Deployment gives it."""
    reservation = ReservationSettings(
        image="reserve:1",
        timeout_seconds=60.0,
        pod_security_context=container_argument("--resource-reservation-pod-security-context"),
        container_security_context=container_argument("--resource-reservation-container-security-context"),
    )
    return BinderSettings(reservation=reservation)


Serve = Callable[[Source, LeaseSettings | None], Coroutine[Any, Any, None]]

ROLES: dict[str, Serve] = {
    "binder": lambda source, lease: binder.serve(binder_settings(), source=source, lease=lease),
    "podgrouper": lambda source, lease: podgrouper.serve(Settings(), source=source, lease=lease),
    "podgroup-controller": lambda source, lease: controllers.serve_pod_groups(source=source, lease=lease),
    "queue-controller": lambda source, lease: controllers.serve_queues(source=source, lease=lease),
    "node-scale-adjuster": lambda source, lease: controllers.serve_nodes(
        ScaleSettings(image="scale:1", cool_down_seconds=1.0), source=source, lease=lease
    ),
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
            self.start_as(name, name)

    def start_as(self, name: str, role: str, lease: LeaseSettings | None = None) -> None:
        """Start a role under a name of its own, so that there can be two."""
        config = self.plane.kubeconfig(self.plane.account(NAMESPACE, role), name)
        self.running[name] = self.portal.start_task_soon(ROLES[role], Source(kubeconfig=str(config)), lease)

    def stop(self, *names: str) -> None:
        """End these roles where they are, all by default."""
        for name in names or tuple(self.running):
            future = self.running.pop(name)
            if future.done():
                future.result()  # it should not have ended by itself; this raises why it did
            future.cancel()
