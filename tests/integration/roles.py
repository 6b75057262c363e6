"""The light roles of kai against a control plane, each with the account and the rights that it ships with.

They are made of flags and work in terms, as `kai run` lets them; only the process around them is the test's.
"""

import json
from typing import TYPE_CHECKING, Any

import anyio
import attrs
from anyio.from_thread import BlockingPortal

from kai.cli.running.flags import FLAGS, REPORTED_AS, TOGETHER, read_flags
from kai.cli.running.flags import ROLES as KNOWN
from kai.cli.running.lifetime import work_in_terms
from kai.cli.running.roles import Role, binder, controller, podgrouper
from kai.cluster.caching.store import Watched
from kai.cluster.connect import Options, connect
from kai.cluster.election.leading import SoleLeadership
from kai.cluster.election.lease import LeaseSettings
from kai.cluster.port import Cluster
from kai.cluster.process.tracing import no_tracing
from kai.cluster.signals import unobserved
from kai.cluster.transport.credentials import Source
from kai.roles.controllers.node_scale import ScaleSettings
from kai.roles.controllers.node_scale_service import NodeScaleAdjuster
from tests.integration.controlplane import ControlPlane
from tests.integration.installation import container_argument

if TYPE_CHECKING:
    from concurrent.futures import Future

NAMESPACE = "kai-scheduler"
ROLES = ("binder", "podgrouper", "podgroup-controller", "queue-controller", "node-scale-adjuster")


def made(name: str) -> Role:
    """Return a role with what the shipped Deployment gives it."""
    arguments = [name]
    if name == "binder":
        pod = json.dumps(container_argument("--resource-reservation-pod-security-context"))
        container = json.dumps(container_argument("--resource-reservation-container-security-context"))
        arguments += [
            "--resource-reservation-pod-image=reserve:1",
            "--resource-reservation-allocation-timeout=60",
            f"--resource-reservation-pod-security-context={pod}",
            f"--resource-reservation-container-security-context={container}",
        ]
    given = read_flags(arguments, FLAGS, KNOWN, TOGETHER)
    if name == "binder":
        return binder(given, unobserved, no_tracing())[0]
    if name == "podgrouper":
        return podgrouper(given, unobserved)[0]
    role = controller(name, given, unobserved)
    if name != "node-scale-adjuster":
        return role

    async def work(cluster: Cluster) -> None:  # no flag says how long it waits between two scaling pods
        await NodeScaleAdjuster(cluster, ScaleSettings(image="scale:1", cool_down_seconds=1.0)).run()

    return attrs.evolve(role, work=work)


async def serve(name: str, source: Source, lease: LeaseSettings | None) -> None:
    """Let a role work on a connection of its own, until cancelled."""
    role = made(name)
    watched = tuple(Watched(cls=cls) for cls in role.watched)
    options = Options(component=REPORTED_AS.get(name, name), watched=watched, source=source, lease=lease)
    async with connect(options) as connection, anyio.create_task_group() as tasks:
        leadership = connection.leadership or SoleLeadership(name)
        connection.api.leadership = leadership
        tasks.start_soon(connection.run)
        tasks.start_soon(work_in_terms, role, connection, leadership)


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
        self.running[name] = self.portal.start_task_soon(serve, role, Source(kubeconfig=str(config)), lease)

    def stop(self, *names: str) -> None:
        """End these roles where they are, all by default."""
        for name in names or tuple(self.running):
            future = self.running.pop(name)
            if future.done():
                future.result()  # it should not have ended by itself; this raises why it did
            future.cancel()
