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
    RequestKept: "bind request kept",
    StatementRejected: "statement rejected",
    WriteDropped: "write dropped: the term is over",
    WriteGivenUp: "write given up",
    NotExplained: "not explained",
}
_WARNINGS: Final = (BindRefused, EvictionRefused, WriteGivenUp)


def log_signal(signal: Signal, *, may_be_away: bool = False) -> None:
    """Write a line with the fields of a signal that are known.

    Where the API server may be away (``may_be_away``), one line elsewhere says why writes are given up.
    """
    log = structlog.get_logger()
    facts = {key: value for key, value in attrs.asdict(signal, recurse=False).items() if value is not None}
    tell = log.warning if isinstance(signal, _WARNINGS) else log.info
    if may_be_away and isinstance(signal, WriteGivenUp):
        tell = log.debug
    tell(_TEXTS[type(signal)], **facts)
