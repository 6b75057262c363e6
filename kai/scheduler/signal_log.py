"""The log's side of signals: a text and a level for each class. Nothing else depends on the texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs
import structlog

from kai.scheduler.signals import (
    BindDropped,
    BindOrdered,
    BindRefused,
    Evicted,
    EvictionRefused,
    NotExplained,
    RequestDeleted,
    RequestKept,
    Signal,
    StatementRejected,
    VictimGone,
    WriteDropped,
    WriteGivenUp,
)

_TEXTS: Final[Mapping[type[Signal], str]] = {
    BindOrdered: "bind ordered",
    BindRefused: "bind refused",
    BindDropped: "bind dropped",
    Evicted: "evicted",
    EvictionRefused: "eviction refused",
    VictimGone: "victim was gone",
    RequestDeleted: "bind request deleted",
    RequestKept: "bind request kept: its node is there",
    StatementRejected: "statement rejected",
    WriteDropped: "write dropped: the term is over",
    WriteGivenUp: "write given up",
    NotExplained: "not explained",
}
_WARNINGS: Final = (BindRefused, EvictionRefused, WriteGivenUp)


def log_signal(signal: Signal) -> None:
    """Write a line with the fields of a signal that are known."""
    log = structlog.get_logger()
    facts = {key: value for key, value in attrs.asdict(signal, recurse=False).items() if value is not None}
    (log.warning if isinstance(signal, _WARNINGS) else log.info)(_TEXTS[type(signal)], **facts)
