"""A small HTTP server for those who look at a process: probes, metrics, snapshots. GET and HEAD, one answer each.

Why our own and not a web framework: four read-only paths need a request line and nothing else of HTTP, and the only
server at hand, aiohttp's, belongs behind the one door to Kubernetes. What is read is bounded in size and time, and a
connection is closed after its answer.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

import anyio
import attrs
from anyio.abc import SocketAttribute, SocketStream, TaskStatus

from kai.errors import ConfigError

_LARGEST_HEAD: Final = 8192
_PATIENCE: Final = 10.0
_SENDING: Final = 600.0
_TOGETHER: Final = 32
_STATUS: Final = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}
_MORE_STATUS: Final = {500: "Internal Server Error", 503: "Service Unavailable"}
LOOPBACK: Final = "127.0.0.1"


@attrs.frozen(kw_only=True)
class Response:
    """An answer."""

    body: bytes = b""
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = attrs.field(factory=dict)


Answer: TypeAlias = Callable[[], Awaitable[Response]]


@attrs.frozen(kw_only=True)
class Route:
    """Who answers a path, and whether only this machine may ask."""

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

    Raises: ConfigError.
    """
    if text in {"0", ""}:
        return None
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise ConfigError(f'{flag}: found {text!r}, expected an address such as ":8080" or "127.0.0.1:8080"')
    return Address(host.strip("[]"), int(port))


async def listen(
    address: Address, routes: Mapping[str, Route], *, task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED
) -> None:
    """Answer requests at an address until cancelled; the task's start is told the port.

    Raises: ConfigError if nobody may listen there.
    """
    try:
        listener = await anyio.create_tcp_listener(local_host=address.host or None, local_port=address.port)
    except OSError as error:
        raise ConfigError(f"{address}: found {error.strerror or error}, expected a port that is free") from None
    limit = anyio.Semaphore(_TOGETHER)

    async def serve(stream: SocketStream) -> None:
        async with limit, stream:
            with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream, TimeoutError):
                await _serve(stream, routes)  # a client may go away whenever it likes

    async with listener:
        task_status.started(listener.extra(SocketAttribute.local_port))  # noqa: S610 - anyio's, not Django's
        await listener.serve(serve)


async def _serve(stream: SocketStream, routes: Mapping[str, Route]) -> None:
    with anyio.fail_after(_PATIENCE):
        head = await _read_head(stream)
    method, response = await _answer(head, stream, routes)
    reason = {**_STATUS, **_MORE_STATUS}.get(response.status, "")
    headers = {
        "Content-Type": response.content_type,
        "Content-Length": str(len(response.body)),
        "Connection": "close",
        "X-Content-Type-Options": "nosniff",
        **response.headers,
    }
    lines = [f"HTTP/1.1 {response.status} {reason}", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    with anyio.fail_after(_SENDING):
        await stream.send("\r\n".join(lines).encode("latin-1") + (b"" if method == "HEAD" else response.body))


async def _read_head(stream: SocketStream) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < _LARGEST_HEAD:
        head += await stream.receive(_LARGEST_HEAD)
    return head


async def _answer(head: bytes, stream: SocketStream, routes: Mapping[str, Route]) -> tuple[str, Response]:
    parts = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
        return "", Response(status=400, body=b"found no HTTP request\n")
    method, target, _ = parts
    if method not in {"GET", "HEAD"}:
        return method, Response(status=405, body=b"only GET\n", headers={"Allow": "GET, HEAD"})
    route = routes.get(target.partition("?")[0])
    if route is None:
        return method, Response(status=404, body=b"not found\n")
    peer = stream.extra(SocketAttribute.remote_address)  # noqa: S610 - anyio's, not Django's
    if route.local and not is_local(str(peer[0])):
        return method, Response(status=403, body=b"only from this machine\n")
    return method, await route.answer()


def is_local(host: str) -> bool:
    """Say whether an address is of this machine itself."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)
