"""How an attempt at a bind ends."""

from __future__ import annotations

import enum

import attrs

from kai.api.plans import Emit
from kai.errors import ApiError


class BindFailureError(ApiError):
    """The bind cannot be carried out as it was asked for.

    `retryable` says whether the same request may succeed later; otherwise the scheduler has to decide anew.
    """


class WithdrawnError(BindFailureError):
    """The order was deleted while its bind was prepared: the pod, its queue or its node is gone, or a user did it."""


class Verdict(enum.Enum):
    """What became of an attempt."""

    BOUND = "bound"
    FAILED = "failed"
    """For good, and said so in the status of the request."""
    GONE = "gone"
    """The pod has ended or is being deleted, or its order was withdrawn, so there is nothing to bind any more."""
    RETRY = "retry"
    """Failed, and said so; the request may be tried again."""
    INTERRUPTED = "interrupted"
    """Nothing was decided, since the API server did not answer; nothing was rolled back."""
    BUG = "bug"
    """An error of kai's own cut the attempt short; nothing was written or rolled back."""
    NOTHING_TO_DO = "nothing to do"
    """The request is gone, finished, or was invalid and deleted."""


@attrs.frozen(kw_only=True)
class Outcome:
    """The end of an attempt, for the queue that decides when to try again, and for the log."""

    verdict: Verdict
    message: str = ""
    delay: float | None = None
    """Seconds until the next attempt makes sense."""
    leftovers: tuple[str, ...] = ()
    """What could not be undone, in words. The next sweep of the node undoes it."""
    event: Emit | None = None
    """What is to be said as an event, for which no bind has to wait."""
