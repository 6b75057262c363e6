"""Writes under way: what an operation may do next, and what it is asked, reply by reply. Machines without I/O.

An operation answers whatever happens to it with a step: ask for a request, hand the order over to the binder, pause and
try again, or end. Under which ticket, how long a pause is and how many there are is the committer's business.

The operations are `bind_operation`, `eviction_operation` and `removal_operation`.

Holds: an answer that was lost is neither a success nor a failure. The object is read by quorum, and the same order, or
the same UID's eviction, is written again if it is not there.
"""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeAlias

import attrs

from kai.api import plans
from kai.api.kinds import ApiObject, Key
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.requests import Request
from kai.model.noroom import NoRoom
from kai.scheduler.reader import Reader
from kai.scheduler.signals import Signal


@attrs.frozen
class Moment:
    """The time, twice."""

    now: float
    """Of a clock that does not go back."""
    wall: float
    """What people read."""


# --- Steps ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Ask:
    """Send a request and say what was answered."""

    request: Request


@attrs.frozen
class HandOver:
    """Have the binder of this process carry out the order."""

    request: BindRequest


@attrs.frozen
class Pause:
    """Go on a little later."""


@attrs.frozen(kw_only=True)
class End:
    """There is nothing more to do."""

    signal: Signal
    """What became of the write."""
    then: tuple[Request, ...] = ()
    """Requests that are to be written besides; the committer does not wait for the answers."""
    stands: bool = False
    """What was assumed is true, although no reply shows it: it is shown until the watch does."""
    backs_off: str = ""
    """The UID of a pod whose bind failed."""
    why: str = ""
    """What refused it."""
    refusal: NoRoom | None = None
    """The node that had no room for it, if that was why."""
    shielded: str = ""
    """The UID of a pod that a disruption budget protected."""
    kept: str = ""
    """The UID of a bind request that was not deleted, because its node is there after all."""
    ordered: plans.Emit | None = None
    """What to tell the pod once it is bound: that was ordered, and is not so yet."""


Step: TypeAlias = Ask | HandOver | Pause | End


class Operation(Protocol):
    """A write under way."""

    name: ClassVar[str]
    attempts: int
    """How often it paused."""

    @property
    def target(self) -> tuple[type[ApiObject], Key]:
        """The object that is being written, of which something may be assumed."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it is asked what became of a write: it is not given up before that is known."""
        ...

    def begin(self) -> Step:
        """Return the first step."""
        ...

    def answered(self, reply: object, at: Moment) -> Step:
        """Return the step that follows a reply of the API server, other than that it was not there."""
        ...

    def resumed(self, reader: Reader) -> Step:
        """Return the step that follows a pause."""
        ...


# --- Names ---------------------------------------------------------------------------------------------------------


def title_of(pod: Pod) -> str:
    """Return what signals call a pod."""
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
