"""Which life of which container this process is, and whether the lives before it are over.

The kubelet starts a container again only when its last process has ended, so a lease that an earlier life of the same
container holds could be taken over at once. Two things make that an assumption: a second container of the pod may run
the same roles, and a shell in the container inherits its environment. Hence the proof: every life holds a socket with
a name of its own in the network namespace, which all containers of a pod share. The kernel gives the name back when the
process ends, and never before; a process that is frozen keeps it.
"""

from __future__ import annotations

import hashlib
import platform
import socket
from typing import TYPE_CHECKING, Self

import attrs

from kai.cli.running.roleflags import TOGETHER
from kai.cluster.election.leading import fresh_identity
from kai.cluster.election.lease import LeaseSettings
from kai.errors import CommandLineError, ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kai.cli.running.flags import Given


@attrs.frozen
class ProcessIdentity:
    """Who a process is in a lease: one life of its container, until `end` or the end of the process."""

    container: str
    """How the identities of all its lives begin, if all before this one are over; empty if they may be at work."""
    identity: str
    """Who we are in a lease."""
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
        """Let the next life know that this one is over."""
        if self._proof is not None:
            self._proof.close()

    def lease(self, given: Given, namespace: str, name: str) -> LeaseSettings:
        """Return how this life competes for a lease.

        Raises: CommandLineError for times that cannot be used.
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
    """Return a socket with a name made of this one, which no other process has at the same time; None if one has.

    Return None as well where the system knows no such names: only Linux does.
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
