"""Ports for programs under test, which stay ours while programs die and are started again."""

import fcntl
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

HOST: Final = "127.0.0.1"
_PORTS: Final = range(11000, 32000)
"""The system gives none of these to programs that ask for any port."""


class Ports:
    """Ports of one process: no other process that asks for them here gets one of these until ours has ended.

    A program that was killed uses no port until it is started again. So a port is claimed by a lock on the byte of its
    number in a file that all share: the system takes the lock back when our process ends, however it ends.
    """

    def __init__(self, claims: Path, ports: range = _PORTS) -> None:
        self._ports = ports
        self._claims = os.open(claims, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._ours: set[int] = set()

    def take(self, count: int) -> list[int]:
        """Return ports that no program uses and no process has claimed, and claim them.

        We begin somewhere else each time, so that programs of others that look for free ports rarely meet ours.
        """
        return list(islice(self._free(), count))

    def _free(self) -> Iterator[int]:
        first = secrets.randbelow(len(self._ports))
        for port in (*self._ports[first:], *self._ports[:first]):
            if port not in self._ours and self._claim(port):
                self._ours.add(port)
                if _is_unused(port):
                    yield port

    def _claim(self, port: int) -> bool:
        try:
            fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        return True


def _is_unused(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


free_ports: Final = Ports(Path(tempfile.gettempdir()) / f"kai-test-ports-{os.getuid()}").take
