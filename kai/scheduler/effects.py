"""What the committer and the publisher are told, and what they want done: values that a shell hands to and fro.

The shell is `kai.scheduler.committing.outbox`; a simulation is another. What happened is a signal
(`kai.scheduler.reporting.signals`), which is an effect as well.

How the machines of the scheduler look at the cluster as it is known now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

import attrs

from kai.api.kinds import ApiObject, Key
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.port import Index, Term
from kai.cluster.requests import Request
from kai.framework.decisions import Decision
from kai.intake.bind_requests import ExpiredRequest
from kai.scheduler.reporting.signals import Signal
from kai.state.snapshot import Snapshot

T = TypeVar("T", bound=ApiObject)


class Reader(Protocol):
    """What is known of the cluster now; the store of `kai.cluster.port` is one."""

    def get(self, cls: type[T], name: str, namespace: str = "") -> T | None:
        """Return an object."""
        ...

    def all(self, cls: type[T]) -> tuple[T, ...]:
        """Return all objects of a kind; the same tuple until one of them changes."""
        ...

    def find(self, index: Index[T], key: str) -> tuple[T, ...]:
        """Return the objects to which this key of an index leads, by namespace and name."""
        ...

    def is_assumed(self, cls: type[ApiObject], key: Key) -> bool:
        """Return whether an object is shown as assumed."""
        ...

    def is_overlaid(self, cls: type[ApiObject], key: Key) -> bool:
        """Return whether an object is shown with annotations that it does not have."""
        ...

    def age(self) -> float:
        """Return for how many seconds the kind that was heard of least recently has been silent."""
        ...


# --- What the committer is told ------------------------------------------------------------------------------------


@attrs.frozen
class TermBegan:
    """We lead. What an earlier life assumed is not known here."""

    term: Term


@attrs.frozen
class TermEnded:
    """We lead no more."""


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
    """Bind requests that are over."""

    requests: tuple[ExpiredRequest, ...]


@attrs.frozen
class Looked:
    """A cycle begins: what the store shows by now may be news."""


@attrs.frozen
class Answered:
    """The reply to the request that was sent under ``ticket``."""

    ticket: int
    reply: Any


@attrs.frozen
class Carried:
    """The reply to `Carry`: the pod is bound, unless `failure` says why it is not. The pod was told."""

    failure: str = ""
    is_gone: bool = False
    """Whether there is nothing to bind any more: the pod is leaving."""


@attrs.frozen
class Tick:
    """Time has passed."""


Event: TypeAlias = TermBegan | TermEnded | Decided | Expired | Looked | Answered | Tick


# --- What is to be done --------------------------------------------------------------------------------------------


@attrs.frozen
class Send:
    """Perform a request in the present term and answer it; without a ticket no machine waits for the answer.

    Writes about one topic are sent one at a time, and of those that were not sent yet only the last; the publisher is
    told how each ended.
    """

    request: Request
    ticket: int = 0
    topic: str = ""


@attrs.frozen
class Carry:
    """Have the binder of this process carry out an order that is not written, and answer it with `Carried`.

    Where no binder is at work, the order is written under the same ticket instead.
    """

    request: BindRequest
    ticket: int


@attrs.frozen
class Assume:
    """Let the store show an object."""

    obj: ApiObject
    until: Callable[[Any], bool]


@attrs.frozen
class Overlay:
    """Let the store show annotations that need not be written."""

    cls: type[ApiObject]
    key: Key
    annotations: Mapping[str, str]


@attrs.frozen
class Forget:
    """Let the store show what is really there."""

    cls: type[ApiObject]
    key: Key


@attrs.frozen
class WakeAt:
    """Send a `Tick` then."""

    time: float


Effect: TypeAlias = Send | Carry | Assume | Forget | Overlay | WakeAt | Signal
