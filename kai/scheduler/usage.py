"""Past usage of queues, kept at hand: read from a database every minute or so, beside the cycles.

No cycle waits for it but the first, and that one for a while only. What was read last holds until it is stale; then
past usage counts for nothing, until the database answers again. Whatever the database does, scheduling goes on.

Source: the peer's pkg/scheduler/cache/usagedb, which goes on with stale values for ever.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import quote, unquote, urlencode, urlsplit

import anyio
import attrs
import structlog

from kai.cluster.port import Clock
from kai.cluster.transport.calls import Answer, Call, NoAnswer, Query
from kai.cluster.transport.connections import Connections
from kai.configuration.past_usage import RESOURCES, UsageSettings, check_address
from kai.errors import ConfigError
from kai.model.queue import Shares
from kai.scheduler.metrics import SchedulerMetrics
from kai.scheduler.usage_queries import UsageError, question, read_samples, shares, unsaid

NONE: Final[Mapping[str, Shares]] = MappingProxyType({})
_PATH: Final = "/api/v1/query"
_FORM: Final = "application/x-www-form-urlencoded"
_NO_POST: Final = frozenset({405, 501})


@attrs.define(eq=False)
class Prometheus:
    """A database that speaks Prometheus' HTTP API."""

    address: str
    settings: UsageSettings
    clock: Clock
    _connections: Connections | None = None
    _lacking: tuple[str, ...] = ()
    """Resources of which no queue said how much it held, as the log was told."""
    _posts: bool = True
    """Whether it takes questions in a body: long ones fit into no address."""

    async def read(self) -> Mapping[str, Shares]:
        """Return the past usage of queues by name.

        Raises: UsageError.
        """
        settings, now = self.settings, self.clock.now()
        until = self.clock.monotonic() + settings.timeout_seconds
        capacity: dict[str, float | None] = {}
        held: dict[str, Mapping[str, float]] = {}
        for resource in RESOURCES:
            found = await self._ask(question(settings.capacity[resource], settings, now), now, until)
            capacity[resource] = next(iter(found.values()), None)
        for resource in RESOURCES:
            held[resource] = await self._ask(question(settings.allocation[resource], settings, now), now, until)
        usage = shares(capacity, held)
        lacking = unsaid(capacity, held)
        if lacking and lacking != self._lacking:
            names = [settings.allocation[each] for each in lacking]
            structlog.get_logger().warning("past usage lacks a resource", resources=list(lacking), metrics=names)
        self._lacking = lacking
        return usage

    async def close(self) -> None:
        """Give up connections."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    async def _ask(self, text: str, now: float, until: float) -> dict[str, float]:
        query = (("query", text), ("time", f"{now:.3f}"))
        answer = await self._exchange(query, until)
        if isinstance(answer, Answer) and answer.status in _NO_POST and self._posts:
            self._posts = False
            answer = await self._exchange(query, until)
        if isinstance(answer, NoAnswer):
            raise UsageError(f"{text}: {answer.message}")
        try:
            return read_samples(answer.status, answer.body)
        except UsageError as error:
            raise UsageError(f"{text}: {error}") from None

    async def _exchange(self, query: Query, until: float) -> Answer | NoAnswer:
        remaining = until - self.clock.monotonic()
        if remaining <= 0:
            return NoAnswer(was_sent=False, message="no answer in time")
        if self._connections is None:
            self._connections = Connections(self.address, most=1)
        if self._posts:
            body = urlencode(query, quote_via=quote).encode()
            call = Call(method="POST", path=_PATH, body=body, content_type=_FORM, timeout=remaining)
        else:
            call = Call(method="GET", path=_PATH, query=query, timeout=remaining)
        return await self._connections.exchange(call, _authorization(self.address))


def _authorization(address: str) -> str:
    """Return the header for a name and password in an address, as Go's client sends them."""
    at = urlsplit(address)
    if at.username is None:
        return ""
    words = f"{unquote(at.username)}:{unquote(at.password or '')}"
    return f"Basic {b64encode(words.encode()).decode()}"


@attrs.define(eq=False)
class PastUsage:
    """The past usage of queues as it was read last, for as long as it holds."""

    settings: UsageSettings
    database: Prometheus
    clock: Clock
    metrics: SchedulerMetrics
    known: Mapping[str, Shares] = NONE
    """By queue; nothing while nothing is known, or only what is stale."""
    _read_at: float | None = None
    """When ``known`` was read; None when it was not, or is stale."""
    _was_tried: anyio.Event = attrs.field(factory=anyio.Event)

    async def run(self) -> None:
        """Read again and again, until cancelled."""
        self.metrics.usage_known(known=False)
        due = self.clock.monotonic()
        try:
            while True:
                await self._read()
                self._was_tried.set()
                due = max(due + self.settings.fetch_seconds, self.clock.monotonic())
                await self._wait(due)
        finally:
            with anyio.CancelScope(shield=True):
                await self.database.close()

    async def tried(self) -> None:
        """Wait for the first answer, or that there is none, but not for longer than settings allow."""
        with anyio.move_on_after(self.settings.wait_seconds):
            await self._was_tried.wait()
            return
        structlog.get_logger().warning("past usage is late", waited=self.settings.wait_seconds)

    async def _read(self) -> None:
        since = self.clock.monotonic()
        try:
            found = await self.database.read()
        except Exception as error:  # noqa: BLE001 - the boundary of the database: scheduling goes on
            self.metrics.usage_failed()
            structlog.get_logger().warning("past usage was not read", why=_why(error))
            self._forget_what_is_stale()
            return
        self.metrics.usage_read(self.clock.monotonic() - since)
        if self._read_at is None:
            structlog.get_logger().info("past usage counts", queues=len(found))
            self.metrics.usage_known(known=True)
        self.known, self._read_at = found, since

    async def _wait(self, due: float) -> None:
        """Wait for the next reading; on the way, past usage may become stale."""
        clock = self.clock
        stale_at = None if self._read_at is None else self._read_at + self.settings.staleness_seconds
        if stale_at is not None and stale_at < due:
            await clock.sleep(stale_at - clock.monotonic())
            self._forget_what_is_stale()
        await clock.sleep(due - clock.monotonic())

    def _forget_what_is_stale(self) -> None:
        if self._read_at is None:
            return
        age = self.clock.monotonic() - self._read_at
        if age >= self.settings.staleness_seconds:
            structlog.get_logger().warning("past usage is stale and counts no more", seconds=round(age))
            self.metrics.usage_known(known=False)
            self.known, self._read_at = NONE, None


def _why(error: Exception) -> str:
    """Return why nothing was read; of an unforeseen error only its kind, since its words may hold a password."""
    return str(error) if isinstance(error, UsageError) else f"found {type(error).__name__}, expected an answer"


def usage_address(settings: UsageSettings, environment: Mapping[str, str]) -> str:
    """Return where the database is.

    Raises: ConfigError for a variable that is not set, or holds no address.
    """
    if settings.address:
        return settings.address
    place = f"usageDBConfig.connectionStringEnvVar: ${settings.address_variable}"
    found = environment.get(settings.address_variable, "")
    if not found:
        raise ConfigError(f"{place}: found nothing, expected the address of a database")
    check_address(found, place)
    return found


def past_usage(
    settings: UsageSettings | None, address: str, clock: Clock, metrics: SchedulerMetrics
) -> PastUsage | None:
    """Return the reader that keeps past usage at hand; None where the configuration does not ask for it."""
    if settings is None:
        return None
    database = Prometheus((address or settings.address).rstrip("/"), settings, clock)
    return PastUsage(settings, database, clock, metrics)
