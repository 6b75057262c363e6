"""How an attempt at a bind ends.

What the steps of a bind are told, and what they promise.

Bind requests as the API server has them, and what it says of one while it does not serve the kind.

A definition that is replaced, or an API server that has just begun, answers for a while as if there were no bind
requests at all. That says nothing about a single one: taken for gone, it would never be carried out.

The log's side of attempts: a text and a level for each way in which one ends.

The boundary of a plan: an error of kai's own costs one bind or one sweep, and is named once in the log.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import attrs
import structlog

from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit, Get, Plan, Reason, Ref, Refusal, RefusedError, find, get
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.port import Api, Connectivity
from kai.cluster.requests import NoSuchKind
from kai.cluster.signals import warn
from kai.cluster.work import KeyRing, carry_out, place_of, untold
from kai.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable


@attrs.frozen(kw_only=True)
class BindContext:
    """One bind: which pod, onto which node, by which request, with which shared GPUs."""

    pod: Pod
    node: Node
    request: BindRequest
    devices: tuple[str, ...] = ()
    """Identities of the GPUs of the request's groups, in their order; empty while undoing."""


class BindStep(Protocol):
    """Something to be made ready before a pod is bound."""

    @property
    def name(self) -> str:
        """The name under which the step is configured."""

    def prepare(self, context: BindContext, /) -> Plan[None]:
        """Make it ready; doing it twice is the same as doing it once.

        Raises: BindFailureError, InputError or RefusedError if that cannot be done.
        """

    def undo(self, context: BindContext, /) -> Plan[None]:
        """Take back what `prepare` did; nothing where it did nothing.

        Raises: RefusedError if that cannot be done.
        """


def order_for_sure(ref: Ref[BindRequest], *, fresh: bool = False) -> Plan[BindRequest | None]:
    """Return a bind request, or None if the API server says that it does not exist; ``fresh``: only the server tells.

    Raises: RefusedError for any other reason, which interrupts while bind requests are not served.
    """
    if not fresh and (known := (yield from find(ref))) is not None:
        return known
    try:
        return (yield from get(ref, fresh=True))
    except RefusedError as error:
        if is_gone(error):
            return None
        if isinstance(error.refusal, NoSuchKind):
            unserved = Refusal(reason=Reason.UNAVAILABLE, message=error.refusal.message)
            raise RefusedError(unserved, Get(ref=ref, fresh=True)) from None
        raise


def is_gone(error: RefusedError) -> bool:
    """Return whether a refusal says of one order that it does not exist, and not of all of them."""
    return error.reason is Reason.NOT_FOUND and not isinstance(error.refusal, NoSuchKind)


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


def log_outcome(connectivity: Connectivity, ref: Ref[BindRequest], outcome: Outcome) -> None:
    """Write how an attempt at a bind ended."""
    known = {"bind_request": f"{ref.namespace}/{ref.name}"}
    log = structlog.get_logger().bind(**known)
    if outcome.leftovers:
        warn(connectivity, "could not be undone yet", **known, leftovers=list(outcome.leftovers))
    match outcome.verdict:
        case Verdict.BOUND:
            log.info("bound")
        case Verdict.BUG:
            log.debug(outcome.verdict.value, why=outcome.message)  # it was named where it happened
        case Verdict.NOTHING_TO_DO:
            log.debug("nothing to do", why=outcome.message)
        case Verdict.GONE:
            log.info("nothing to bind any more", why=outcome.message)
        case Verdict.INTERRUPTED:
            warn(
                connectivity,
                outcome.verdict.value,
                **known,
                why=outcome.message,
                again_after=outcome.delay,
            )
        case _:
            log.warning(outcome.verdict.value, why=outcome.message, again_after=outcome.delay)


R = TypeVar("R")
_MOST_NAMED: Final = 1 << 10


@attrs.define(eq=False)
class PlanRunner:
    """Carries out the plans of one binder."""

    api: Api
    _keys: KeyRing = attrs.field(factory=KeyRing)
    _named: dict[tuple[str, str], None] = attrs.field(factory=dict)
    """What errors of kai's own kept from being done, and where they came from: the log has named them."""

    async def run(self, plan: Plan[R], subject: str = "", waits: Callable[[], None] = untold) -> R | str:
        """Return the result of a plan, or in words why it has none; ``waits`` is called when it waits for others."""
        try:
            return await carry_out(plan, self.api, self._keys, waits)
        except RefusedError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - the boundary of one work item: a bug costs one bind, not all
            self._name_bug(error, subject)
            return f"{type(error).__name__}: {error}"

    def _name_bug(self, error: Exception, subject: str) -> None:
        """Write an error of kai's own to the log, once for what it keeps from being done."""
        log, at = structlog.get_logger(), place_of(error)
        key = (subject, at[-1])
        tell = log.debug if key in self._named else log.error
        self._named.pop(key, None)
        self._named[key] = None
        if len(self._named) > _MOST_NAMED:
            del self._named[next(iter(self._named))]
        tell("plan failed", subject=subject, why=str(error), kind=type(error).__name__, at=at)
