"""The identity of this process in leases: one life of one container, and whether earlier lives are over.

The kubelet restarts a container only after its last process has ended, so a lease that an earlier life of the same
container holds could be taken over at once. Two things make that an assumption: a second container of the pod may run
the same roles, and a shell in the container inherits its environment. Hence the proof: every life holds an abstract
socket, named after the container, in the network namespace, which all containers of a pod share. The kernel frees the
name when the process ends, and never before; a process that is frozen keeps it.

What a process reads from its own pod: the image, which the pods that it creates can run too.
"""

from __future__ import annotations

import hashlib
import platform
import socket
from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import structlog

from kai.api.plans import Reason, Refusal
from kai.basics.deadlines import doubling_pause
from kai.basics.errors import CommandLineError, ConfigError
from kai.cli.running.flags import TOGETHER
from kai.cluster.election.leading import fresh_identity
from kai.cluster.election.lease import LeaseSettings
from kai.cluster.requests import Fetch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kai.cli.running.flags import Given
    from kai.cluster.port import Cluster


HOLD_GPU: Final = ("reserve",)
"""The arguments of a reservation pod that runs kai's image."""
END_AT_ONCE: Final = ("version",)
"""The arguments of a scaling pod that runs kai's image: all it has to do is to end."""


_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0
_REFUSALS: Final = 5
"""Accept a refusal after this many in a row, within 15 seconds: a starting server may forbid what it allows later."""


async def own_image(cluster: Cluster, environment: Mapping[str, str]) -> str:
    """Return the image of the pod that this process runs in; "" outside of a pod, or where it may not be read.

    ``POD_NAME`` and ``POD_NAMESPACE`` name that pod. Terms begin when an API server is in trouble, so requests are
    retried until it answers: without an image no shared GPU could be held for the whole term.
    """
    name, namespace = environment.get("POD_NAME", ""), environment.get("POD_NAMESPACE", "")
    if not name or not namespace:
        return ""
    refused = failures = 0
    while True:
        found: Any = await cluster.api.perform(Fetch(api_version="v1", kind="Pod", name=name, namespace=namespace))
        if not isinstance(found, Refusal):
            containers = found.get("spec", {}).get("containers") or [{}]
            return str(containers[0].get("image", ""))
        if not failures:
            structlog.get_logger().warning("own image unknown", pod=f"{namespace}/{name}", why=found.message)
        failures += 1
        refused = refused + 1 if found.reason is Reason.REJECTED else 0
        if refused == _REFUSALS or found.reason is Reason.NOT_FOUND:
            return ""
        await cluster.clock.sleep(max(found.retry_after or 0.0, doubling_pause(failures, _FIRST_PAUSE, _LONGEST_PAUSE)))


@attrs.frozen
class ProcessIdentity:
    """The holder identity of a process in leases: one life of its container, until `end` or the end of the process."""

    container: str
    """Prefix of the identities of all lives of the container; empty if an earlier life may still be running."""
    identity: str
    """The holder identity in a lease."""
    _proof: socket.socket | None = None

    @classmethod
    def begin(cls, environment: Mapping[str, str], roles: tuple[str, ...]) -> Self:
        """Begin the life of a process with these roles."""
        name = environment.get("POD_NAME") or platform.node()
        uid = environment.get("POD_UID", "")
        if not uid:
            return cls("", fresh_identity(name))
        container = f"{name}/{uid}/{'all' if roles == TOGETHER else '+'.join(roles)}"
        proof = _held(container)
        return cls(container if proof is not None else "", fresh_identity(container), proof)

    def end(self) -> None:
        """Free the socket name, which tells the next life that this one is over."""
        if self._proof is not None:
            self._proof.close()

    def lease(self, given: Given, namespace: str, name: str) -> LeaseSettings:
        """Return how this life competes for a lease.

        Raises: CommandLineError for invalid durations.
        """
        try:
            return LeaseSettings(
                namespace=namespace,
                name=name,
                identity=self.identity,
                container=self.container,
                duration=given.number("leader-elect-lease-duration"),
                renew_within=given.number("leader-elect-renew-deadline"),
                retry=given.number("leader-elect-retry-period"),
            )
        except ConfigError as error:
            raise CommandLineError(*error.messages) from None


def _held(container: str) -> socket.socket | None:
    """Return an abstract socket named after ``container``; None if another process holds that name.

    Also return None on systems without abstract sockets: only Linux has them.
    """
    digest = hashlib.sha256(container.encode()).hexdigest()
    try:
        held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    except (AttributeError, OSError):
        return None
    try:
        held.bind(f"\0kai/{digest}")
    except OSError:
        held.close()
        return None
    return held
