"""Settings of past usage: its source, its window, and how fast it decays; and the times of cron windows.

The source is Prometheus, or a database of kai's own: in one file (``clientType: sqlite``), or on a server that shards
and standbys share (``clientType: postgresql``).

The keys are the peer's, in its configuration file (``usageDBConfig``) as in a SchedulingShard. Missing keys have the
peer's defaults. The service reads the usage itself: see ``kai.roles.scheduler.cycle.past_usage``.

Source: the peer's pkg/scheduler/cache/usagedb.

Cron expressions have five fields: minute, hour, day of the month, month, day of the week. ``0 0 * * 1`` is every Monday
at midnight, in UTC. ``@hourly``, ``@daily``, ``@weekly``, ``@monthly`` and ``@yearly`` have their usual meanings.
cronsim parses the fields and walks back through the calendar. Kubernetes reads schedules of CronJobs in another way
(`kai.basics.schedules`).
"""

import datetime as dt
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Self

import attrs
from cronsim import CronSim, CronSimError

from kai.basics import parsing
from kai.basics.errors import ConfigError
from kai.basics.wording import shown
from kai.deciding.configuration.registry import UnknownNameError, suggestion

WANTED: Final = 'five fields such as "0 0 * * 1", or @hourly, @daily, @weekly, @monthly, @yearly'
_FIELDS: Final = 5
_LONGEST_EXPRESSION: Final = 1_000
_SOME_DAY: Final = dt.datetime(2024, 3, 1, tzinfo=dt.UTC)


@attrs.frozen(kw_only=True)
class Cron:
    """The calendar minutes that match all fields of a cron expression."""

    text: str
    fields: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the times that ``text`` describes.

        Raises: ValueError for text that is none, or that no day fits.
        """
        fields = parsing.USUAL_TIMES.get(text.strip().lower(), text).replace("?", "*")
        count = len(fields.split())
        if count != _FIELDS or len(fields) > _LONGEST_EXPRESSION:
            raise ValueError(f"found {count} fields, expected {WANTED}")
        made = cls(text=text, fields=fields)
        try:
            if made.before(_SOME_DAY) is None:
                raise ValueError(f"found {shown(text)}, which no day fits, expected {WANTED}")
        except CronSimError as error:
            raise ValueError(f"found {shown(text)} ({error}), expected {WANTED}") from None
        return made

    def before(self, moment: dt.datetime) -> dt.datetime | None:
        """Return the last matching time before ``moment``, exclusive; None if there is none for years."""
        return next(CronSim(self.fields, moment, reverse=True), None)


_KEYS: Final = ("clientType", "connectionString", "connectionStringEnvVar", "usageParams")
_PARAMS: Final = (
    *("halfLifePeriod", "windowSize", "windowType", "tumblingWindowStartTime", "cronString"),
    *("fetchInterval", "stalenessPeriod", "waitTimeout", "extraParams"),
)
_STAND_INS: Final = ("fake", "fake-with-history")
PROMETHEUS: Final = "prometheus"
CLIENTS: Final = (PROMETHEUS, *parsing.RECORDED_USAGE)
_OF_OUR_OWN: Final = ("retention",)
IN_MEMORY: Final = ":memory:"
"""The place of a database that is lost with its process: for simulations."""
_WEEK: Final = 7 * 86_400.0
_WINDOW: Final = re.compile(r"(?:(\d+)y)?(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?(?:(\d+)ms)?", re.ASCII)
_WINDOW_UNITS: Final = (365 * 86_400.0, _WEEK, 86_400.0, 3600.0, 60.0, 1.0, 0.001)
_WANTED_WINDOW: Final = 'a duration as Prometheus writes it, such as "1w", "36h" or "1d12h"'
_WANTED_TIME: Final = 'a time such as "2026-01-31T12:00:00Z"'
_LONGEST: Final = 100 * 365 * 86_400.0
_NODES: Final = 'sum(max by (node) (kube_node_status_capacity{resource="%s"}))'
"""Grouped by node, because two instances of kube-state-metrics, or one that moves, would count each node twice."""
_SHORTEST: Final = 0.001
"""Seconds; Prometheus reads no shorter duration."""
RESOURCES: Final = ("gpu", "cpu", "memory")
"""The resources to query, in the order of the queries."""


class WindowType(StrEnum):
    """The kind of window in which usage counts."""

    SLIDING = "sliding"
    """The last ``window`` seconds up to now."""
    TUMBLING = "tumbling"
    """Since the current window began; windows follow each other from a start time."""
    CRON = "cron"
    """Since the last time of a cron expression."""


@attrs.frozen(kw_only=True)
class UsageSettings:
    """How past usage is queried."""

    client: str = PROMETHEUS
    """What kind of database it is: one of ``CLIENTS``."""
    address: str = ""
    """The address of Prometheus, or the file or server of kai's own database."""
    address_variable: str = ""
    """The environment variable that holds the address."""
    retention_seconds: float = 90 * 86_400.0
    """For how long kai's own database keeps what ended."""
    window: WindowType = WindowType.SLIDING
    window_text: str = "1w"
    window_seconds: float = _WEEK
    start: float = 0.0
    """When the first of tumbling windows began, in seconds since the epoch."""
    cron: Cron | None = None
    half_life_seconds: float = 0.0
    """The half-life of usage; 0: it does not decay."""
    fetch_seconds: float = 60.0
    staleness_seconds: float = 300.0
    wait_seconds: float = 60.0
    """How long the first cycle waits for the first result."""
    timeout_seconds: float = 10.0
    """The timeout for all queries of one reading together."""
    resolution_seconds: float = 60.0
    allocation: Mapping[str, str] = attrs.field(
        factory=lambda: {
            "gpu": "kai_queue_allocated_gpus",
            "cpu": "kai_queue_allocated_cpu_cores",
            "memory": "kai_queue_allocated_memory_bytes",
        }
    )
    """By resource: the metric of the amounts that queues hold."""
    capacity: Mapping[str, str] = attrs.field(
        factory=lambda: {"gpu": _NODES % "nvidia_com_gpu", "cpu": _NODES % "cpu", "memory": _NODES % "memory"}
    )
    """By resource: the metric of the capacity of the cluster."""

    @property
    def is_recorded(self) -> bool:
        """Whether the database is one that kai writes itself."""
        return self.client in parsing.RECORDED_USAGE


def read_usage(value: object, place: str, notes: list[str]) -> UsageSettings | None:
    """Return how to query past usage; None if the configuration does not enable it.

    Raises: ConfigError naming the path of the key that cannot be used.
    """
    if value is None or value == {}:
        return None
    found = _mapping(value, place, _KEYS)
    client = found.get("clientType") or ""
    if client in _STAND_INS:
        notes.append(
            f"{place}.clientType: found {shown(client)}, a stand-in for tests, expected prometheus; nothing is read"
        )
        return None
    if client not in CLIENTS:
        raise ConfigError(f"{place}.clientType: found {shown(client)}, expected one of {', '.join(CLIENTS)}")
    address, variable = (_text(found, key, place) for key in ("connectionString", "connectionStringEnvVar"))
    # Both may differ, and then either choice would surprise.
    if bool(address) == bool(variable):
        both = "both" if address else "neither"
        raise ConfigError(f"{place}: found {both}, expected one of connectionString, connectionStringEnvVar")
    if address:
        check_address(client, address, f"{place}.connectionString")
        if client == parsing.POSTGRESQL and parsing.has_password(address):
            wanted = "it in $PGPASSWORD, or the address in connectionStringEnvVar, from a Secret"
            raise ConfigError(f"{place}.connectionString: found a password, expected {wanted}")
    settings = UsageSettings(client=client, address=address, address_variable=variable)
    params = found.get("usageParams")
    return settings if params is None else _with_params(settings, params, f"{place}.usageParams", notes)


def check_address(client: str, address: str, place: str) -> None:
    """Raise ConfigError if ``address`` is no address of a database of this kind."""
    if client == parsing.SQLITE:
        if not (address.startswith("/") and not address.endswith("/")) and address != IN_MEMORY:
            raise ConfigError(f'{place}: found {shown(address)}, expected a file such as "/var/lib/kai/history.db"')
        return
    if client == parsing.POSTGRESQL:
        problem = parsing.postgresql_problem(address)
        if problem:
            raise ConfigError(f"{place}: found {problem}, expected {parsing.POSTGRESQL_WANTED}")
        return
    if not re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", address):
        raise ConfigError(f'{place}: found {shown(address)}, expected an address such as "http://prometheus:9090"')


def _with_params(settings: UsageSettings, value: object, place: str, notes: list[str]) -> UsageSettings:
    params = _mapping(value, place, _PARAMS)
    extra = _extra(params.get("extraParams"), f"{place}.extraParams")
    if settings.is_recorded:
        settings = attrs.evolve(settings, retention_seconds=_retention(extra, settings, f"{place}.extraParams"))
        extra = {}
    text = _text(params, "windowSize", place) or settings.window_text
    window = _window_type(params, place)
    fetch = _duration(params, "fetchInterval", place, settings.fetch_seconds)
    if fetch <= 0:
        raise ConfigError(f"{place}.fetchInterval: found {shown(params['fetchInterval'])}, expected more than nothing")
    staleness = _duration(params, "stalenessPeriod", place, settings.staleness_seconds)
    if staleness < fetch:
        # Usage would count as stale before the next fetch is due.
        notes.append(f"{place}.stalenessPeriod: found less than fetchInterval, expected at least that; used that")
    resolution = _extra_duration(extra, "queryResolution", settings.resolution_seconds, place, notes)
    length = _window(text, f"{place}.windowSize")
    if settings.is_recorded and settings.retention_seconds < length:
        notes.append(f"{place}.extraParams.retention: found less than windowSize, expected at least that; used that")
        # A window longer than the record would take missing usage for none.
        settings = attrs.evolve(settings, retention_seconds=length)
    return attrs.evolve(
        settings,
        window=window,
        window_text=text,
        window_seconds=length,
        start=_start(params, place) if window is WindowType.TUMBLING else 0.0,
        cron=_cron(params, place) if window is WindowType.CRON else None,
        half_life_seconds=max(0.0, _duration(params, "halfLifePeriod", place, 0.0)),
        fetch_seconds=fetch,
        staleness_seconds=max(staleness, fetch),
        wait_seconds=max(0.0, _duration(params, "waitTimeout", place, settings.wait_seconds)),
        timeout_seconds=_extra_duration(extra, "usageQueryTimeout", settings.timeout_seconds, place, notes),
        resolution_seconds=resolution,
        allocation={each: extra.get(f"{each}AllocationMetric", settings.allocation[each]) for each in RESOURCES},
        capacity={each: extra.get(f"{each}CapacityMetric", settings.capacity[each]) for each in RESOURCES},
    )


# ------------------------------------------------------------------------------------------------------------ values


def _mapping(value: object, place: str, known: tuple[str, ...]) -> Mapping[str, object]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{place}: found {shown(value)}, expected a mapping with {', '.join(known)}")
    for key in value:
        if key not in known:
            message = f"{place}: found key {shown(key)}, expected one of {', '.join(known)}"
            raise UnknownNameError(message, help=suggestion(str(key), known))
    return value


def _text(found: Mapping[str, object], key: str, place: str) -> str:
    value = found.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ConfigError(f"{place}.{key}: found {shown(value)}, expected text")
    return value


def _duration(found: Mapping[str, object], key: str, place: str, default: float) -> float:
    if found.get(key) is None:
        return default
    try:
        return parsing.seconds(_text(found, key, place))
    except ValueError:
        raise ConfigError(f"{place}.{key}: found {shown(found[key])}, expected {parsing.DURATION_WANTED}") from None


def _window_type(params: Mapping[str, object], place: str) -> WindowType:
    text = _text(params, "windowType", place) or WindowType.SLIDING
    if text not in set(WindowType):
        raise ConfigError(f"{place}.windowType: found {shown(text)}, expected one of {', '.join(WindowType)}")
    return WindowType(text)


def _window(text: str, place: str) -> float:
    match = _WINDOW.fullmatch(text)
    # The length is bounded since Python converts very long digits slowly.
    parts = match.groups() if match and len(text) <= 40 else ()
    seconds = sum(int(part) * unit for part, unit in zip(parts, _WINDOW_UNITS, strict=False) if part)
    if not 0 < seconds <= _LONGEST:
        raise ConfigError(f"{place}: found {shown(text)}, expected {_WANTED_WINDOW}")
    return seconds


def _start(params: Mapping[str, object], place: str) -> float:
    text = _text(params, "tumblingWindowStartTime", place)
    try:
        moment = dt.datetime.fromisoformat(text)
        # A time without a zone would mean another instant on each machine.
        if moment.tzinfo is not None:
            return moment.timestamp()
    except (ValueError, OverflowError):
        pass
    found = shown(text or None)
    raise ConfigError(f"{place}.tumblingWindowStartTime: found {found}, expected {_WANTED_TIME} for this windowType")


def _cron(params: Mapping[str, object], place: str) -> Cron:
    try:
        return Cron.read(_text(params, "cronString", place))
    except ValueError as error:
        raise ConfigError(f"{place}.cronString: {error}") from None


def _extra(value: object, place: str) -> Mapping[str, str]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(each, str) for pair in value.items() for each in pair):
        raise ConfigError(f"{place}: found {shown(value)}, expected a mapping of text to text")
    return value


def _retention(extra: Mapping[str, str], settings: UsageSettings, place: str) -> float:
    """Return for how long to keep what ended; all other parameters are those of Prometheus."""
    for key in extra:
        if key not in _OF_OUR_OWN:
            wanted = f"{', '.join(_OF_OUR_OWN)} for clientType {settings.client}"
            raise UnknownNameError(
                f"{place}: found key {shown(key)}, expected {wanted}", help=suggestion(key, _OF_OUR_OWN)
            )
    text = extra.get("retention")
    return settings.retention_seconds if text is None else _window(text, f"{place}.retention")


def _extra_duration(extra: Mapping[str, str], key: str, default: float, place: str, notes: list[str]) -> float:
    """Return a duration among the extra parameters; like the peer, use the default for one that cannot be parsed."""
    text = extra.get(key)
    if text is None:
        return default
    try:
        seconds = parsing.seconds(text)
    except ValueError:
        seconds = 0.0
    if seconds >= _SHORTEST:
        return seconds
    wanted = f"{parsing.DURATION_WANTED}, of a millisecond at least"
    notes.append(f"{place}.extraParams.{key}: found {shown(text)}, expected {wanted}; used {parsing.text(default)}")
    return default
