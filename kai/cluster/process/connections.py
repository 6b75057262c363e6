"""The HTTP server of a process: aiohttp speaks HTTP, and this module bounds the resources that clients may use.

aiohttp has no deadline for the head of a request, and does not limit connections. Here every connection has one
deadline at a time (for its handshake and first head, for a request, for idling), and there are limits of connections in
all and per address. At a limit an unfinished connection is closed in favour of a new one: a kubelet that sends its
request in one go gets its answer, however many other clients have sent nothing yet.

An error in a request ends only that request: it is answered with 500 and logged, at most once a minute.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Final, TypeAlias

import anyio
import attrs
from aiohttp import web
from aiohttp.http import HttpProcessingError
from anyio.abc import SocketAttribute, TaskStatus
from anyio.lowlevel import checkpoint

from kai.basics.errors import ConfigError

_LARGEST_HEAD: Final = 8192
_MOST_HEADERS: Final = 64
_LONGEST_KEPT: Final = 3600.0
_FAREWELL: Final = 1.0
_BREATH: Final = 0.05
_BETWEEN_LINES: Final = 60.0


@attrs.frozen(kw_only=True)
class Limits:
    """Limits for the clients of a listener. Units: seconds; bytes of bodies."""

    connections: int = 256
    of_one_peer: int = 64
    head_seconds: float = 2.0
    """From the connection to the end of its first head, including a handshake."""
    answer_seconds: float = 600.0
    """From the head to the end of the body and its handling; then the same again for sending the answer."""
    rest_seconds: float = 0.0
    """Idle timeout of a connection between two requests; 0 closes it after its answer."""
    body: int = 0
    """Limit of a body; 0: no body is read."""
    bodies: int = 64 * 1024 * 1024
    """Limit of all unfinished bodies together."""


@attrs.frozen(kw_only=True)
class Request:
    """An HTTP request."""

    method: str
    path: str
    """The path without the query."""
    peer: str
    """The address of the client."""
    body: bytes = b""
    query: Mapping[str, str] = attrs.field(factory=dict)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    """Headers by name, case-insensitive."""


@attrs.frozen(kw_only=True)
class Response:
    """An HTTP response."""

    body: bytes = b""
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = attrs.field(factory=dict)
    pieces: AsyncGenerator[bytes, None] | None = None
    """A body that is generated while it is sent, in place of ``body``: each piece after the last one was sent."""


Respond: TypeAlias = Callable[[Request], Awaitable[Response]]
CurrentContext: TypeAlias = Callable[[], ssl.SSLContext | None]
"""Returns the TLS context for the next connection; None for no TLS."""


async def serve(
    host: str,
    port: int,
    respond: Respond,
    limits: Limits,
    *,
    context: CurrentContext = lambda: None,
    task_status: TaskStatus[int] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Serve requests at an address until cancelled; an empty host means all interfaces. Reports the port when started.

    Raises: ConfigError if the port is in use.
    """
    try:
        listener = await anyio.create_tcp_listener(local_host=host or None, local_port=port)
    except OSError as error:
        raise ConfigError(f"{host}:{port}: found {error.strerror or error}, expected a port that is free") from None
    reception = _Reception(respond, limits, context)
    async with listener:
        task_status.started(listener.extra(SocketAttribute.local_port))  # noqa: S610 - anyio's, not Django's
        try:
            async with anyio.create_task_group() as tasks:
                for each in listener.listeners:
                    tasks.start_soon(reception.accept, each.extra(SocketAttribute.raw_socket))  # noqa: S610 - as above
        finally:
            with anyio.CancelScope(shield=True):
                await reception.close()


class _Seldom(logging.Filter):
    """Passes one log line a minute, and none about a client that does not speak HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self._since = -_BETWEEN_LINES
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        # Any port scanner could fill the log with these.
        if isinstance(error, HttpProcessingError):
            return False
        now = time.monotonic()
        if now - self._since < _BETWEEN_LINES:
            self._left_out += 1
            return False
        if self._left_out:
            record.msg, record.args = f"{record.getMessage()} ({self._left_out} lines left out before)", ()
        self._since, self._left_out = now, 0
        return True


_LOG: Final = logging.getLogger(__name__)
_LOG.addFilter(_Seldom())


@attrs.define(eq=False)
class _Visit:
    """A connection, from its arrival on."""

    peer: str
    socket: socket.socket | None
    """The socket; None once a transport owns it."""
    connecting: asyncio.Task[None] | None = None
    transport: asyncio.Transport | None = None
    deadline: asyncio.TimerHandle | None = None
    is_busy: bool = False
    """Whether one of its requests is being handled."""
    has_asked: bool = False
    """Whether it has ever sent a complete head."""
    held: int = 0
    """Bytes of the present body that have arrived."""


class _Reception(web.Server):
    """The connections of one listener."""

    def __init__(self, respond: Respond, limits: Limits, context: CurrentContext) -> None:
        super().__init__(
            self._handle,
            handler_cancellation=True,
            logger=_LOG,
            access_log=None,
            keepalive_timeout=_LONGEST_KEPT,  # ours is shorter
            lingering_time=_FAREWELL,
            max_line_size=_LARGEST_HEAD,
            max_field_size=_LARGEST_HEAD,
            max_headers=_MOST_HEADERS,
            # A small body may unpack to gigabytes, beyond each limit that is counted here.
            auto_decompress=False,
        )
        self._respond = respond
        self._limits = limits
        self._context = context
        self._visits: dict[web.RequestHandler, _Visit] = {}
        """Connections, oldest first."""
        self._of_peer: Counter[str] = Counter()
        self._connecting: set[asyncio.Task[None]] = set()
        self._held = 0

    # --- Connections -----------------------------------------------------------------------------------------------

    async def accept(self, listening: socket.socket) -> None:
        """Accept connections until cancelled, one per iteration of the event loop."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                found, address = await loop.sock_accept(listening)
            except OSError as error:  # no file descriptor is free, or the client has left
                _LOG.warning("a connection was not taken: %s", error)
                await anyio.sleep(_BREATH)
                continue
            self._admit(found, str(address[0]))
            await checkpoint()

    async def close(self) -> None:
        """Close all connections."""
        for protocol in list(self._visits):
            self._drop(protocol)
        await asyncio.gather(*self._connecting, return_exceptions=True)
        await self.shutdown(_FAREWELL)

    def _admit(self, found: socket.socket, peer: str) -> None:
        if not self._make_room(peer):
            found.close()
            return
        protocol = self()
        visit = self._visits[protocol] = _Visit(peer, found)
        self._of_peer[peer] += 1
        self._set_deadline(protocol, visit, self._limits.head_seconds)
        task = visit.connecting = asyncio.get_running_loop().create_task(self._connect(protocol, visit))
        self._connecting.add(task)
        task.add_done_callback(self._connecting.discard)

    def _make_room(self, peer: str) -> bool:
        """Return whether there is room for a connection; at a limit close an unfinished one."""
        if self._of_peer[peer] >= self._limits.of_one_peer:
            return self._drop_one_of(peer)
        if len(self._visits) >= self._limits.connections:
            # Begin with the peer that holds most connections: a flood pushes out its own.
            return any(self._drop_one_of(each) for each, _ in self._of_peer.most_common())
        return True

    def _drop_one_of(self, peer: str) -> bool:
        """Close the oldest connection of a peer without a request in progress; prefer one that never sent any."""
        idle = [
            (visit.has_asked, age, protocol)
            for age, (protocol, visit) in enumerate(self._visits.items())
            if visit.peer == peer and not visit.is_busy
        ]
        if not idle:
            return False
        self._drop(min(idle, key=lambda each: each[:2])[2])
        return True

    async def _connect(self, protocol: web.RequestHandler, visit: _Visit) -> None:
        found, visit.socket = visit.socket, None
        if found is None:
            return
        context = self._context()
        patience = {} if context is None else {"ssl_shutdown_timeout": _FAREWELL}
        try:
            loop = asyncio.get_running_loop()
            await loop.connect_accepted_socket(lambda: protocol, found, ssl=context, **patience)
        except OSError:  # the client left, or its TLS does not match ours
            self._forget(protocol)
        except BaseException:
            self._forget(protocol)
            raise

    def _set_deadline(self, protocol: web.RequestHandler, visit: _Visit, seconds: float) -> None:
        if visit.deadline is not None:
            visit.deadline.cancel()
        visit.deadline = asyncio.get_running_loop().call_later(seconds, self._drop, protocol)

    def _drop(self, protocol: web.RequestHandler) -> None:
        """Close a connection at once."""
        visit = self._forget(protocol)
        if visit is None:
            return
        if visit.transport is not None:
            visit.transport.abort()
        elif visit.connecting is not None:
            visit.connecting.cancel()
        if visit.socket is not None:
            visit.socket.close()

    def _forget(self, protocol: web.RequestHandler) -> _Visit | None:
        visit = self._visits.pop(protocol, None)
        if visit is None:
            return None
        self._of_peer[visit.peer] -= 1
        if not self._of_peer[visit.peer]:
            del self._of_peer[visit.peer]
        if visit.deadline is not None:
            visit.deadline.cancel()
        self._hold(visit, -visit.held)
        return visit

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """Record that a connection is established. Called by aiohttp."""
        super().connection_made(handler, transport)
        visit = self._visits.get(handler)
        # Dropped for its deadline or for another client while it was being established.
        if visit is None:
            transport.abort()
        else:
            visit.transport = transport

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Record that a connection has ended. Called by aiohttp."""
        super().connection_lost(handler, exc)
        self._forget(handler)

    # --- Requests --------------------------------------------------------------------------------------------------

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        protocol = request.protocol
        visit = self._visits.get(protocol)
        if visit is None:
            return _closing(Response(status=408))
        visit.is_busy = visit.has_asked = True
        self._set_deadline(protocol, visit, self._limits.answer_seconds)
        try:
            found = await self._answer(request, visit)
        finally:
            visit.is_busy = False
            self._hold(visit, -visit.held)
        if found.pieces is not None:
            return await self._send(request, visit, found, found.pieces)
        # After a refusal the rest of a body may still be on its way, so the connection is of no more use.
        keeps = self._limits.rest_seconds > 0 and found.status == 200
        if protocol in self._visits:
            self._set_deadline(protocol, visit, self._limits.rest_seconds if keeps else self._limits.answer_seconds)
        return _made(found) if keeps else _closing(found)

    async def _send(
        self, request: web.BaseRequest, visit: _Visit, found: Response, pieces: AsyncGenerator[bytes, None]
    ) -> web.StreamResponse:
        """Send a body in pieces; the connection is closed if the client does not accept a piece in time."""
        visit.is_busy = True
        try:
            response = web.StreamResponse(status=found.status, headers=_headers(found))
            response.force_close()
            async with aclosing(pieces):
                await response.prepare(request)
                async for piece in pieces:
                    if request.protocol in self._visits:
                        self._set_deadline(request.protocol, visit, self._limits.answer_seconds)
                    await response.write(piece)
            await response.write_eof()
        finally:
            visit.is_busy = False
        return response

    async def _answer(self, request: web.BaseRequest, visit: _Visit) -> Response:
        try:
            body = await self._body(request, visit)
            if body is None:
                return Response(status=413, body=b"found a request of excessive size\n")
            # Not decoded: a slash that is a part of a name must not become a separator.
            path = request.raw_path.partition("?")[0]
            asked = Request(
                method=request.method,
                path=path,
                peer=visit.peer,
                body=body,
                query=request.query,
                headers=request.headers,
            )
            return await self._respond(asked)
        except (web.RequestPayloadError, HttpProcessingError, ConnectionError):
            return Response(status=400, body=b"found a body that does not end as it should\n")
        except Exception:  # noqa: BLE001 - the boundary of a request: an error ends only this one
            _LOG.exception("request failed: %s %.80r", request.method, request.raw_path)
            return Response(status=500, body=b"this failed; the log says why\n")

    async def _body(self, request: web.BaseRequest, visit: _Visit) -> bytes | None:
        """Return the body; None if it is too large."""
        most = self._limits.body
        if not most:
            return b""
        # Refused by its own word, before a byte of it is kept.
        if (request.content_length or 0) > most:
            return None
        out = bytearray()
        async for piece in request.content.iter_any():
            out += piece
            if len(out) > most:
                return None
            self._hold(visit, len(piece))
            if self._held > self._limits.bodies:
                # The largest goes: it frees most, and costs one client its request.
                largest = max(self._visits, key=lambda protocol: self._visits[protocol].held)
                self._drop(largest)
        return bytes(out)

    def _hold(self, visit: _Visit, more: int) -> None:
        visit.held += more
        self._held += more


def _made(found: Response) -> web.Response:
    return web.Response(status=found.status, body=found.body, headers=_headers(found))


def _headers(found: Response) -> dict[str, str]:
    headers = {"Content-Type": found.content_type, "X-Content-Type-Options": "nosniff", "Server": "kai"}
    return {**headers, **found.headers}


def _closing(found: Response) -> web.Response:
    response = _made(found)
    response.force_close()
    return response
