"""Events, effects and signals of the committer and the publisher, and the view of the cluster that they read.

A shell passes events to these state machines and carries out the effects. `kai.roles.scheduler.committing.outbox` is a
shell; a simulation is another.

Signals are effects too: the outcomes of decisions and writes, one frozen class for each kind. Each signal has two
subscribers: the metrics (`SchedulerMetrics.take`) and the log (`log_signal`), which alone has text and level of each
class. Nothing else depends on the texts.

`Reader` is the view of the cluster as it is known now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import attrs
import structlog

from kai.api.kinds import ApiObject, Key
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.port import Index, Term
from kai.cluster.requests import Request
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Decision
from kai.intake.bind_requests import ExpiredRequest


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


T = TypeVar("T", bound=ApiObject)


class Reader(Protocol):
    """The known state of the cluster; the store of `kai.cluster.port` implements it."""

    def get(self, cls: type[T], name: str, namespace: str = "") -> T | None:
        """Return an object; None if it is unknown."""
        ...

    def all(self, cls: type[T]) -> tuple[T, ...]:
        """Return all objects of a kind; the same tuple until one of them changes."""
        ...

    def find(self, index: Index[T], key: str) -> tuple[T, ...]:
        """Return the objects under a key of an index, by namespace and name."""
        ...

    def is_assumed(self, cls: type[ApiObject], key: Key) -> bool:
        """Return whether an assumed object hides the real one."""
        ...

    def is_overlaid(self, cls: type[ApiObject], key: Key) -> bool:
        """Return whether an object is shown with annotations that it does not have."""
        ...

    def age(self) -> float:
        """Return for how many seconds the most silent watch has delivered nothing."""
        ...


# --- Events --------------------------------------------------------------------------------------------------------


@attrs.frozen
class TermBegan:
    """This process became the leader. Assumptions of an earlier leader are unknown here."""

    term: Term


@attrs.frozen
class TermEnded:
    """This process is no longer the leader."""


@attrs.frozen(kw_only=True)
class Decided:
    """A statement became final in a cycle that began in ``term``."""

    term: Term
    cycle: int
    snapshot: Snapshot
    decisions: tuple[Decision, ...]
    trace: str = ""


@attrs.frozen
class Expired:
    """Bind requests that failed, or lost their node or queue."""

    requests: tuple[ExpiredRequest, ...]


@attrs.frozen
class Looked:
    """A cycle begins: the store may show the outcome of earlier writes."""


@attrs.frozen
class Answered:
    """The reply to the request that was sent with ``ticket``."""

    ticket: int
    reply: Any


@attrs.frozen
class Carried:
    """The reply to `Carry`: the pod is bound and has its event, unless ``failure`` says why not."""

    failure: str = ""
    is_gone: bool = False
    """Whether the pod is being deleted, so that there is nothing to bind."""


@attrs.frozen
class Tick:
    """Time has passed: a pause may be over."""


Event: TypeAlias = TermBegan | TermEnded | Decided | Expired | Looked | Answered | Tick


# --- Effects -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Send:
    """Perform a request in the present term and answer it; without a ticket no operation waits for the answer.

    Writes with the same topic are sent one at a time, and a newer one replaces an unsent one; the publisher receives
    the outcome of each.
    """

    request: Request
    ticket: int = 0
    topic: str = ""


@attrs.frozen
class Carry:
    """Let the binder of this process carry out a bind without a written bind request, and answer with `Carried`.

    If no binder is running, the bind request is written under the same ticket instead.
    """

    request: BindRequest
    ticket: int


@attrs.frozen
class Assume:
    """Show an object in the store as if it were written, ``until`` the real one confirms it."""

    obj: ApiObject
    until: Callable[[Any], bool]


@attrs.frozen
class Overlay:
    """Show annotations on an object in the store that need not be written."""

    cls: type[ApiObject]
    key: Key
    annotations: Mapping[str, str]


@attrs.frozen
class Forget:
    """Drop the assumption of an object: the store shows the real one."""

    cls: type[ApiObject]
    key: Key


@attrs.frozen
class WakeAt:
    """Send a `Tick` at ``time``."""

    time: float


Effect: TypeAlias = Send | Carry | Assume | Forget | Overlay | WakeAt | Signal
