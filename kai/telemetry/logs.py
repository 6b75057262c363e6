"""Logs: structlog, one JSON object a line, or plain lines for people at a terminal.

Only what a caller names is written: no objects, so no environment variables, tokens or annotations. The same failure is
written a few times, then now and then (`kai.telemetry.limits`).
"""

from __future__ import annotations

import logging
import sys
from typing import Any, Final

import structlog

from kai.telemetry.limits import Limits

_LEVELS: Final = {0: logging.WARNING, 1: logging.INFO, 2: logging.INFO, 3: logging.INFO}
_NAMES: Final = {"debug": 4, "info": 3, "warn": 0, "warning": 0, "error": 0, "panic": 0, "fatal": 0}
_LIBRARIES: Final = ("aiohttp", "asyncio", "kubernetes_asyncio", "opentelemetry", "urllib3")


class _Limited(logging.Filter):
    """Holds back lines of libraries as those of kai are: a collector of traces that is away fails again and again."""

    def __init__(self, limits: Limits) -> None:
        """Count by the limits of all lines."""
        super().__init__()
        self._limits = limits

    def filter(self, record: logging.LogRecord) -> bool:
        """Say whether a line is written; what was left out before it is noted in it."""
        line: dict[str, Any] = {"event": record.name, "why": record.getMessage()}
        try:
            found = self._limits(None, record.levelname.lower(), line)
        except structlog.DropEvent:
            return False
        if "suppressed" in found:
            record.__dict__["suppressed"] = found["suppressed"]
        return True


def level_of(verbosity: int) -> int:
    """Return the lowest level that is written at a verbosity.

    Source: the peer logs decisions at 3, its default, and what led to them above that.
    """
    return _LEVELS.get(max(0, verbosity), logging.DEBUG)


def verbosity_of(text: str) -> int | None:
    """Return the verbosity that a flag names: a number, or a level as Go's loggers name it; None for neither."""
    if text.isascii() and text.isdigit():
        return int(text)
    return _NAMES.get(text.lower())


def set_up_logs(*, verbosity: int = 3, json: bool = False) -> None:
    """Let every logger of the process write to standard error, the libraries' warnings included."""
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
