"""Signals of the roles besides the scheduler: what they did, one frozen class for each thing that happens.

Roles send signals and metrics take them (`kai.cli.running.rolemetrics`). The classes are beneath all roles, so that
metrics import no role that does not run in this process.

Warnings about what the API server did not do; an outage is told once for all, by what watches the connection.
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
    """An attempt at a bind ended."""

    result: str
    """The value of the binder's verdict."""
    seconds: float


BIND_RESULTS: Final = ("bound", "failed", "gone", "retry", "interrupted", "bug")
"""The values of the binder's verdict that say something, for modules that may not import it."""


@attrs.frozen(kw_only=True)
class WorkEnded:
    """A look at an object ended."""

    work: str
    failed: bool
    seconds: float
    """How long it took."""
    waited: float
    """How long the key had been asked for when the look ended."""


@attrs.frozen
class QueueCounted:
    """A queue as it is after a look at it."""

    queue: Queue


@attrs.frozen
class QueueGone:
    """A queue was deleted, or another process counts it; its metrics end."""

    queue: Queue


REVIEW_RESULTS: Final = ("allowed", "refused", "failed")


@attrs.frozen(kw_only=True)
class ReviewEnded:
    """A request to a webhook was answered."""

    door: str
    """The path that was asked."""
    result: str
    """``allowed``, ``refused`` by a rule, or ``failed``: then the failure policy of the webhook decides."""
    seconds: float


@attrs.frozen
class CertificateUsed:
    """Webhooks answer with a certificate that ends then.

    Units: seconds since the epoch.
    """

    ends_at: float


Signal: TypeAlias = BindEnded | WorkEnded | QueueCounted | QueueGone | ReviewEnded | CertificateUsed

Observe: TypeAlias = Callable[[Signal], None]
"""Takes a signal. Called on the event loop."""


def unobserved(_: Signal) -> None:
    """Take no notice."""


def warn(connectivity: Connectivity, event: str, **facts: object) -> None:
    """Log a warning; where the server is away or may be, log it for those who debug."""
    log = structlog.get_logger()
    (log.debug if connectivity.may_be_away else log.warning)(event, **facts)
