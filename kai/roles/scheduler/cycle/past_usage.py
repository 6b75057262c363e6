"""The past usage of queues: read from a database about every minute, independently of cycles.

The database is Prometheus (`Prometheus`), or the one that kai writes itself (`Recorded`).

Only the first cycle waits for it, and only for a limited time. The last reading counts until it is stale; then past
usage counts as zero until the database answers again. A failing database never stops scheduling.

With Prometheus each resource takes two queries over the window: the sum of what each queue held, and the sum of the
capacity. Their quotient is the past usage of a queue, a fraction of the cluster.

Source: KAI-Scheduler's pkg/scheduler/cache/usagedb, which uses stale values for ever, and its package prometheus: the
queries over a sliding window are the same, letter by letter. For tumbling and cron windows KAI-Scheduler sends
``sum_over_time`` of an instant vector, which Prometheus refuses; kai uses the form of sliding windows with the time
since the window began.
"""

from __future__ import annotations

import datetime as dt
import math
from base64 import b64encode
from collections.abc import Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Final, Protocol
from urllib.parse import quote, unquote, urlencode, urlsplit

import anyio
import attrs
import msgspec
import structlog
from anyio import to_thread

from kai.basics import parsing
from kai.basics.errors import ConfigError, KaiError
from kai.basics.parsing import mapping_of, with_schema
from kai.basics.wording import shown
from kai.cluster.port import Clock
from kai.cluster.transport.calls import Answer, Call, NoAnswer, Query
from kai.cluster.transport.connections import Connections
from kai.deciding.configuration.past_usage import (
    IN_MEMORY,
    RESOURCES,
    UsageSettings,
    WindowType,
    check_address,
)
from kai.facts.model.groups import Shares
from kai.history.database import reading
from kai.history.facts import HistoryError, NoHistoryError
from kai.history.reports import past_usage as recorded_usage
from kai.history.server import MISSING
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics

_LABEL: Final = "queue_name"
_LONGEST_MESSAGE: Final = 300


class UsageError(KaiError):
    """A usage database gave no usable answer."""


def question(metric: str, settings: UsageSettings, now: float) -> str:
    """Return the query for the sum of ``metric`` over the window that ends at ``now``."""
    return over_window(faded(metric, settings.half_life_seconds, now), settings, now)


def faded(metric: str, half_life_seconds: float, now: float) -> str:
    """Return an expression in which a sample of ``metric`` loses half its weight per half-life of age."""
    if half_life_seconds <= 0:
        return metric
    return f"(({metric}) * (0.5^(({int(now)} - time()) / {half_life_seconds:f})))"


def over_window(expression: str, settings: UsageSettings, now: float) -> str:
    """Return the query for the sum of ``expression`` over the window; its present value if the window just began."""
    length = settings.window_text
    if settings.window is not WindowType.SLIDING:
        age = now - window_start(settings, now)
        if age < settings.resolution_seconds:
            return expression
        length = f"{math.floor(age)}s"
    return f"sum_over_time(({expression})[{length}:{_duration(settings.resolution_seconds)}])"


def _duration(seconds: float) -> str:
    """Return a duration in the format of Prometheus: that of Go, except for fractions of a second."""
    return parsing.text(seconds) if seconds == round(seconds) else f"{round(seconds * 1000)}ms"


def window_start(settings: UsageSettings, now: float) -> float:
    """Return when the present window began, in seconds since the epoch; ``now`` if none has begun yet.

    A window that ends exactly at ``now`` is still the present one.
    """
    if settings.window is WindowType.CRON and settings.cron is not None:
        last = settings.cron.before(dt.datetime.fromtimestamp(now, dt.UTC))
        return now if last is None else last.timestamp()
    if settings.window is WindowType.TUMBLING:
        passed = now - settings.start
        if passed <= 0:
            return now
        return settings.start + (math.ceil(passed / settings.window_seconds) - 1) * settings.window_seconds
    return now - settings.window_seconds


# ----------------------------------------------------------------------------------------------------------- answers


def read_samples(status: int, body: bytes) -> dict[str, float]:
    """Return the samples of an answer by queue; several samples of one queue are added up.

    A queue has one sample for each process that reported it, so several after a restart of that process.

    Raises: UsageError for a malformed answer, and for amounts that are negative or not finite.
    """
    try:
        document = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise UsageError(f"found HTTP {status} and no JSON, expected an answer of Prometheus") from None
    if not isinstance(document, Mapping) or document.get("status") != "success":
        raise UsageError(f"found HTTP {status}: {_complaint(document)}, expected success")
    found = document.get("data")
    if not isinstance(found, Mapping) or found.get("resultType") != "vector":
        kind = found.get("resultType") if isinstance(found, Mapping) else None
        raise UsageError(f"resultType: found {shown(kind)}, expected vector")
    out: dict[str, float] = {}
    samples = found.get("result") or ()
    if not isinstance(samples, list | tuple):
        raise UsageError("found a result that is no list of samples, expected one")
    for item in samples:
        queue, amount = _sample(item)
        total = out[queue] = out.get(queue, 0.0) + amount
        if total == math.inf:
            raise UsageError(
                f"found samples of queue {shown(queue)} that add up to {total:g}, expected a finite amount"
            )
    return out


def _complaint(document: Any) -> str:  # noqa: ANN401 - JSON from outside
    fields = mapping_of(document)
    words = [str(fields[key]) for key in ("errorType", "error") if fields.get(key)]
    return ": ".join(words)[:_LONGEST_MESSAGE] or "no reason"


def _sample(item: Any) -> tuple[str, float]:  # noqa: ANN401 - JSON from outside
    try:
        amount = _number(item["value"][1])
        queue = str(item["metric"].get(_LABEL, ""))
    except (KeyError, IndexError, TypeError, ValueError, AttributeError):
        raise UsageError("found a sample without metric and value, expected both") from None
    if not 0 <= amount < math.inf:
        raise UsageError(f"found {amount:g} of queue {shown(queue)}, expected a finite amount of 0 or more")
    return queue, amount


def _number(value: Any) -> float:  # noqa: ANN401 - JSON from outside
    """Return a number; infinity for an integer beyond the range of floats, as float() of its text would be."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def unsaid(capacity: Mapping[str, float | None], held: Mapping[str, Mapping[str, float]]) -> tuple[str, ...]:
    """Return the resources with a capacity but without a sample of any queue: their usage counts as 0."""
    return tuple(each for each in RESOURCES if capacity.get(each) and not any(held.get(each, {})))


def shares(capacity: Mapping[str, float | None], held: Mapping[str, Mapping[str, float]]) -> dict[str, Shares]:
    """Return the past usage of each queue, from capacity and held amounts by resource.

    Raises: UsageError if queues held a resource with no capacity, or next to none; if no resource had any capacity,
        which means a window without samples, or nodes that no process reports; and if there is no sample of any queue.
        The caller should keep the last usage.
    """
    if not any(capacity.values()):
        wanted = "that of cpu at least; is the window longer than the resolution, and are nodes reported?"
        raise UsageError(f"found no capacity of {', '.join(RESOURCES)}, expected {wanted}")
    if not any(queue for samples in held.values() for queue in samples):
        wanted = "a sample for each, 0 included; is the queue controller scraped, and are metrics named right?"
        raise UsageError(f"found no queue that held {', '.join(RESOURCES)}, expected {wanted}")
    parts: dict[str, dict[str, float]] = {}
    for resource in RESOURCES:
        total = capacity.get(resource)
        for queue, amount in held.get(resource, {}).items():
            part = parts.setdefault(queue, {})
            if amount:
                if not total:
                    raise UsageError(f"found no capacity of {resource}, expected some, since queues held some")
                part[resource] = share = amount / total
                if not math.isfinite(share):
                    raise UsageError(
                        f"found {amount:g} of {resource} of queue {shown(queue)} and a capacity of {total:g}, "
                        "expected a finite share"
                    )
    return {queue: Shares(**part) for queue, part in sorted(parts.items()) if queue}


NONE: Final[Mapping[str, Shares]] = MappingProxyType({})
_PATH: Final = "/api/v1/query"
_FORM: Final = "application/x-www-form-urlencoded"
_NO_POST: Final = frozenset({405, 501})


@attrs.define(eq=False)
class Prometheus:
    """A database with the HTTP API of Prometheus."""

    address: str
    settings: UsageSettings
    clock: Clock
    _connections: Connections | None = None
    _lacking: tuple[str, ...] = ()
    """Resources without a sample of any queue, as logged last."""
    _posts: bool = True
    """Whether the database accepts POST: long queries do not fit into a URL."""

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
        """Close the connections."""
        connections, self._connections = self._connections, None
        if connections is not None:
            await connections.close()

    async def _ask(self, text: str, now: float, until: float) -> dict[str, float]:
        # One instant for all queries: what queues held and what there was must be sums over the same samples.
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
    """Return the Authorization header for user name and password in an address, as Go's client sends it."""
    at = urlsplit(address)
    if at.username is None:
        return ""
    words = f"{unquote(at.username)}:{unquote(at.password or '')}"
    return f"Basic {b64encode(words.encode()).decode()}"


class UsageDatabase(Protocol):
    """A source of past usage."""

    async def read(self) -> Mapping[str, Shares]:
        """Return the past usage of queues by name, as fractions of the cluster.

        Raises: UsageError.
        """
        ...

    async def close(self) -> None:
        """Close what is open."""
        ...


@attrs.define(eq=False)
class Recorded:
    """The database that kai writes itself (`kai.history`)."""

    settings: UsageSettings
    path: str
    clock: Clock

    async def read(self) -> Mapping[str, Shares]:
        """Return the past usage of queues by name; an empty database gives no usage, which counts as known.

        Raises: UsageError.
        """
        now = self.clock.now()
        since, settings = window_start(self.settings, now), self.settings
        try:
            return await to_thread.run_sync(_recorded, self.path, since, now, settings.half_life_seconds)
        except HistoryError as error:
            raise UsageError(str(error)) from None

    async def close(self) -> None:
        """Do nothing: each reading has a connection of its own."""


def _recorded(path: str, since: float, now: float, half_life: float) -> dict[str, Shares]:
    try:
        with reading(path) as connection:
            found = recorded_usage(connection, round(since * 1000), round(now * 1000), round(half_life * 1000))
    except NoHistoryError:
        return {}  # no scheduler has recorded yet
    return {name: Shares(gpu=gpu, cpu=cpu, memory=memory) for name, (gpu, cpu, memory) in sorted(found.items())}


@attrs.define(eq=False)
class PastUsage:
    """The last reading of past usage, until it is stale."""

    settings: UsageSettings
    database: UsageDatabase
    clock: Clock
    metrics: SchedulerMetrics
    known: Mapping[str, Shares] = NONE
    """Usage by queue; empty before the first reading, and once the last one is stale."""
    _read_at: float | None = None
    """When ``known`` was read; None before the first reading, and once it is stale."""
    _was_tried: anyio.Event = attrs.field(factory=anyio.Event)

    async def run(self) -> None:
        """Read in a loop, until cancelled."""
        self._show(known=False)
        due = self.clock.monotonic()
        try:
            while True:
                await self._read()
                self._was_tried.set()
                # From the time that was due, so that slow answers do not stretch the interval; and not several at once
                # after a long one.
                due = max(due + self.settings.fetch_seconds, self.clock.monotonic())
                await self._wait(due)
        finally:
            with anyio.CancelScope(shield=True):
                await self.database.close()

    async def tried(self) -> None:
        """Wait for the end of the first reading, but no longer than the settings allow."""
        with anyio.move_on_after(self.settings.wait_seconds):
            await self._was_tried.wait()
            return
        structlog.get_logger().warning("past usage is late", waited=self.settings.wait_seconds)

    async def _read(self) -> None:
        since = self.clock.monotonic()
        try:
            found = await self.database.read()
        except Exception as error:  # noqa: BLE001 - whatever the database does, scheduling continues
            self.metrics.usage_failed()
            structlog.get_logger().warning("past usage was not read", why=_why(error))
            self._forget_what_is_stale()
            return
        self.metrics.usage_read(self.clock.monotonic() - since)
        if self._read_at is None:
            structlog.get_logger().info("past usage counts", queues=len(found))
            self._show(known=True)
        # As old as the question: the answer may have taken long, and says what was true when it was asked.
        self.known, self._read_at = found, since

    async def _wait(self, due: float) -> None:
        """Wait for the next reading, and drop the last one if it becomes stale before."""
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
            self._show(known=False)
            self.known, self._read_at = NONE, None

    def _show(self, *, known: bool) -> None:
        self.metrics.usage_known(known=known, client=self.settings.client)


def _why(error: Exception) -> str:
    """Return why a reading failed; of an unforeseen error only the type, since its message may hold a password."""
    return str(error) if isinstance(error, UsageError) else f"found {type(error).__name__}, expected an answer"


def usage_address(settings: UsageSettings, environment: Mapping[str, str], shard: str = "") -> str:
    """Return the address of the database; on a server in a schema of the shard.

    Raises: ConfigError for a variable that is not set, or holds no address, and for a server without its driver.
    """
    if settings.client == parsing.POSTGRESQL and find_spec("psycopg") is None:
        raise ConfigError(f"usageDBConfig.clientType: {MISSING}")
    return with_schema(_address(settings, environment), shard)


def _address(settings: UsageSettings, environment: Mapping[str, str]) -> str:
    if settings.address:
        if settings.address == IN_MEMORY:
            raise ConfigError(
                f'usageDBConfig.connectionString: found "{IN_MEMORY}", expected a file that outlives the process'
            )
        return settings.address
    place = f"usageDBConfig.connectionStringEnvVar: ${settings.address_variable}"
    found = environment.get(settings.address_variable, "")
    if not found:
        raise ConfigError(f"{place}: found nothing, expected the address of a database")
    check_address(settings.client, found, place)
    return found


def past_usage(
    settings: UsageSettings | None, address: str, clock: Clock, metrics: SchedulerMetrics
) -> PastUsage | None:
    """Return the reader of past usage; None where the configuration has none."""
    if settings is None:
        return None
    place = address or settings.address
    database: UsageDatabase
    if settings.is_recorded:
        database = Recorded(settings, place, clock)
    else:
        database = Prometheus(place.rstrip("/"), settings, clock)
    return PastUsage(settings, database, clock, metrics)
