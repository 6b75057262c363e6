"""The connections to one server, kept open by aiohttp: whole answers, and bodies that arrive in pieces.

aiohttp speaks HTTP. This module adds what the users of `kai.cluster.transport.calls.Transport` rely on:

- `Call.may_send` is checked twice: when a connection is available, so that a refused call leaves it intact, and just
  before the first byte, since aiohttp writes a body in a later iteration of the event loop.
- Whether a request was sent is recorded, and not guessed from the type of an error.
- A request is sent at most once. aiohttp repeats PUT and DELETE when a connection breaks; here the caller decides,
  because it knows whether the outcome of the first attempt matters.
- Connections from a burst of calls are closed afterwards: the most recently used one is used first, so that the others
  reach their idle timeout. aiohttp takes turns, so one call a second kept sixty of them open.
- A connection on which the server sent something unasked is closed, so that it is not taken for the answer to another
  request.
- A call that is given up also drops the bytes that were not yet passed to the operating system.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode, urlsplit, urlunsplit

import aiohttp
import attrs
from aiohttp import hdrs
from aiohttp.payload import BytesPayload
from yarl import URL

from kai.cluster.transport.calls import Answer, Call, NoAnswer, Stream

if TYPE_CHECKING:
    import ssl

    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.client_reqrep import ConnectionKey

_CONNECT_TIMEOUT: Final = 10.0
_LONGEST_REST: Final = 60.0
_READ_SIZE: Final = 1 << 18
_IMPERSONATED: Final = "Impersonate-User"
_CLOSING: Final = 0.02
_NO_LIMIT: Final = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT)
"""Each call has a deadline of its own, and a stream has none."""
_FAILURES: Final = (aiohttp.ClientError, OSError, TimeoutError, ValueError)


class _WithheldError(Exception):
    """The call may no longer be sent."""


@attrs.define(eq=False)
class _Sending:
    """One call on its way to a connection."""

    may_send: Callable[[], bool]
    has_body: bool
    is_sent: bool = False
    """Whether the server may have received any part of the request."""
    is_withheld: bool = False
    transport: asyncio.Transport | None = None

    def allow(self) -> None:
        """Check whether the call may be sent. Raises: _WithheldError."""
        if not self.may_send():
            self.is_withheld = True
            raise _WithheldError

    def failed(self, error: BaseException) -> NoAnswer:
        """Return the result for an error."""
        why = "it may not be sent any more" if self.is_withheld else _words(error)
        is_distrusted = isinstance(error, aiohttp.ClientConnectorCertificateError)
        return NoAnswer(was_sent=self.is_sent, message=why, is_distrusted=is_distrusted)

    def give_up(self) -> None:
        """Drop the unsent bytes of a closing connection; one that serves other calls by now stays as it is."""
        if self.transport is not None and self.transport.is_closing():
            self.transport.abort()


_SENDING: Final[ContextVar[_Sending]] = ContextVar("sending")


class _Content(BytesPayload):
    """The body of a request, which is sent together with its head."""

    def __init__(self, value: bytes, sending: _Sending) -> None:
        super().__init__(value)
        self._sending = sending

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write head and body, unless the call may no longer be sent."""
        self._sending.allow()
        transport = self._sending.transport
        if transport is None or transport.is_closing():
            raise aiohttp.ClientConnectionResetError("the connection was closed")
        self._sending.is_sent = True
        await super().write_with_length(writer, content_length)


class _Connector(aiohttp.TCPConnector):
    """Hands out connections to calls that may still be sent."""

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[aiohttp.tracing.Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the signature of aiohttp's method
    ) -> aiohttp.connector.Connection:
        """Return a connection for a request; from here to the first byte nothing waits."""
        sending = _SENDING.get()
        # aiohttp repeats some requests on another connection by itself; a write must not be sent twice.
        if sending.is_sent:
            raise aiohttp.ServerDisconnectedError("the connection was cut")
        connection = await super().connect(req, traces, timeout)
        if connection.protocol is None or connection.protocol.should_close:
            connection.close()
            raise aiohttp.ClientConnectionError("the server spoke without being asked")
        try:
            sending.allow()
        except _WithheldError:
            connection.release()
            raise
        sending.transport = connection.transport
        sending.is_sent = not sending.has_body
        return connection

    async def _get(
        self, key: ConnectionKey, traces: list[aiohttp.tracing.Trace]
    ) -> aiohttp.connector.Connection | None:
        """Return the most recently used idle connection; aiohttp itself takes the least recently used one."""
        if resting := self._conns.get(key):
            resting.rotate(1)
        return await super()._get(key, traces)


class Connections:
    """The connections to one address; at most ``most`` at once, 0 for no limit."""

    def __init__(
        self,
        server: str,
        context: ssl.SSLContext | None = None,
        *,
        server_name: str = "",
        proxy: str = "",
        user_agent: str = "kai",
        impersonated: str = "",
        most: int = 0,
    ) -> None:
        at = urlsplit(server)
        # Without a user in the address, which aiohttp would send as basic authentication.
        self._server = urlunsplit(at._replace(netloc=at.netloc.rpartition("@")[2])).rstrip("/")
        self._context = context if context is not None else True
        self._server_name = (server_name or None) if at.scheme == "https" else None
        self._proxy = proxy or None
        self._headers: dict[str, str] = {hdrs.USER_AGENT: user_agent, hdrs.ACCEPT_ENCODING: "identity"}
        if impersonated:
            self._headers[_IMPERSONATED] = impersonated
        self._most = most
        self._session: aiohttp.ClientSession | None = None

    async def exchange(self, call: Call, authorization: str = "") -> Answer | NoAnswer:
        """Send a request and return the whole answer."""
        sending = _Sending(call.may_send, call.body is not None)
        token = _SENDING.set(sending)
        try:
            async with asyncio.timeout(call.timeout):
                response = await self._open(call, authorization, sending)
                body = await _read(response, call.largest)
        except (*_FAILURES, _WithheldError) as error:
            sending.give_up()
            return sending.failed(error)
        except BaseException:
            sending.give_up()
            raise
        finally:
            _SENDING.reset(token)
        return _answer(response, body)

    @asynccontextmanager
    async def stream(self, call: Call, authorization: str = "") -> AsyncIterator[Stream | Answer | NoAnswer]:
        """Send a request and return the body as it arrives, or the response that refuses it."""
        response = await self._begin(call, authorization)
        if isinstance(response, NoAnswer):
            yield response
            return
        try:
            yield _Body(response) if 200 <= response.status < 300 else await _refusal(response, call)
        finally:
            # Abort even with unread data: a stream that is left early has no end to read, and a TLS close would wait
            # for the server's reply.
            if response.connection is not None and response.connection.transport is not None:
                response.connection.transport.abort()
            response.close()

    async def close(self) -> None:
        """Close all connections; calls in flight fail."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
            # aiohttp ends connections some iterations of the event loop after the close.
            await asyncio.sleep(_CLOSING)

    async def _begin(self, call: Call, authorization: str) -> aiohttp.ClientResponse | NoAnswer:
        """Send a request and return the response up to its headers."""
        sending = _Sending(call.may_send, call.body is not None)
        token = _SENDING.set(sending)
        try:
            async with asyncio.timeout(call.timeout):
                return await self._open(call, authorization, sending)
        except (*_FAILURES, _WithheldError) as error:
            return sending.failed(error)
        finally:
            _SENDING.reset(token)

    async def _open(self, call: Call, authorization: str, sending: _Sending) -> aiohttp.ClientResponse:
        target = f"{call.path}?{urlencode(call.query)}" if call.query else call.path
        if not target.isascii() or not target.isprintable() or " " in target or "#" in target:
            raise ValueError("found characters that no path has")
        headers = {hdrs.ACCEPT: call.accept, **dict(call.headers)}
        if authorization:
            headers[hdrs.AUTHORIZATION] = authorization
        if call.body is not None:
            headers[hdrs.CONTENT_TYPE] = call.content_type
        return await self._current().request(
            call.method,
            URL(self._server + target, encoded=True),  # verbatim: a name of two dots must not lead to another path
            data=None if call.body is None else _Content(call.body, sending),
            headers=headers,
            timeout=_NO_LIMIT,
            # A redirect could take the token to another host.
            allow_redirects=False,
            server_hostname=self._server_name,
            proxy=self._proxy,
        )

    def _current(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(limit=self._most, ssl=self._context, keepalive_timeout=_LONGEST_REST),
                headers=self._headers,
                auto_decompress=False,
                read_bufsize=_READ_SIZE,
                # The cookie of a load balancer would tie all calls to one API server.
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session


class _Body:
    """A stream over a response."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def read(self) -> bytes | NoAnswer:
        """Return the bytes that have arrived, b"" at the end."""
        try:
            return await self._response.content.readany()
        except _FAILURES as error:
            return NoAnswer(was_sent=True, message=_words(error))


class _EndlessError(aiohttp.ClientPayloadError):
    """An answer exceeds its size limit."""


async def _read(response: aiohttp.ClientResponse, largest: int) -> bytes:
    """Return the body; bounded, so that an endless answer cannot fill the memory.

    Raises: _EndlessError.
    """
    pieces, size = [], 0
    try:
        async for piece in response.content.iter_any():
            size += len(piece)
            if size > largest:
                raise _EndlessError(f"found an answer of more than {largest} bytes, expected at most that")
            pieces.append(piece)
    except BaseException:
        response.close()
        raise
    return b"".join(pieces)


async def _refusal(response: aiohttp.ClientResponse, call: Call) -> Answer | NoAnswer:
    try:
        async with asyncio.timeout(call.timeout):
            body = await _read(response, call.largest)
    except _FAILURES as error:
        return NoAnswer(was_sent=True, message=_words(error))
    return _answer(response, body)


def _answer(response: aiohttp.ClientResponse, body: bytes) -> Answer:
    found = response.headers
    wait, location = found.get(hdrs.RETRY_AFTER, ""), found.get(hdrs.LOCATION, "")
    return Answer(status=response.status, body=body, retry_after=wait, location=location)


def _words(error: BaseException) -> str:
    """Return an error on one line, without the password that the address of a proxy may hold."""
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return f"{type(error).__name__}: the proxy answered {error.status}"
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return f"{type(error).__name__}: the proxy {error.host}:{error.port} cannot be reached"
    error = getattr(error, "os_error", None) or error  # aiohttp's own message only adds the host, which callers know
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
