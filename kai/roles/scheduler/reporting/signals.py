"""Signals: the outcomes of decisions and writes, one frozen class for each kind, and their log lines.

The committer and the publisher return signals among their effects. Each signal has two subscribers: the metrics
(`SchedulerMetrics.take`) and the log (`log_signal`), which alone has text and level of each class. Nothing else depends
on the texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping


@attrs.frozen(kw_only=True)
class BindOrdered:
    """A bind request was written, or the pod was bound without one."""

    pod: str
    node: str
    seconds: float
    """Time from the decision to the end of the write."""
    waited: float
    """Age of the pod."""


@attrs.frozen(kw_only=True)
class BindRefused:
    """A bind failed for good; the pod is decided anew."""

    pod: str
    why: str


@attrs.frozen(kw_only=True)
class BindDropped:
    """A bind was not written, because it is no longer needed."""

    pod: str
    why: str


@attrs.frozen(kw_only=True)
class Evicted:
    """The API server accepted the eviction of a pod."""

    pod: str
    cause: str
    seconds: float
    """Time from the decision to the end of the write."""
    group: tuple[str, str, str] | None
    """Name, namespace and UID of the pod's group; None for a pod without one."""
    gpus: int = 0
    """Thousandths of GPUs that the pod held."""


@attrs.frozen(kw_only=True)
class EvictionRefused:
    """The API server refused an eviction."""

    pod: str
    why: str
    cause: str


@attrs.frozen(kw_only=True)
class VictimGone:
    """A pod was gone before it was evicted, or is going with its namespace."""

    pod: str
    cause: str


@attrs.frozen(kw_only=True)
class RequestDeleted:
    """A bind request that failed or lost its node or queue was deleted."""

    name: str


@attrs.frozen(kw_only=True)
class RequestKept:
    """A bind request was not deleted."""

    name: str
    why: str


@attrs.frozen(kw_only=True)
class StatementRejected:
    """The newest objects contradict a statement; none of its decisions is carried out."""

    why: str
    decisions: int


@attrs.frozen(kw_only=True)
class WriteDropped:
    """A write was not carried out, because this process no longer leads."""

    what: str


@attrs.frozen(kw_only=True)
class WriteGivenUp:
    """A write failed at its last attempt."""

    what: str


@attrs.frozen(kw_only=True)
class NotExplained:
    """The account of a group could not be published."""

    group: str
    kind: str
    why: str


Signal: TypeAlias = (
    BindOrdered
    | BindRefused
    | BindDropped
    | Evicted
    | EvictionRefused
    | VictimGone
    | RequestDeleted
    | RequestKept
    | StatementRejected
    | WriteDropped
    | WriteGivenUp
    | NotExplained
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
    """Log a signal with those fields that are not None.

    While the API server may be away (``may_be_away``), another log line says why writes are given up.
    """
    log = structlog.get_logger()
    facts = {key: value for key, value in attrs.asdict(signal, recurse=False).items() if value is not None}
    write = log.warning if isinstance(signal, _WARNINGS) else log.info
    if may_be_away and isinstance(signal, WriteGivenUp):
        write = log.debug
    write(_TEXTS[type(signal)], **facts)
