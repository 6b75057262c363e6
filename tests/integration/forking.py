"""``kai run`` in processes that begin with its modules imported: a server imports them once and forks.

A process of kai spends two seconds of processor on imports before it does anything, and the tests start dozens of them
that are all alike. One that is forked is a process as any other: it has a command line, an environment, signals and an
end of its own, and nothing is carried over but what an import leaves behind. What is told about starting, and roles
that run alone, begin from nothing (``tests.integration.processes``).

Run as a program, this module is the server: each line that comes in asks for a process, each that goes out is its id.
"""

import atexit
import ctypes
import functools
import importlib
import importlib.metadata
import json
import os
import pkgutil
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NoReturn

import attrs

from kai.cluster.clock import SystemClock
from tests.integration.client import PATIENCE
from tests.integration.controlplane import Daemon, DiedError

ROOT: Final = Path(__file__).parents[2]
_PACKAGES: Final = (
    "kai.cli.running",
    "kai.cluster",
    "kai.roles.scheduler",
    "kai.roles.binder",
    "kai.roles.podgrouper",
    "kai.roles.controllers",
)
AHEAD: Final = "TESTS_CLOCK_AHEAD"
"""The variable that says how many seconds the clock of a process is ahead."""
_END_WITH_PARENT: Final = 1  # PR_SET_PDEATHSIG


@attrs.define
class Forked(Daemon):
    """A process of kai that was forked; it ends with the tests even if they are killed."""

    environment: dict[str, str] = attrs.field(factory=dict, kw_only=True)
    _id: int = attrs.field(default=0, init=False)
    _handle: int = attrs.field(default=-1, init=False)

    def start(self) -> None:
        """Start the process."""
        asked = {"command": self.command, "log": str(self.log), "environment": {**os.environ, **self.environment}}
        self._id = _server().fork(json.dumps(asked))
        self._handle = os.pidfd_open(self._id)

    @property
    def pid(self) -> int:
        """Return the id of the process. Raises: DiedError if it is not running."""
        if not self._runs():
            raise DiedError(f"kai: ended\n{self.tail()}")
        return self._id

    def _runs(self, seconds: float = 0.0) -> bool:
        """Return whether the process still runs after so many seconds."""
        return self._handle >= 0 and not select.select([self._handle], [], [], seconds)[0]

    def stop(self, *, kill: bool = False) -> None:
        """End the process and wait for it."""
        if self._runs():
            signal.pidfd_send_signal(self._handle, signal.SIGKILL if kill else signal.SIGTERM)
            if self._runs(PATIENCE):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
                self._runs(PATIENCE)
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


@attrs.frozen
class Server:
    """The process that forks."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls) -> "Server":
        """Start it; it ends when its input does, so at the latest with us."""
        command = (sys.executable, "-m", __name__)
        variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPATH": _path()}
        pipe = subprocess.PIPE
        server = cls(subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT, env=variables))
        atexit.register(server.stop)
        return server

    def fork(self, asked: str) -> int:
        """Return the id of the process that is asked for."""
        self.process.stdin.write(f"{asked}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise DiedError("the server that forks processes of kai ended; its output tells why")
        return int(answer)

    def stop(self) -> None:
        """End it, and with it what it forked."""
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@functools.cache
def _server() -> Server:
    return Server.start()


def _path() -> str:
    return os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH", ""))))


# --- The server -------------------------------------------------------------------------------------------------------


def serve() -> None:
    """Import what kai runs, and fork for every line."""
    for package in map(importlib.import_module, _PACKAGES):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    for point in importlib.metadata.entry_points(group="kai.plugins"):
        point.load()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that the system takes away what ended
    for line in sys.stdin:
        child = os.fork()
        if not child:
            _become(json.loads(line))
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()


def _become(asked: dict[str, object]) -> NoReturn:
    """Do in the child what a new process would have found done."""
    ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    log = Path(asked["log"])
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for opened, number in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(opened, number)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(log.parent)
    status = 70
    try:
        _set_clock(float(os.environ.pop(AHEAD, "0")))
        from kai.cli import main

        sys.argv = ["kai", *asked["command"]]
        main(asked["command"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else bool(end.code)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # the server's own end is not ours


def _set_clock(ahead: float) -> None:
    """Put the clock of this process forward; all of kai has the time of day from one class."""
    if ahead:
        SystemClock.now = lambda _: time.time() + ahead


if __name__ == "__main__":
    serve()
