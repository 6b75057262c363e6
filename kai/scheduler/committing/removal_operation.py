"""The removal of a bind request that is over, once its node or queue is known to be gone; at once if it failed."""

from __future__ import annotations

from typing import ClassVar, Final, Literal

import attrs

from kai.api import plans
from kai.api.kinds import ApiObject, Key, key_of
from kai.api.kubernetes.node import Node
from kai.api.plans import Reason, Ref, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.deadlines import Deadlines
from kai.intake.binding import ExpiredRequest
from kai.intake.nodes import is_wanted
from kai.scheduler.committing.operations import Ask, End, Moment, Pause, Step
from kai.scheduler.reader import Reader
from kai.scheduler.settings import SchedulerSettings
from kai.scheduler.signals import RequestDeleted, RequestKept

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
