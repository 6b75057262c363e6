"""The HTTP client for an API server: applies our credentials to connections, and passes raw bytes.

It retries in one case only: after a 401, or a certificate that is not trusted, it reads the credentials anew and sends
the call once more, since tokens expire and authorities change. A network failure becomes a `NoAnswer`, on which the
callers decide. The connections are in `kai.cluster.transport.connections`.
"""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

import anyio
import attrs
from anyio import to_thread

from kai.basics.errors import ApiError, ConfigError
from kai.cluster.transport.calls import Answer, Call, NoAnswer, Stream
from kai.cluster.transport.connections import Connections
from kai.cluster.transport.credentials import Credentials, Source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from types import TracebackType

    from kai.cluster.port import Clock  # noqa: TC004 - attrs does not look at it, and it costs 0.2 s of importing

_REFRESH: Final = 60.0
_AGAIN: Final = 5.0
"""Minimum interval between reads of the credentials while the server's certificate is not trusted.

Units: seconds.
"""
_UNAUTHORIZED_FOR: Final = 30.0
_ENDS_IN: Final = f"{_UNAUTHORIZED_FOR:g}s, unless other credentials are found"

R = TypeVar("R")


class UnauthorizedError(ApiError):
    """The API server has refused the credentials of this process for too long: its operator must replace them."""


@attrs.define(eq=False)
class Account:
    """The credentials of a process, kept current, and shared by all its connections."""

    source: Source
    clock: Clock
    credentials: Credentials
    generation: int = 0
    """Grows with every change that needs new connections."""
    refused_since: float | None = None
    """Since when the server answers 401; None if it does not."""
    problem: str = ""
    _refused_at: float | None = None
    """When the last answer was a 401; None after a call without an answer."""
    _refused_for: float = 0.0
    """Duration of successive refusals.

    Units: seconds.
    """
    _read_at: float = 0.0
    _reading: anyio.Lock = attrs.field(factory=anyio.Lock)

    @classmethod
    async def open(cls, source: Source, clock: Clock) -> Self:
        """Read the credentials.

        Raises: ConfigError if there are none.
        """
        return cls(source, clock, await to_thread.run_sync(source.load), read_at=clock.monotonic())

    async def refresh(self) -> bool:
        """Read the credentials again; return whether they changed. After an error the old ones stay."""
        before = self.credentials
        async with self._reading:
            # Another call read them while this one waited for the lock.
            if self.credentials is not before:
                return True
            try:
                loaded = await to_thread.run_sync(self.source.load)
                self.problem = ""
            except ConfigError as error:
                self.problem = str(error)
                _log().warning("credentials not read again", why=str(error))
                return False
            finally:
                self._read_at = self.clock.monotonic()
            if loaded == before:
                return False
            self.credentials = loaded
            # A new token is a header of the next request, and needs no new connection.
            if loaded.tls != before.tls:
                self.generation += 1
            return True

    async def knows_better(self, found: object) -> bool:
        """Return whether an answer made us read new credentials, so that the call may be sent once more."""
        if isinstance(found, Answer) and found.status == 401:
            return await self.refresh()
        if not (isinstance(found, NoAnswer) and found.is_distrusted):
            return False
        return self.clock.monotonic() - self._read_at >= _AGAIN and await self.refresh()

    def note(self, status: int | None) -> None:
        """Record the status of an answer; None for no answer."""
        if status is None:
            self._refused_at = None  # a server that is away does not refuse us
            return
        is_refused = status == 401
        if is_refused:
            now = self.clock.monotonic()
            self._refused_for += 0.0 if self._refused_at is None else now - self._refused_at
            self._refused_at = now
        if is_refused == (self.refused_since is not None):
            return  # the usual case: reading the account's name from a token would cost more than all of this
        log = _log().bind(server=self.credentials.server, account=self.credentials.account)
        if is_refused:
            self.refused_since = self._refused_at
            log.error("API server does not know our credentials", why="401", ends_in=_ENDS_IN)
        else:
            self.refused_since, self._refused_at, self._refused_for = None, None, 0.0
            log.info("API server knows our credentials again")

    async def run(self) -> None:
        """Keep the credentials current, until cancelled.

        Raises: UnauthorizedError after 30 seconds of refusals; time without an answer does not count.
        """
        while True:
            await self.clock.sleep(1.0)
            now = self.clock.monotonic()
            if self._refused_for > _UNAUTHORIZED_FOR:
                wanted = f"known credentials at {self.credentials.server}"
                message = f"credentials: found refused with 401 for {_UNAUTHORIZED_FOR:g} seconds, expected {wanted}"
                raise UnauthorizedError(message, retryable=False)
            if now - self._read_at >= _REFRESH:
                await self.refresh()


class Client:
    """The connections of an account to its server, closed with ``async with``; a `Transport`."""

    def __init__(self, account: Account, *, user_agent: str, connections: int = 0) -> None:
        self._account = account
        self._user_agent = user_agent
        self._most = connections
        self._made: list[tuple[int, Connections]] = []
        """Connections, each with the generation of its credentials; earlier generations only finish their calls in
        flight."""

    async def __aenter__(self) -> Self:
        """Return itself; connections are opened when they are needed."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        with anyio.CancelScope(shield=True):
            while self._made:
                await self._made.pop()[1].close()

    async def request(self, call: Call) -> Answer | NoAnswer:
        """Send a request and return the response."""
        answer = await self._send(call)
        if await self._account.knows_better(answer):
            answer = await self._send(call)
        return self._noted(answer, call)

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream | Answer | NoAnswer]:
        """Send a request and return the body as it arrives, or the response that refuses it."""
        async with self._open(call) as stream:
            if not await self._account.knows_better(stream):
                yield self._noted(stream, call)
                return
        async with self._open(call) as stream:
            yield self._noted(stream, call)

    async def _send(self, call: Call) -> Answer | NoAnswer:
        try:
            connections = await self._current()
        except ConfigError as error:
            return NoAnswer(was_sent=False, message=str(error))
        return await connections.exchange(call, self._account.credentials.authorization)

    @asynccontextmanager
    async def _open(self, call: Call) -> AsyncIterator[Stream | Answer | NoAnswer]:
        try:
            connections = await self._current()
        except ConfigError as error:
            yield NoAnswer(was_sent=False, message=str(error))
            return
        async with connections.stream(call, self._account.credentials.authorization) as stream:
            yield stream

    def _noted(self, found: R, call: Call) -> R | NoAnswer:
        """Record the status of an answer; add the call to the message of a `NoAnswer`."""
        if isinstance(found, NoAnswer):
            self._account.note(None)
            return attrs.evolve(found, message=f"{call.method} {call.path}: {found.message}")
        self._account.note(found.status if isinstance(found, Answer) else 200)
        return found

    async def _current(self) -> Connections:
        """Return the connections for the present credentials; of earlier generations only the last stays open.

        Raises: ConfigError for invalid certificates.
        """
        generation = self._account.generation
        if not self._made or self._made[-1][0] != generation:
            credentials = self._account.credentials
            context = await to_thread.run_sync(credentials.ssl_context)
            if not self._made or self._made[-1][0] != generation:
                # Checked again above: another call may have made them while this one waited for the thread.
                made = Connections(
                    credentials.server,
                    context,
                    server_name=credentials.server_name,
                    proxy=credentials.proxy,
                    user_agent=self._user_agent,
                    impersonated=credentials.impersonated,
                    most=self._most,
                )
                self._made.append((generation, made))
                while len(self._made) > 2:
                    await self._made.pop(0)[1].close()
                return made
        return self._made[-1][1]


def _log() -> Any:  # noqa: ANN401 - as structlog has it
    import structlog  # noqa: PLC0415 - it costs a tenth of a second, and most commands have nothing to log

    return structlog.get_logger()


def user_agent(component: str, version: str) -> str:
    """Return the User-Agent header."""
    return f"kai/{version} ({sys.platform}) {component}"
