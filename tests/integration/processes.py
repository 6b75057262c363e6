"""kai as programs: ``kai run`` in processes of their own, with the command lines of the shipped Deployments."""

import json
import os
import signal
import sys
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs

from tests.integration.client import Api, until
from tests.integration.controlplane import ControlPlane, Daemon
from tests.integration.forking import Forked
from tests.integration.installation import container_argument
from tests.integration.ports import HOST, free_ports

NAMESPACE = "kai-scheduler"
# Cycles are quick to follow one another, so that tests need not wait for what a cycle would not change any more.
_PERIOD = "50ms"


@attrs.define
class Program:
    """One process of kai."""

    daemon: Daemon
    metrics_port: int
    probes_port: int
    plugins_port: int
    roles: tuple[str, ...]

    def is_ready(self) -> bool:
        """Return whether it says so. Raises: DiedError if it ended."""
        return is_ready(self.daemon, self.probes_port)

    def metric(self, name: str) -> float:
        """Return the value of a metric without labels, 0 if there is none yet."""
        lines = fetch(self.metrics_port, "/metrics").decode().splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name} ")), 0.0)

    def cycles(self) -> float:
        """Return how many cycles are over, of a shadow as well."""
        return self.metric("kai_cycle_duration_seconds_count") or self.metric("kai_shadow_cycle_duration_seconds_count")


def start(
    plane: ControlPlane,
    api: Api,
    folder: Path,
    name: str,
    *roles: str,
    flags: tuple[str, ...] = (),
    environment: Mapping[str, str] | None = None,
    afresh: bool = True,
) -> Program:
    """Start roles (all that run together by default) in one process that connects as a user; do not wait for it.

    Unless it begins ``afresh``, it is forked from a process that has everything imported.
    """
    metrics, probes, plugins = free_ports(3)
    arguments = [f"--kubeconfig={plane.kubeconfig(api, name)}", "--v=4", f"--health-probe-bind-address={HOST}:{probes}"]
    listen = {"scheduler": "listen-address", "queue-controller": "metrics-listen-address"}
    arguments.append(
        f"--{listen.get(roles[0], 'metrics-bind-address') if roles else 'listen-address'}={HOST}:{metrics}"
    )
    if not roles or "scheduler" in roles:
        arguments += [f"--plugin-server-port={plugins}", f"--schedule-period={_PERIOD}"]
    if not roles or "binder" in roles:
        for flag in ("pod-security-context", "container-security-context"):
            value = json.dumps(container_argument(f"--resource-reservation-{flag}"))
            arguments.append(f"--resource-reservation-{flag}={value}")
        arguments.append("--resource-reservation-pod-image=reserve:1")
    if not roles or "node-scale-adjuster" in roles:
        arguments.append("--scaling-pod-image=scale:1")
    log, command = folder / f"{name}.log", ("run", *roles, *arguments, *flags)
    if afresh:
        # Bytecode is kept even where this process was told to keep none: many programs begin with the same modules.
        variables = {"PYTHONDONTWRITEBYTECODE": "", **(environment or {})}
        set_them = ("env", *(f"{key}={value}" for key, value in variables.items()))
        daemon = Daemon((*set_them, sys.executable, "-m", "kai", *command), log)
    else:
        daemon = Forked(command, log, environment=dict(environment or {}))
    daemon.start()
    return Program(daemon, metrics, probes, plugins, roles)


@contextmanager
def running(
    plane: ControlPlane, api: Api, folder: Path, name: str, *roles: str, flags: tuple[str, ...] = ()
) -> Iterator[Program]:
    """Run roles like `start`, ready, and show what they wrote to the log when a test fails."""
    program = start(plane, api, folder, name, *roles, flags=flags)
    with shown(program.daemon):
        wait(program)
        yield program


@contextmanager
def shown(daemon: Daemon) -> Iterator[None]:
    """Show what a program wrote when a test fails; it ends with the test."""
    try:
        yield
    except (AssertionError, TimeoutError) as error:
        raise type(error)(f"{error}\n{daemon.tail(60)}") from error
    finally:
        daemon.stop()


def wait(*programs: Program) -> None:
    """Wait until all are ready."""
    for program in programs:
        await_ready(program.daemon, program.probes_port, f"kai {' '.join(program.roles)}")


def await_ready(daemon: Daemon, port: int, what: str) -> None:
    """Wait until a program is ready; where no kernel was ever compiled, that takes a minute."""
    until(lambda: is_ready(daemon, port), f"{what} to be ready", seconds=300)


def is_ready(daemon: Daemon, port: int) -> bool:
    """Return whether a program says that it is ready. Raises: DiedError if it ended."""
    _ = daemon.pid
    try:
        return fetch(port, "/readyz") == b"ok"
    except OSError:
        return False


def fetch(port: int, path: str) -> bytes:
    """Return what a listener on this machine answers."""
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=30) as answer:
        body: bytes = answer.read()
        return body


@contextmanager
def throttled(program: Program, share: float, period: float = 0.1) -> Iterator[None]:
    """Let a program run for a share of each period only, as a limit on processor time does."""
    pid, is_over = program.daemon.pid, threading.Event()

    def throttle() -> None:
        while not is_over.wait(share * period):
            os.kill(pid, signal.SIGSTOP)
            is_over.wait((1.0 - share) * period)
            os.kill(pid, signal.SIGCONT)

    thread = threading.Thread(target=throttle, name="throttle", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def frozen(*programs: Program) -> Iterator[None]:
    """Stop programs for a while: what happens meanwhile happens at once, to them."""
    pids = [each.daemon.pid for each in programs]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
