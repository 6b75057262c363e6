"""The identity of this process in leases: one life of one container, and whether earlier lives are over.

The kubelet restarts a container only after its last process has ended, so a lease that an earlier life of the same
container holds could be taken over at once. Two things make that an assumption: a second container of the pod may run
the same roles, and a shell in the container inherits its environment. Hence the proof: every life holds an abstract
socket, named after the container, in the network namespace, which all containers of a pod share. The kernel frees the
name when the process ends, and never before; a process that is frozen keeps it.
"""

from __future__ import annotations

import hashlib
import platform
import socket
from typing import TYPE_CHECKING, Self

import attrs

from kai.basics.errors import CommandLineError, ConfigError
from kai.cli.running.roleflags import TOGETHER
from kai.cluster.election.leading import fresh_identity
from kai.cluster.election.lease import LeaseSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kai.cli.running.flags import Given


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
