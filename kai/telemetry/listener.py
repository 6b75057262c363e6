"""What is answered to clients that look at a process: probes, metrics, snapshots. GET and HEAD, one answer each.

What only this machine may ask for is asked for under a name of this machine as well: a page of a stranger that gives
its own name our address would otherwise read it through the browser of a user who opened it.

A path has a route; `kai.telemetry.connections` says which clients may connect, and for how long. Each listener has
limits of its own, so that a client that holds the port of metrics holds nothing of the port of probes.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

import anyio
import attrs
from anyio.abc import TaskStatus

from kai.errors import CommandLineError
from kai.notation import shown
from kai.telemetry.connections import Limits, Request, Response, serve

LOOPBACK: Final = "127.0.0.1"
STRANGE_NAME: Final = "found another name in Host, expected localhost or 127.0.0.1"
_LOCAL_NAMES: Final = frozenset({"localhost", LOOPBACK, "[::1]"})


Answer: TypeAlias = Callable[[], Awaitable[Response]]


@attrs.frozen(kw_only=True)
class Route:
    """The function that answers a path, and whether only this machine may ask."""

    answer: Answer
    local: bool = False


@attrs.frozen
class Address:
    """Where to listen; no host is every interface."""

    host: str
    port: int

    def __str__(self) -> str:
        """Return the address as flags have it."""
        return f"{self.host}:{self.port}"


def read_address(text: str, flag: str) -> Address | None:
    """Return the address in a flag as Go writes them (``:8080``, ``127.0.0.1:8080``); None for "0", which is off.

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
    """Answer requests at an address until cancelled; the task's start is told the port.

    Raises: ConfigError if it is not free.
    """
    turns = {path: anyio.Lock() for path in routes}

    async def respond(request: Request) -> Response:
        refused = _refusal(routes, request)
        if refused is not None:
            return refused
        async with turns[request.path]:  # metrics and snapshots take a thread each, and those are a cycle's as well
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
    """Return whether an address is of this machine itself."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)


def is_asked_locally(request: Request) -> bool:
    """Return whether a request names this machine in its ``Host``, whatever the port."""
    host = request.headers.get("Host", "")
    name = host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return name.lower() in _LOCAL_NAMES
