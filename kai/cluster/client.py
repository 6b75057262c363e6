"""HTTP to an API server: connections, encryption, credentials; raw bytes in and out. The only door to the network.

Nothing is repeated here but one thing: what was refused with 401 is sent once more with credentials that were read
anew, since tokens expire. What a failure of the network means is said by `NoAnswer`; everything above decides.

Source: kubernetes_asyncio reads credentials that other programs make (``exec``, identity providers); it is loaded only
when a kubeconfig file asks for them, because its generated models cost a second and 70 MiB.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlencode

import aiohttp
import anyio
import attrs
import structlog
from anyio import to_thread

from kai.cluster.calls import Answer, Call, NoAnswer, Query, Stream
from kai.cluster.credentials import Credentials, Source
from kai.cluster.port import Clock
from kai.cluster.wires import Wires, words
from kai.errors import ApiError, ConfigError

_CONNECT_TIMEOUT: Final = 10.0
_REFRESH: Final = 60.0
_UNAUTHORIZED_FOR: Final = 30.0
_ENDS_IN: Final = f"{_UNAUTHORIZED_FOR:g}s, unless other credentials are found"
_READ_SIZE: Final = 1 << 18
_CLOSING: Final = 0.02
_BODILESS: Final = frozenset({"GET", "HEAD", "DELETE"})


class UnauthorizedError(ApiError):
    """The API server has not known us for too long: whoever runs this process must give it other credentials."""


@attrs.define(eq=False)
class Account:
    """The credentials of a process, kept current, and shared by all its connections."""

    source: Source
    clock: Clock
    credentials: Credentials
    generation: int = 0
    """Grows with every change of what connections are made with."""
    refused_since: float | None = None
    """Since when the server has not known us."""
    problem: str = ""
    _read_at: float = 0.0
    _reading: anyio.Lock = attrs.field(factory=anyio.Lock)

    @classmethod
    async def open(cls, source: Source, clock: Clock) -> Self:
        """Read the credentials.

        Raises: ConfigError if there are none.
        """
        return cls(source, clock, await _load(source), read_at=clock.monotonic())

    async def refresh(self) -> bool:
        """Read the credentials again; return whether they changed. What cannot be read leaves them as they are."""
        before = self.credentials
        async with self._reading:
            if self.credentials is not before:
                return True
            try:
                loaded = await _load(self.source)
                self.problem = ""
            except ConfigError as error:
                self.problem = str(error)
                structlog.get_logger().warning("credentials not read again", why=str(error))
                return False
            finally:
                self._read_at = self.clock.monotonic()
            if loaded == before:
                return False
            self.credentials = loaded
            if loaded.tls != before.tls or loaded.server != before.server:
                self.generation += 1
            return True

    def note(self, status: int) -> None:
        """Note how the server answered."""
        server, account = self.credentials.server, self.credentials.account
        if status == 401 and self.refused_since is None:
            self.refused_since = self.clock.monotonic()
            structlog.get_logger().error(
                "API server does not know our credentials", server=server, account=account, why="401", ends_in=_ENDS_IN
            )
        elif status != 401 and self.refused_since is not None:
            self.refused_since = None
            structlog.get_logger().info("API server knows our credentials again", server=server, account=account)

    async def run(self) -> None:
        """Keep the credentials current, until cancelled.

        Raises: UnauthorizedError when the server has not known us for 30 seconds.
        """
        while True:
            await self.clock.sleep(1.0)
            now = self.clock.monotonic()
            if self.refused_since is not None and now - self.refused_since > _UNAUTHORIZED_FOR:
                wanted = f"known credentials at {self.credentials.server}"
                message = f"credentials: found refused with 401 for {_UNAUTHORIZED_FOR:g} seconds, expected {wanted}"
                raise UnauthorizedError(message, retryable=False)
            if now - self._read_at >= _REFRESH:
                await self.refresh()


class Client:
    """A pool of connections; see `kai.cluster.calls.Transport`. Open and close it with ``async with``."""

    def __init__(self, account: Account, *, user_agent: str, connections: int = 0) -> None:
        self._account = account
        self._user_agent = user_agent
        self._connections = connections
        self._session: aiohttp.ClientSession | None = None
        self._generation = -1
        self._old: list[aiohttp.ClientSession] = []
        self._wires: tuple[int, Wires] | None = None
        """The connections for whole answers, and the generation of the certificates that they were made with."""

    async def __aenter__(self) -> Self:
        """Return itself; connections are made when they are needed."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        if self._wires is not None:
            self._wires[1].close()
            self._wires = None
        with anyio.CancelScope(shield=True):
            for session in (*self._old, *((self._session,) if self._session else ())):
                await session.close()
            # Connections end a few turns of the loop after they were closed.
            await anyio.sleep(_CLOSING)
        self._old.clear()
        self._session = None

    async def request(self, call: Call) -> Answer | NoAnswer:
        """Send a request and return the response."""
        answer = await self._send(call)
        if isinstance(answer, Answer) and answer.status == 401 and await self._account.refresh():
            answer = await self._send(call)
        if isinstance(answer, Answer):
            self._account.note(answer.status)
        return answer

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream | Answer | NoAnswer]:
        """Send a request and return the body as it arrives, or the response that refuses it."""
        response = await self._begin(call, total=None)
        if isinstance(response, aiohttp.ClientResponse) and response.status == 401 and await self._account.refresh():
            response.close()
            response = await self._begin(call, total=None)
        if isinstance(response, NoAnswer):
            yield response
            return
        try:
            self._account.note(response.status)
            if 200 <= response.status < 300:
                yield _Body(response)
            else:
                yield await self._complete(response, call)
        finally:
            # Whatever is still in it: a stream that is left is not read to its end.
            _abort(response)

    async def _send(self, call: Call) -> Answer | NoAnswer:
        try:
            wires = await self._current_wires()
        except ConfigError as error:
            return NoAnswer(was_sent=False, message=str(error))
        credentials = self._account.credentials
        target = _url(wires.prefix, call.path, call.query)
        lines = [
            f"{call.method} {target} HTTP/1.1",
            f"Host: {wires.host}",
            f"User-Agent: {self._user_agent}",
            f"Accept: {call.accept}",
            "Accept-Encoding: identity",
        ]
        if credentials.authorization:
            lines.append(f"Authorization: {credentials.authorization}")
        if call.body is not None:
            lines += [f"Content-Type: {call.content_type}", f"Content-Length: {len(call.body)}"]
        elif call.method not in _BODILESS:
            lines.append("Content-Length: 0")
        head = "\r\n".join(lines)
        if not target.isprintable() or " " in target or not head.isascii():
            return NoAnswer(was_sent=False, message=f"{call.method} {call.path}: found characters that no path has")
        written = head.encode() + b"\r\n\r\n" + (call.body or b"")
        found = await wires.exchange(written, call.timeout, call.may_send)
        if isinstance(found, NoAnswer):
            return attrs.evolve(found, message=f"{call.method} {call.path}: {found.message}")
        return found

    async def _current_wires(self) -> Wires:
        """Return the connections for the present certificates; those made with others are closed when they rest."""
        generation = self._account.generation
        if self._wires is None or self._wires[0] != generation:
            credentials = self._account.credentials
            context = await to_thread.run_sync(credentials.ssl_context)
            if self._wires is None or self._wires[0] != generation:
                if self._wires is not None:
                    self._wires[1].retire()
                made = Wires(credentials.server, context, credentials.server_name, self._connections)
                self._wires = (generation, made)
        return self._wires[1]

    async def _begin(self, call: Call, *, total: float | None) -> aiohttp.ClientResponse | NoAnswer:
        """Send a request and return the response up to its headers."""
        try:
            session = await self._current()
        except ConfigError as error:
            return NoAnswer(was_sent=False, message=str(error))
        credentials = self._account.credentials
        headers = {"Accept": call.accept, "Accept-Encoding": "identity", "User-Agent": self._user_agent}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        if credentials.authorization:
            headers["Authorization"] = credentials.authorization
        timeout = aiohttp.ClientTimeout(total=total, sock_connect=_CONNECT_TIMEOUT)
        try:
            with anyio.fail_after(call.timeout):
                return await session.request(
                    call.method,
                    _url(credentials.server, call.path, call.query),
                    data=call.body,
                    headers=headers,
                    timeout=timeout,
                    allow_redirects=False,
                    server_hostname=credentials.server_name or None,
                )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return _failure(error, call)

    async def _complete(self, response: aiohttp.ClientResponse, call: Call) -> Answer | NoAnswer:
        try:
            with anyio.fail_after(call.timeout):
                body = await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            response.close()
            return _failure(error, call, answered=True)
        return Answer(status=response.status, body=body, retry_after=response.headers.get("Retry-After", ""))

    async def _current(self) -> aiohttp.ClientSession:
        """Return the pool for the present certificates; those before them are closed when a third comes."""
        generation = self._account.generation
        if self._session is None or self._generation != generation:
            context = await to_thread.run_sync(self._account.credentials.ssl_context)
            if self._session is not None and self._generation != generation:
                self._old.append(self._session)
                if len(self._old) > 1:
                    await self._old.pop(0).close()
                self._session = None
            if self._session is None:
                connector = aiohttp.TCPConnector(
                    limit=self._connections, ssl=context if context is not None else True, keepalive_timeout=90.0
                )
                self._session = aiohttp.ClientSession(
                    connector=connector,
                    auto_decompress=False,
                    read_bufsize=_READ_SIZE,
                    cookie_jar=aiohttp.DummyCookieJar(),
                )
                self._generation = generation
        return self._session


class _Body:
    """A stream over a response."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def read(self) -> bytes | NoAnswer:
        """Return what has arrived, empty at the end."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return NoAnswer(was_sent=True, message=words(error))


def user_agent(component: str, version: str) -> str:
    """Return how we call ourselves to a server."""
    return f"kai/{version} ({sys.platform}) {component}"


def _abort(response: aiohttp.ClientResponse) -> None:
    """End the connection of a response at once, without a goodbye that a server may be too slow to return."""
    transport = response.connection.transport if response.connection is not None else None
    if transport is not None:
        transport.abort()
    response.close()


def _failure(error: BaseException, call: Call, *, answered: bool = False) -> NoAnswer:
    """Return what a failure means: only one to connect says for sure that the server received nothing."""
    unsent = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL)
    was_sent = answered or not isinstance(error, unsent)
    return NoAnswer(was_sent=was_sent, message=f"{call.method} {call.path}: {words(error)}")


def _url(server: str, path: str, query: Query) -> str:
    return f"{server}{path}?{urlencode(query)}" if query else f"{server}{path}"


async def _load(source: Source) -> Credentials:
    credentials = await to_thread.run_sync(source.load)
    return credentials if credentials.foreign is None else await to_thread.run_sync(_with_foreign, credentials)


def _with_foreign(credentials: Credentials) -> Credentials:
    """Return credentials with what another program or an identity provider says.

    Runs in a thread with an event loop of its own, since it reads and writes files as it goes.
    """
    import kubernetes_asyncio  # noqa: PLC0415 - costs a second and 70 MiB that most processes never need

    wanted = credentials.foreign or {}
    configuration: Any = kubernetes_asyncio.client.Configuration()
    load = kubernetes_asyncio.config.load_kube_config(
        config_file=wanted["path"],
        context=wanted["context"],
        client_configuration=configuration,
        persist_config=False,
    )
    try:
        asyncio.run(load)
    except Exception as error:  # noqa: BLE001 - programs of others fail in ways of their own; none may end this process
        raise ConfigError(f"{wanted['path']}: {type(error).__name__}: {error}") from None
    return attrs.evolve(
        credentials,
        authorization=configuration.api_key.get("BearerToken") or credentials.authorization,
        certificate=_material(configuration.cert_file) or credentials.certificate,
        key=_material(configuration.key_file) or credentials.key,
    )


def _material(path: str | None) -> str:
    return Path(path).read_text() if path else ""
