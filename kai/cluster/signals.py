"""Signals of all roles but the scheduler: their outcomes, one frozen class for each kind, and warnings.

Roles send signals, and metrics receive them (`kai.cli.running.rolemetrics`). The classes are defined below all roles,
so that metrics import no role that does not run in this process.

`warn` logs failed requests. It is quiet during an outage, which `kai.cluster.transport.reachability` logs once for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs
import structlog

from kai.api.scheduling.queue import Queue

if TYPE_CHECKING:
    from kai.cluster.port import Connectivity


@attrs.frozen(kw_only=True)
class BindEnded:
    """An attempt to bind a pod ended."""

    result: str
    """The value of the binder's verdict."""
    seconds: float


BIND_RESULTS: Final = ("bound", "failed", "gone", "retry", "interrupted", "bug")
"""Values of the binder's verdict, for modules that may not import it."""


@attrs.frozen(kw_only=True)
class WorkEnded:
    """A controller's work on an object ended."""

    work: str
    failed: bool
    seconds: float
    """Duration of the work."""
    waited: float
    """Time from the request for the work to its end."""


@attrs.frozen
class QueueCounted:
    """A queue with its new counts."""

    queue: Queue


@attrs.frozen
class QueueGone:
    """A queue was deleted, or another process counts it from now on; its metrics end."""

    queue: Queue


REVIEW_RESULTS: Final = ("allowed", "refused", "failed")


@attrs.frozen(kw_only=True)
class ReviewEnded:
    """A request to a webhook was answered."""

    door: str
    """The path of the request."""
    result: str
    """``allowed``, ``refused`` by a rule, or ``failed``: then the failure policy of the webhook decides."""
    seconds: float


@attrs.frozen
class CertificateUsed:
    """Webhooks serve with a certificate that expires at ``ends_at``.

    Units: seconds since the epoch.
    """

    ends_at: float


Signal: TypeAlias = BindEnded | WorkEnded | QueueCounted | QueueGone | ReviewEnded | CertificateUsed

Observe: TypeAlias = Callable[[Signal], None]
"""Takes a signal. Called on the event loop."""


def unobserved(_: Signal) -> None:
    """Ignore a signal."""


def warn(connectivity: Connectivity, event: str, **facts: object) -> None:
    """Log a warning; at debug level while the server may be away."""
    log = structlog.get_logger()
    (log.debug if connectivity.may_be_away else log.warning)(event, **facts)
