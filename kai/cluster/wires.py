"""Connections that are kept open for requests with complete answers: the short way to an API server.

Binding a pod costs the server a millisecond or two and should not cost us half of that, so requests go out as bytes and
answers are read as HTTP/1.1 has them, no more: one request at a time on each connection, a length or chunks, no
compression, no redirects, no proxies. Watches, which last for hours, go through `kai.cluster.client`'s own sessions.

Holds: what never was sent says so; whatever fails after the first byte may have been done. A connection whose request
was given up is closed, so no answer is ever taken for that of another request.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from kai.cluster.calls import Answer, NoAnswer, always
from kai.cluster.response import MalformedError, Response

_CONNECT_TIMEOUT: Final = 10.0
_LONGEST_REST: Final = 60.0
_PORTS: Final = {"http": 80, "https": 443}


class Wires:
    """The connections to one address; ``most`` of them at once, any number if 0."""

    def __init__(self, server: str, context: ssl.SSLContext | None, server_name: str, most: int) -> None:
        at = urlsplit(server)
        self._host = at.hostname or ""
        self._port = at.port or _PORTS.get(at.scheme, 0)
        self._context = (context or ssl.create_default_context()) if at.scheme == "https" else None
        self._server_name = (server_name or self._host) if self._context is not None else None
        self._most = most
        self._open = 0
        self._is_retired = False
        self._idle: list[_Wire] = []
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._all: set[_Wire] = set()
        self.host = at.netloc.rpartition("@")[2]
        self.prefix = at.path.rstrip("/")

    async def exchange(
        self,
        request: bytes,
        timeout: float,  # noqa: ASYNC109 - of the whole exchange, which the connection itself keeps
        may_send: Callable[[], bool] = always,
    ) -> Answer | NoAnswer:
        """Send a request, written out, and return the answer to it.

        Getting a connection may take long, so whether the request may still be sent is asked last of all.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        wire = self._take(loop.time())
        if wire is None:
            try:
                async with asyncio.timeout(timeout):
                    wire = await self._connected()
            except (OSError, ValueError, TimeoutError) as error:
                return NoAnswer(was_sent=False, message=words(error))
        try:
            answer = await wire.exchange(request, max(0.0, end - loop.time()), may_send)
        except BaseException:
            wire.abort()
            raise
        finally:
            self._give_back(wire, loop.time())
        return answer

    def retire(self) -> None:
        """Close the connections that rest; the others are closed when their answers have come."""
        self._is_retired = True
        for wire in self._idle:
            self._drop(wire)
        self._idle.clear()

    def close(self) -> None:
        """Close all connections; what is under way fails."""
        for wire in list(self._all):
            wire.abort()
        self._idle.clear()

    def _take(self, now: float) -> _Wire | None:
        """Return a connection that rests, the one that was used last."""
        while self._idle:
            wire = self._idle.pop()
            if wire.is_open and now - wire.since <= _LONGEST_REST:
                return wire
            self._drop(wire)
        return None

    async def _connected(self) -> _Wire:
        """Return another connection, as soon as there may be one more, or one that came free before."""
        loop = asyncio.get_running_loop()
        while self._most and self._open >= self._most:
            turn: asyncio.Future[None] = loop.create_future()
            self._waiting.append(turn)
            try:
                await turn
            except BaseException:
                if turn.done() and not turn.cancelled():
                    self._wake()
                raise
            wire = self._take(loop.time())
            if wire is not None:
                return wire
        self._open += 1
        wire = _Wire()
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT):
                await loop.create_connection(
                    lambda: wire, self._host, self._port, ssl=self._context, server_hostname=self._server_name
                )
        except BaseException:
            wire.abort()
            self._open -= 1
            self._wake()
            raise
        self._all.add(wire)
        return wire

    def _give_back(self, wire: _Wire, now: float) -> None:
        if wire.is_open and not self._is_retired:
            wire.since = now
            self._idle.append(wire)
        else:
            self._drop(wire)
        self._wake()

    def _drop(self, wire: _Wire) -> None:
        wire.abort()
        if wire in self._all:
            self._all.remove(wire)
            self._open -= 1

    def _wake(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return


class _Wire(asyncio.Protocol):
    """One connection, with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._future: asyncio.Future[Answer | NoAnswer] | None = None
        self._answer = Response()
        self._deadline: asyncio.TimerHandle | None = None
        self.since = 0.0
        """Since when it rests."""

    @property
    def is_open(self) -> bool:
        """Return whether another request may be sent on it."""
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(
        self,
        request: bytes,
        timeout: float,  # noqa: ASYNC109 - as above
        may_send: Callable[[], bool],
    ) -> Answer | NoAnswer:
        """Send a request and return the answer."""
        transport, loop = self._transport, asyncio.get_running_loop()
        if transport is None:
            return NoAnswer(was_sent=False, message="the connection was closed")
        future: asyncio.Future[Answer | NoAnswer] = loop.create_future()
        self._future = future
        self._answer = Response()
        self._deadline = loop.call_later(timeout, self._expire)
        if not may_send():
            future.set_result(NoAnswer(was_sent=False, message="it may not be sent any more"))
        else:
            transport.write(request)
        try:
            return await future
        finally:
            self._deadline.cancel()
            self._future = None

    def abort(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None

    # --- What the loop calls ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the connection."""
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Take a piece of the answer."""
        if self._future is None:
            self.abort()  # nobody asked: whatever it answers, it is not the next request
            return
        try:
            is_whole = self._answer.feed(data)
        except MalformedError as error:
            self._fail(f"found no HTTP: {error}")
            return
        if is_whole:
            self._finish()

    def connection_lost(self, error: Exception | None) -> None:
        """Take the end of the connection, which may be the end of the answer."""
        self._transport = None
        if self._future is None:
            return
        if error is None and self._answer.ends_with_connection:
            self._finish()
        else:
            self._fail("the connection was cut" if error is None else words(error))

    def _finish(self) -> None:
        if not self._answer.keeps_connection or self._answer.has_more:
            self.abort()
        if self._future is not None and not self._future.done():
            self._future.set_result(self._answer.answer())

    def _fail(self, message: str) -> None:
        self.abort()
        if self._future is not None and not self._future.done():
            self._future.set_result(NoAnswer(was_sent=True, message=message))

    def _expire(self) -> None:
        self._fail("no answer in time")


def words(error: BaseException) -> str:
    """Return what went wrong, on one line."""
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
