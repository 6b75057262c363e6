"""Sets up logs: structlog, as one JSON object a line, or as plain lines for people at a terminal.

A line contains only the facts that its caller names: no objects, so no environment variables, tokens or annotations.

`Limits` rate-limits failures. Where a cluster is in trouble, a line with a reason (the fact ``why``), or with a level
above info, is one of many. Lines that differ only in names and numbers count as the same.

Holds: for one event and reason, `_FIRST` lines and then one every `_EVERY` seconds; for one event with any reasons,
`_MOST` lines in that time. The next line of the same kind counts the dropped ones (``suppressed``). Other lines are
never dropped.
"""

from __future__ import annotations

import logging
import re
import sys
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import attrs
import structlog

_FIRST: Final = 5
_EVERY: Final = 30.0
_MOST: Final = 30
_REMEMBERED: Final = 2000
_LONGEST: Final = 300
_TROUBLE: Final = frozenset({"warning", "error", "critical", "exception"})
_EXCEPTION_NAMES: Final = re.compile(r'"[^"]*"|\'[^\']*\'|\S*[\d/]\S*')


@attrs.define
class _Count:
    """Counts of written and dropped lines since a time."""

    since: float
    written: int = 0
    suppressed: int = 0


@attrs.define
class Limits:
    """A structlog processor that rate-limits failures."""

    clock: Callable[[], float] = time.monotonic
    _counts: dict[tuple[str, ...], _Count] = attrs.field(factory=dict)
    _lock: threading.Lock = attrs.field(factory=threading.Lock)
    """Lines also come from the threads of cycles and of pages."""

    def __call__(self, logger: object, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Return a line, or drop it.

        Raises: DropEvent.
        """
        del logger
        why = line.get("why")
        if why is None and method not in _TROUBLE:
            return line
        with self._lock:
            return self._limited(str(line.get("event")), method, str(why), line)

    def _limited(self, event: str, method: str, why: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        same = self._count((event, method, _EXCEPTION_NAMES.sub("…", why[:_LONGEST])))
        all_of_it = self._count((event,))
        now = self.clock()
        if now - same.since >= _EVERY:
            same.since, same.written = now, min(same.written, _FIRST - 1)
        if now - all_of_it.since >= _EVERY:
            all_of_it.since, all_of_it.written = now, 0
        if same.written >= _FIRST or all_of_it.written >= _MOST:
            same.suppressed += 1
            raise structlog.DropEvent
        same.written += 1
        all_of_it.written += 1
        if same.suppressed:
            line["suppressed"], same.suppressed = same.suppressed, 0
        return line

    def _count(self, key: tuple[str, ...]) -> _Count:
        """Return the counts of a key, and mark it as most recently used."""
        found = self._counts.pop(key, None) or _Count(self.clock())
        self._counts[key] = found
        if len(self._counts) > _REMEMBERED:
            del self._counts[next(iter(self._counts))]
        return found


_LEVELS: Final = {0: logging.WARNING, 1: logging.INFO, 2: logging.INFO, 3: logging.INFO}
_NAMES: Final = {"debug": 4, "info": 3, "warn": 0, "warning": 0, "error": 0, "panic": 0, "fatal": 0}
_LIBRARIES: Final = ("aiohttp", "asyncio", "kubernetes_asyncio", "opentelemetry", "urllib3")


class _Limited(logging.Filter):
    """Rate-limits lines of libraries, too: an exporter of traces without a collector fails again and again."""

    def __init__(self, limits: Limits) -> None:
        """Use the same limits as kai's own lines."""
        super().__init__()
        self._limits = limits

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a line is written; add the count of dropped lines to it."""
        line: dict[str, Any] = {"event": record.name, "why": record.getMessage()}
        try:
            found = self._limits(None, record.levelname.lower(), line)
        except structlog.DropEvent:
            return False
        if "suppressed" in found:
            record.__dict__["suppressed"] = found["suppressed"]
        return True


def level_of(verbosity: int) -> int:
    """Return the lowest log level of a verbosity.

    Source: KAI-Scheduler logs decisions at 3, its default, and their reasons above that.
    """
    return _LEVELS.get(max(0, verbosity), logging.DEBUG)


def verbosity_of(text: str) -> int | None:
    """Return the verbosity in a flag: a number, or a level name of Go's loggers; None if it is neither."""
    if text.isascii() and text.isdigit():
        return int(text)
    return _NAMES.get(text.lower())


def set_up_logs(*, verbosity: int = 3, json: bool = False) -> None:
    """Send the lines of every logger in the process to standard error, including warnings of libraries."""
    out = sys.stderr
    as_json = json or not out.isatty()
    renderer: Any = structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if as_json:
        shared.append(structlog.processors.format_exc_info)
    limits = Limits()
    structlog.configure(
        processors=[limits, *shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level_of(verbosity)),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    forward = logging.StreamHandler(out)
    forward.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
            foreign_pre_chain=[
                *shared,
                structlog.stdlib.add_logger_name,
                structlog.stdlib.ExtraAdder(allow=["suppressed"]),
            ],
        )
    )
    forward.addFilter(_Limited(limits))
    root = logging.getLogger()
    root.handlers = [forward]
    root.setLevel(logging.WARNING)
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
