"""Writes under way: what an operation may do next, and what it is asked, reply by reply. Machines without I/O.

An operation answers whatever happens to it with a step: ask for a request, hand the order over to the binder, pause and
try again, or end. Under which ticket, how long a pause is and how many there are is the committer's business.

The operations are `bind_operation`, `eviction_operation` and `removal_operation`.

Holds: an answer that was lost is neither a success nor a failure. The object is read by quorum, and the same order, or
the same UID's eviction, is written again if it is not there.

The removal of a bind request that is over, once its node or queue is known to be gone; at once if it failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Literal, Protocol, TypeAlias

import attrs

from kai.api import plans
from kai.api.kinds import ApiObject, Key, key_of
from kai.api.kubernetes.node import Node
from kai.api.plans import Reason, Ref, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.basics.deadlines import Deadlines
from kai.cluster.requests import Request
from kai.intake.bind_requests import ExpiredRequest
from kai.intake.nodes import is_wanted
from kai.model.placement import NoRoom
from kai.scheduler.reporting.signals import RequestDeleted, RequestKept, Signal
from kai.scheduler.settings import SchedulerSettings

if TYPE_CHECKING:
    from kai.api.kubernetes.pod import Pod
    from kai.scheduler.effects import Reader


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


_KEPT_PAUSE: Final = 30.0
"""For so long a bind request is not asked about again that has its node and its queue, although the store lacks one."""


@attrs.define
class KeptRequests:
    """Bind requests, by UID, whose nodes or queues are there after all: until when not to ask again.

    Units: seconds of a clock that does not go back.
    """

    _until: Deadlines[str] = attrs.field(factory=Deadlines)

    def __contains__(self, uid: str) -> bool:
        """Return whether a bind request was kept lately."""
        return uid in self._until

    def rests(self, uid: str, now: float) -> bool:
        """Return whether it is too early to ask about a bind request again."""
        return self._until.get(uid, 0.0) > now

    def note(self, uid: str, now: float) -> bool:
        """Ask no more about a bind request for a while; return whether the log has said already that it is kept."""
        is_known = uid in self._until
        self._until.forget(now - _KEPT_PAUSE)
        self._until[uid] = now + _KEPT_PAUSE
        return is_known


@attrs.define
class RemovalOperation:
    """A bind request that is being deleted: one that failed, or one whose node or queue is known to be gone."""

    name: ClassVar[str] = "removal"
    expired: ExpiredRequest
    settings: SchedulerSettings
    attempts: int = 0
    _stage: Literal["confirm", "delete"] = "confirm"

    @property
    def request(self) -> BindRequest:
        """The bind request."""
        return self.expired.request

    @property
    def target(self) -> tuple[type[ApiObject], Key]:
        """The bind request."""
        return BindRequest, key_of(self.request)

    @property
    def is_open(self) -> bool:
        """Nothing is asked: to delete it once more does no harm."""
        return False

    def begin(self) -> Step:
        """Delete it if it failed, else look for what seems to be gone."""
        lost = self.expired.lost
        # The store may only lag, and a bind may be under way: nothing is deleted because a cache lacks something.
        return self._delete() if self._stage == "delete" or lost is None else Ask(plans.Get(ref=lost, fresh=True))

    def answered(self, reply: object, at: Moment) -> Step:
        """Go on after a reply."""
        del at
        refusal = reply if isinstance(reply, Refusal) else None
        if refusal is not None and refusal.reason is Reason.UNKNOWN:
            return Pause()
        is_gone = refusal is not None and refusal.reason is Reason.NOT_FOUND
        if self._stage == "delete":
            if refusal is None or is_gone or refusal.reason is Reason.CONFLICT:  # another has its name
                return End(signal=RequestDeleted(name=self.request.metadata.name))
            return self._keep(refusal.why)
        if is_gone or (isinstance(reply, Node) and not is_wanted(reply, self.settings.intake)):
            return self._delete()
        if refusal is not None:
            return self._keep(refusal.why)
        return self._keep(f"its {'node' if isinstance(reply, Node) else 'queue'} is there")

    def _keep(self, why: str) -> Step:
        return End(signal=RequestKept(name=self.request.metadata.name, why=why), kept=self.request.metadata.uid)

    def resumed(self, reader: Reader) -> Step:
        """Do what was interrupted."""
        del reader
        return self.begin()

    def _delete(self) -> Step:
        self._stage = "delete"
        return Ask(plans.Delete(ref=Ref.to(self.request), uid=self.request.metadata.uid))
