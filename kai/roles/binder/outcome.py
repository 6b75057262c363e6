"""The outcome of an attempt at a bind, and the interfaces of the parts of a bind.

`BindContext` is the input of the steps of a bind, and `BindStep` their protocol. `BindOutcome` and `BindVerdict` say
how an attempt ended, and `log_outcome` logs it.

`order_for_sure` reads a bind request. While its CRD is being replaced, or just after the API server started, the server
answers for a while as if the kind did not exist. That says nothing about a single request: one counted as deleted would
never be carried out.

`PlanRunner` is the boundary of plans: a bug in kai costs one bind or one sweep, and is logged once.
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
from kai.basics.errors import ApiError
from kai.cluster.port import Api, Connectivity
from kai.cluster.requests import NoSuchKind
from kai.cluster.signals import warn
from kai.cluster.work import KeyRing, carry_out, do_nothing, place_of

if TYPE_CHECKING:
    from collections.abc import Callable


@attrs.frozen(kw_only=True)
class BindContext:
    """One bind: the pod, its node, the request, and the shared GPUs."""

    pod: Pod
    node: Node
    request: BindRequest
    devices: tuple[str, ...] = ()
    """Identities of the GPUs of the request's groups, in order; empty during an undo."""


class BindStep(Protocol):
    """A preparation before a pod is bound."""

    @property
    def name(self) -> str:
        """The name of the step in the configuration."""

    def prepare(self, context: BindContext, /) -> Plan[None]:
        """Prepare; idempotent.

        Raises: BindFailureError, InputError or RefusedError if that fails.
        """

    def undo(self, context: BindContext, /) -> Plan[None]:
        """Undo `prepare`; do nothing where it did nothing.

        Raises: RefusedError if that fails.
        """


def order_for_sure(ref: Ref[BindRequest], *, fresh: bool = False) -> Plan[BindRequest | None]:
    """Return a bind request, or None if the API server confirms that it does not exist; ``fresh``: bypass the store.

    Raises: RefusedError otherwise; it interrupts the attempt while the kind is not served.
    """
    if not fresh and (known := (yield from find(ref))) is not None:
        return known
    try:
        return (yield from get(ref, fresh=True))
    except RefusedError as error:
        if is_gone(error):
            return None
        if isinstance(error.refusal, NoSuchKind):
            # As unavailable, so that the attempt is interrupted and repeated: as not found the request would be given
            # up.
            unserved = Refusal(reason=Reason.UNAVAILABLE, message=error.refusal.message)
            raise RefusedError(unserved, Get(ref=ref, fresh=True)) from None
        raise


def is_gone(error: RefusedError) -> bool:
    """Return whether a refusal means that one request does not exist, not that the whole kind is unserved."""
    return error.reason is Reason.NOT_FOUND and not isinstance(error.refusal, NoSuchKind)


class BindFailureError(ApiError):
    """The bind cannot be carried out as requested.

    ``retryable``: whether the same request may succeed later; otherwise the scheduler has to decide anew.
    """


class WithdrawnError(BindFailureError):
    """The request was deleted during its bind: because its pod, queue or node is gone, or by a user."""


class BindVerdict(enum.Enum):
    """The kind of an outcome."""

    BOUND = "bound"
    FAILED = "failed"
    """It failed for good, and the status of the request says so."""
    GONE = "gone"
    """The pod has ended or is terminating, or the request was withdrawn: there is nothing to bind any more."""
    RETRY = "retry"
    """It failed, and the status says so; the request may be retried."""
    INTERRUPTED = "interrupted"
    """Nothing was decided or rolled back, because the API server did not answer."""
    BUG = "bug"
    """A bug in kai ended the attempt; nothing was written or rolled back."""
    NOTHING_TO_DO = "nothing to do"
    """The request is gone, finished, or was invalid and deleted."""


@attrs.frozen(kw_only=True)
class BindOutcome:
    """The end of an attempt, for the queue, which decides on retries, and for the log."""

    verdict: BindVerdict
    message: str = ""
    delay: float | None = None
    """Seconds until a retry makes sense."""
    leftovers: tuple[str, ...] = ()
    """Texts of what could not be undone. The next sweep of the node does it."""
    event: Emit | None = None
    """Event to send; no bind has to wait for it."""


def log_outcome(connectivity: Connectivity, ref: Ref[BindRequest], outcome: BindOutcome) -> None:
    """Log the outcome of an attempt."""
    known = {"bind_request": f"{ref.namespace}/{ref.name}"}
    log = structlog.get_logger().bind(**known)
    if outcome.leftovers:
        warn(connectivity, "could not be undone yet", **known, leftovers=list(outcome.leftovers))
    match outcome.verdict:
        case BindVerdict.BOUND:
            log.info("bound")
        case BindVerdict.BUG:
            log.debug(outcome.verdict.value, why=outcome.message)  # `PlanRunner` has logged the bug
        case BindVerdict.NOTHING_TO_DO:
            log.debug("nothing to do", why=outcome.message)
        case BindVerdict.GONE:
            log.info("nothing to bind any more", why=outcome.message)
        case BindVerdict.INTERRUPTED:
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
    """Runs the plans of one binder."""

    api: Api
    _keys: KeyRing = attrs.field(factory=KeyRing)
    _named: dict[tuple[str, str], None] = attrs.field(factory=dict)
    """Subjects and places of bugs that were logged already."""

    async def run(self, plan: Plan[R], subject: str = "", waits: Callable[[], None] = do_nothing) -> R | str:
        """Return the result of a plan, or why it has none, as text; ``waits`` is called when it waits for others."""
        try:
            return await carry_out(plan, self.api, self._keys, waits)
        except RefusedError as error:
            return str(error)
        except Exception as error:  # noqa: BLE001 - the boundary of one work item: a bug costs one bind, not all
            self._name_bug(error, subject)
            return f"{type(error).__name__}: {error}"

    def _name_bug(self, error: Exception, subject: str) -> None:
        """Log a bug in kai, once for each subject and place."""
        log, at = structlog.get_logger(), place_of(error)
        key = (subject, at[-1])
        write = log.debug if key in self._named else log.error
        # Moved to the end, so that the limit drops the bug that did not occur for longest.
        self._named.pop(key, None)
        self._named[key] = None
        if len(self._named) > _MOST_NAMED:
            del self._named[next(iter(self._named))]
        write("plan failed", subject=subject, why=str(error), kind=type(error).__name__, at=at)
