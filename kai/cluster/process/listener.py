"""Serves probes, metrics and snapshots: GET and HEAD.

Routes for this machine only also require a local name in the Host header. Otherwise a malicious page could point its
own DNS name to our address, and read them through the browser of a user who opened it.

Each path has a route. `kai.cluster.process.connections` limits the clients. Each listener has limits of its own, so
that a client that blocks the port of metrics does not block the port of probes.

`Probes` answers a kubelet: whether the event loop runs, and whether the process can do its work.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

import anyio
import attrs

from kai.basics.errors import CommandLineError
from kai.basics.wording import shown
from kai.cluster.process.connections import Limits, Request, Response, serve

if TYPE_CHECKING:
    from anyio.abc import TaskStatus

LOOPBACK: Final = "127.0.0.1"
STRANGE_NAME: Final = "found another name in Host, expected localhost or 127.0.0.1"
_LOCAL_NAMES: Final = frozenset({"localhost", LOOPBACK, "[::1]"})


Answer: TypeAlias = Callable[[], Awaitable[Response]]


@attrs.frozen(kw_only=True)
class Route:
    """The function that answers a path, and whether only this machine may request it."""

    answer: Answer
    local: bool = False


@attrs.frozen
class Address:
    """The address of a listener; an empty host means all interfaces."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return the address in the form of flags."""
        return f"{self.host}:{self.port}"


def read_address(text: str, flag: str) -> Address | None:
    """Return the address in a flag in Go's form (``:8080``, ``127.0.0.1:8080``); None for "0", which means off.

    Raises: CommandLineError.
    """
    if text in {"0", ""}:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit() and len(port) <= 5) or int(port) > 65535:
        raise CommandLineError(f'{flag}: found {shown(text)}, expected an address such as ":8080" or "127.0.0.1:8080"')
    return Address(host.strip("[]"), int(port))


async def listen(
    address: Address, routes: Mapping[str, Route], *, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Serve requests at an address until cancelled; reports the port when started.

    Raises: ConfigError if the port is in use.
    """
    turns = {path: anyio.Lock() for path in routes}

    async def respond(request: Request) -> Response:
        refused = _refusal(routes, request)
        if refused is not None:
            return refused
        async with turns[request.path]:  # one at a time: metrics and snapshots take threads, which cycles need too
            return await routes[request.path].answer()

    await serve(address.host, address.port, respond, Limits(), task_status=task_status)


def _refusal(routes: Mapping[str, Route], request: Request) -> Response | None:
    if request.method not in {"GET", "HEAD"}:
        return Response(status=405, body=b"only GET\n", headers={"Allow": "GET, HEAD"})
    route = routes.get(request.path)
    if route is None:
        return Response(status=404, body=b"not found\n")
    if route.local and not is_local(request.peer):
        return Response(status=403, body=b"only from this machine\n")
    if route.local and not is_asked_locally(request):
        return Response(status=421, body=f"{STRANGE_NAME}\n".encode())
    return None


def is_local(host: str) -> bool:
    """Return whether an address is a loopback address."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    # A socket for both families shows 127.0.0.1 as ::ffff:127.0.0.1.
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def is_asked_locally(request: Request) -> bool:
    """Return whether a request names this machine in its ``Host`` header, with any port."""
    host = request.headers.get("Host", "")
    name = host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return name.lower() in _LOCAL_NAMES


_LONGEST: Final = 500

Check: TypeAlias = Callable[[], str]
"""Returns a problem as text; "" if there is none."""


@attrs.define
class Probes:
    """The checks of all roles of a process."""

    _checks: dict[str, Check] = attrs.field(factory=dict)
    _notes: dict[str, Check] = attrs.field(factory=dict)

    def add(self, name: str, check: Check) -> None:
        """Make readiness depend on a check."""
        self._checks[name] = check

    def add_note(self, name: str, note: Check) -> None:
        """Show a problem on which readiness does not depend."""
        self._notes[name] = note

    def problems(self) -> Mapping[str, str]:
        """Return the problems by the names of their checks."""
        found = {name: check() for name, check in self._checks.items()}
        return {name: problem for name, problem in found.items() if problem}

    def routes(self) -> Mapping[str, Route]:
        """Return the routes for a kubelet, including KAI-Scheduler's ``/healthz``."""
        return {
            "/livez": Route(answer=self._live),
            "/healthz": Route(answer=self._live),
            "/readyz": Route(answer=self._ready),
        }

    async def _live(self) -> Response:
        # That this coroutine runs proves that the event loop does.
        return Response(body=b"ok")

    async def _ready(self) -> Response:
        problems = self.problems()
        if not problems:
            notes = {name: note() for name, note in self._notes.items()}
            lines = [f"{name}: {_on_one_line(notes[name])}" for name in sorted(notes) if notes[name]]
            return Response(body="\n".join(["ok", *lines]).encode())
        # Any client may read it, and a reason may quote foreign input: truncate it, on one line.
        lines = [f"not ready: {', '.join(sorted(problems))}"]
        lines += [f"{name}: {_on_one_line(problems[name])}" for name in sorted(problems)]
        return Response(status=503, body=("\n".join(lines) + "\n").encode())


def _on_one_line(text: str) -> str:
    printable = "".join(char if char.isprintable() else " " for char in text)
    return printable if len(printable) <= _LONGEST else f"{printable[:_LONGEST]}…"
